"""What the flags of `realtime-server serve` say of telephone calls."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from realtime_server.errors import ConfigurationError
from realtime_server.flags import naming
from realtime_server.http.options import CallOptions, Webhook


def read_calls(arguments: argparse.Namespace) -> CallOptions:
    """Validate the flags of flags.add_arguments(), make their folder. Raises ConfigurationError, naming a flag."""
    folder, url, token = arguments.calls_dir, arguments.calls_webhook, arguments.calls_webhook_token
    if (folder or url) and arguments.http_port is None:
        flag = "--calls-dir" if folder else "--calls-webhook"
        raise ConfigurationError(f"{flag} goes with --http-port, where calls come in")
    if folder:
        _make_folder(folder)
    if token and not url:
        raise ConfigurationError(
            "--calls-webhook-token goes with --calls-webhook, the address that it is for"
        )
    with naming("--calls-webhook"):
        return CallOptions(folder, Webhook(url, token) if url else None)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)  # none above it: that would rather be a slip
    except OSError as error:
        raise ConfigurationError(
            f"--calls-dir {folder}: no such folder can be made: {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--calls-dir {folder}: the folder cannot be written to; choose another")

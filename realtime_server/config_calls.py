"""What the flags of `realtime-server serve` say of telephone calls."""

from __future__ import annotations

import argparse
import os

from realtime_server.errors import ConfigurationError
from realtime_server.http.options import CallOptions, Webhook


def read_calls(arguments: argparse.Namespace) -> CallOptions:
    """Validate the flags of flags.add_arguments(). Raises ConfigurationError saying which one cannot be."""
    folder, url, token = arguments.calls_dir, arguments.calls_webhook, arguments.calls_webhook_token
    if (folder or url) and arguments.http_port is None:
        flag = "--calls-dir" if folder else "--calls-webhook"
        raise ConfigurationError(f"{flag} goes with --http-port, where calls come in")
    if folder and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise ConfigurationError(f"--calls-dir {folder}: no folder that can be written to; make it first")
    if token and not url:
        raise ConfigurationError(
            "--calls-webhook-token goes with --calls-webhook, the address that it is for"
        )
    return CallOptions(folder, _read_webhook(url, token) if url else None)


def _read_webhook(url: str, token: str | None) -> Webhook:
    try:
        return Webhook(url, token)
    except ConfigurationError as error:
        raise ConfigurationError(f"--calls-webhook: {error}") from error

"""Files that are no Python: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from realtime_server.errors import ConfigurationError

_PACKAGE = Path(__file__).resolve().parent


def find_resource(name: str) -> Path:
    """Path of e.g. "static/client_mic.html". Raises ConfigurationError if this installation lacks it."""
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / name).is_file():
            return root / name
    raise ConfigurationError(f"{name} is missing from this installation; install realtime-server again")

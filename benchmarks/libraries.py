"""Libraries that only some benchmarks need, imported when one does."""

from __future__ import annotations

import importlib
from typing import Any

from realtime_server.errors import ConfigurationError
from realtime_server.resources import pip_install


def needed(module: str, extra: str) -> Any:
    """A module; raise ConfigurationError, which says what to run, if it is missing. extra: brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is missing; run: {pip_install(extra)}") from error

"""A live speech recognition server: audio in over a WebSocket, locked sentences and a moving partial out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from realtime_server.sdk import AutoModelVLLM, FunASRNanoStreamingVLLM, FunASRNanoVLLM

__version__ = "0.1.0"
__all__ = ["AutoModelVLLM", "FunASRNanoStreamingVLLM", "FunASRNanoVLLM", "__version__"]


def __getattr__(name: str) -> object:
    """Import the SDK when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("realtime_server.sdk"), name)

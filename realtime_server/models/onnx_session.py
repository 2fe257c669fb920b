"""onnxruntime, set up the same way for every network here: quiet, on the CPU, no more threads than were asked for."""

from __future__ import annotations

import os
from pathlib import Path

# Read once, when onnxruntime is loaded: without it, some of its builds name this machine to their maker over the
# network and leave files in the user's cache. A speech server tells nobody anything.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
from onnxruntime import InferenceSession

from realtime_server.errors import WeightsError

__all__ = ["InferenceSession", "open_session"]


def open_session(
    model: Path | bytes, threads: int = 1, name: str | None = None, *, arena: bool = True
) -> InferenceSession:
    """Load a network, from a file or as bytes; raise WeightsError, with `name` or the path, if it cannot be.

    threads: of one call; they sleep while there is nothing to do.  arena: keep the memory of a call for the next, which
    saves short calls some microseconds, and never gives back what the largest took.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = arena
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = model if isinstance(model, bytes) else str(model)
    try:
        return InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        raise WeightsError(f"onnxruntime cannot load {name or model!s}: {error}") from error

"""The call client as a module, for tests that need what it sends."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from realtime_server.core.jobs import Samples
from realtime_server.resources import find_resource
from tests.audio import pcm16

CLIENT = find_resource("clients/client_call_tap.py")


def load_tap() -> Any:
    """The module; it imports the other client, which lies beside it."""
    sys.path.insert(0, str(CLIENT.parent))
    try:
        return importlib.import_module("client_call_tap")
    finally:
        sys.path.remove(str(CLIENT.parent))


def mulaw(samples: Samples) -> bytes:
    """16 kHz samples as 8 kHz mu-law; they must have nothing above 4 kHz."""
    import numpy as np

    coded: bytes = load_tap().encode_mulaw(np.frombuffer(pcm16(samples[::2]), "<i2"))
    return coded

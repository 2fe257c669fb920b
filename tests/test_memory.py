"""Memory goes back to the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from realtime_server import memory

# Small pieces, which the C library keeps when they are freed, below one that is not.
CODE = """
import os
from realtime_server import memory
from realtime_server.bench.machine import rss_mb
pieces = [bytes(50_000) for _ in range(2000)]
last = bytes(50_000)
del pieces
before = rss_mb(os.getpid())
memory.give_back()
print(before - rss_mb(os.getpid()))
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not hasattr(memory.ctypes.CDLL(None), "malloc_trim"),
    reason="only glibc keeps memory in this way",
)
def test_what_was_freed_goes_back() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert float(ran.stdout) > 50


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.give_back()

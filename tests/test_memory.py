"""Memory goes back to the machine, and threads keep less of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from realtime_server import cli, memory

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


# Heaps that twenty threads of the C library's allocate from at the same time; each is named on standard error.
HEAPS = """
import ctypes, os, sys, threading
from realtime_server import memory
os.cpu_count = lambda: 2
if sys.argv[1] == "shared":
    memory.share_heaps()
library = ctypes.CDLL(None)
all_here = threading.Barrier(20)
def allocate():
    library.malloc(1000)
    all_here.wait()
threads = [threading.Thread(target=allocate) for _ in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.malloc_stats()
"""

glibc_only = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or memory._find("malloc_trim") is None,
    reason="only glibc keeps memory in this way",
)


@glibc_only
def test_what_was_freed_goes_back() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert float(ran.stdout) > 50


@glibc_only
def test_threads_share_heaps() -> None:
    assert heaps("shared") == 2
    assert heaps("own") > 2


def heaps(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, text=True, check=True)
    return ran.stderr.count("Arena ")


def test_every_command_has_its_threads_share_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[None] = []
    monkeypatch.setattr(memory, "share_heaps", lambda: called.append(None))
    cli.main(["models", "list"])
    assert called == [None]


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: asked.append(name) or object())
    memory.give_back()
    memory.share_heaps()
    assert asked == [None, None]

"""Ends processes that this one started when it dies without a chance to: killed, out of memory, crashed.

vLLM's engine process does not notice that its parent is gone; it would keep the card's memory for ever. A watcher
holds the other end of a pipe, which the system closes when this process ends, however it ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

# Handles, not numbers: a number may have passed to another process by the time it is used.
WATCHER = """
import os, select, signal, sys, time
handles = [os.pidfd_open(int(number)) for number in sys.argv[1:]]
sys.stdin.read()
for number in (signal.SIGTERM, signal.SIGKILL):
    for handle in handles:
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass
    end_s = time.monotonic() + 10
    while handles and time.monotonic() < end_s:
        ended, _, _ = select.select(handles, [], [], 1)
        handles = [handle for handle in handles if handle not in ended]
"""


class OrphanWatch:
    """Watches over processes until it is closed or this process ends."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Watch these children of this process."""
        command = [sys.executable, "-c", WATCHER, *map(str, pids)]
        # In a session of its own: Ctrl-C reaches this process's whole group, and it is to outlive it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """Stop watching."""
        self._process.kill()
        self._process.communicate()

"""The real server as a process of its own, for tests that must see what users see."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from typing import Self

READY_S = 120.0


class LiveServer:
    """`python -m realtime_server serve FLAGS` on a free port; `url` once it is ready, `log` what it said."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "realtime_server", "serve", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.lines: list[str] = []
        self.url = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        assert self._ready.wait(READY_S), self.log
        assert self.url, self.log
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join()
        if self.process.stderr:
            self.process.stderr.close()
        return code

    @property
    def page(self) -> str:
        """Address of the page."""
        return self.url.replace("ws:", "http:")

    @property
    def log(self) -> str:
        """Everything it wrote so far."""
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"ready: .*(ws://\S+)", line):
                self.url = found[1]
                self._ready.set()
        self._ready.set()

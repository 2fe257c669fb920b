"""The real server as a process of its own, for tests that must see what users see."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from realtime_server.resources import find_resource

READY_S = 120.0
STREAMED_S = 300.0  # for a recording and its final
CLIENT = str(find_resource("clients/client_python.py"))


class LiveServer:
    """`python -m realtime_server serve FLAGS` on a free port; `url` once it is ready, `log` what it said."""

    def __init__(self, *flags: str, ready_s: float = READY_S) -> None:
        command = [sys.executable, "-m", "realtime_server", "serve", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.lines: list[str] = []
        self.url = ""
        self._ready, self._ready_s = threading.Event(), ready_s
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        assert self._ready.wait(self._ready_s), self.log
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

    def stream(self, path: Path, *flags: str) -> list[dict[str, Any]]:
        """Stream a recording at pace 1.0 with the client, given `flags`; return every message it was sent."""
        command = [sys.executable, CLIENT, "--server", self.url, "--file", str(path)]
        command += ["--pace", "1.0", "--json", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STREAMED_S)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def page(self) -> str:
        """Address of the page."""
        return re.sub("^ws", "http", self.url)

    @property
    def log(self) -> str:
        """Everything it wrote so far."""
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"ready: .* (wss?://\S+)", line):
                self.url = found[1]
                self._ready.set()
        self._ready.set()

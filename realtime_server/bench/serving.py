"""A real server in a process of its own, started as a user would start it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from realtime_server.errors import RealtimeServerError

READY_S = 120.0  # for the server to load its models
STOP_S = 40.0  # for it to stop


class ServerError(RealtimeServerError):
    """The server did not start, or ended with an error."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    pid: int
    url: str
    log: Path

    def troubles(self) -> list[str]:
        """The first warnings and errors that it has logged."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r" (WARNING|ERROR) ", line)][:5]


@contextmanager
def served(flags: Sequence[str]) -> Iterator[Server]:
    """Run `serve` with these flags on a free port while the block runs. Raises ServerError."""
    command = [sys.executable, "-m", "realtime_server", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--max-requests-per-minute", "0", *flags]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield Server(process.pid, _await_url(process, log), log)
        finally:
            _stop(process)
        if process.returncode != 0:
            raise ServerError(_last_words(process, log))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline_s:
        if told := re.search(r"ready: .* (wss?://\S+)", log.read_text(errors="replace")):
            return told[1]
        time.sleep(0.05)
    raise ServerError(_last_words(process, log))


def _last_words(process: subprocess.Popen[bytes], log: Path) -> str:
    how = "is not ready in time" if process.poll() is None else f"ended with code {process.returncode}"
    return f"the server {how}. It said:\n{log.read_text(errors='replace')[-4000:]}"

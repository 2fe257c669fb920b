"""Servers in processes of their own, started and ended with all that they start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.live_server import LISTENING
from realtime_server.bench.serving import ServerError

END_S = 10.0  # for a server to end when told to, before it is killed
TOLD = 40  # last lines of a log that are told
BAR = "it/s]"  # is in a progress bar


@dataclass(frozen=True, slots=True)
class Program:
    """A running server. urls: by name, as its log tells them.  took_s: until it could be used."""

    pid: int
    urls: dict[str, str]
    log: Path
    took_s: float

    def troubles(self) -> list[str]:
        """The first warnings and errors that it has logged."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [
            line[:300] for line in lines if re.search(r" (WARNING|ERROR) (realtime_server|benchmarks)", line)
        ][:5]


@contextmanager
def started(
    module: Sequence[str], *, names: Sequence[str], ready_s: float,
    listening: str = rf"{LISTENING} \w+ (ws://\S+)",
) -> Iterator[Program]:  # fmt: skip
    """Run `python -m` with these words while the block runs.

    listening: what its log says of each address, in the order of `names`. Raises ServerError if they are not all there
    within ready_s.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-program-") as folder:
        log, began_s = Path(folder) / "log", time.monotonic()
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", *module], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        try:
            urls = _await(process, log, listening, len(names), began_s + ready_s)
            yield Program(process.pid, dict(zip(names, urls, strict=True)), log, time.monotonic() - began_s)
        finally:
            end(process)
            print(_told(log), file=sys.stderr, flush=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """End it, in its own way first, and whatever it started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    with suppress(ProcessLookupError):  # nothing of its session is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _await(
    process: subprocess.Popen[bytes], log: Path, listening: str, ready: int, until_s: float
) -> list[str]:
    while process.poll() is None and time.monotonic() < until_s:
        found: list[str] = re.findall(listening, log.read_text(errors="replace"))
        if len(found) >= ready:
            return found[:ready]
        time.sleep(0.2)
    how = "is not ready in time" if process.poll() is None else f"ended with code {process.returncode}"
    raise ServerError(f"the server {how}; it said:\n{_told(log)}")


def _told(log: Path) -> str:
    lines = re.split(r"[\r\n]+", log.read_text(errors="replace"))
    return "\n".join([line[:300] for line in lines if line.strip() and BAR not in line][-TOLD:])

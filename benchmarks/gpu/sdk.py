"""The SDK on a GPU: a program of one's own with AutoModelVLLM, from its first line to what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.sdk_program import SECONDS
from realtime_server.bench.figures import Report
from realtime_server.errors import EngineError

LIMIT_S = 240.0
GONE_S = 10.0  # after the program's end, for processes that it started


def measure(bench: Bench) -> Report:
    """Run the program; its times, its exit code and the processes that it left."""
    report = bench.report("sdk", f"AutoModelVLLM, recordings of {', '.join(map(str, SECONDS))} s at once")
    words = [bench.folder, bench.device, bench.options.max_model_len, bench.live.vad_model, bench.live.speech]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.sdk_program", *map(str, words)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except BaseException:
        process.kill()
        raise
    report.add("exit code", process.returncode, at_most=0)
    left = _left(process.pid)
    report.add("processes left", len(left), at_most=0)
    report.notes += [f"left: {each}" for each in left]
    if process.returncode:
        raise EngineError(f"the program ended with code {process.returncode}; its errors are above")
    found = json.loads(said.splitlines()[-1])
    for name, seconds in found["took_s"].items():
        report.add(name, seconds, "s")
    report.notes.append(
        f"texts of both ways are {'the same' if found['same'] else 'not the same, as random ones may be'}"
    )
    report.notes.append(
        "random weights: answers run into their token limit, 16 per second of audio and 16 more"
    )
    return report


def _left(session: int) -> list[str]:
    """Command lines of the processes of a session that have not ended, after some time."""
    until_s = time.monotonic() + GONE_S
    while left := [_command(pid) for pid in _members(session)]:
        if time.monotonic() > until_s:
            return left
        time.sleep(0.2)
    return []


def _members(session: int) -> list[Path]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, _, number = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(number) == session and state != "Z":
                found.append(folder)
    return found


def _command(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "a process that has ended by now"

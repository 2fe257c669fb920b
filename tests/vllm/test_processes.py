"""vLLM's processes: none is left behind, and a program without a main guard is told so instead of spawning for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from realtime_server.engines.vllm_host import GUARD

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0
UNGUARDED = """
import asyncio, sys
from realtime_server.engines.vllm_engine import load
from realtime_server.engines.nano_options import NanoOptions

async def main():
    engine = load(NanoOptions(model=sys.argv[1], device="cpu", max_model_len=512))
    try:
        await engine.warmup()
    finally:
        await engine.aclose()

asyncio.run(main())
"""


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {
        "REALTIME_SERVER_CACHE": str(cache),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }


def members(group: int) -> list[str]:
    """Command lines of the living processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, process_group = (path / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state != "Z":
                found.append((path / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:
            continue
    return found


def wait_gone(group: int) -> None:
    end_s = time.monotonic() + 30
    while members(group) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert members(group) == []


@pytest.fixture
def program(checkpoint_folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, ready; killed with all its processes at the end."""
    command = [sys.executable, "-m", "tests.vllm.program", str(checkpoint_folder)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        try:
            assert any(line == "ready\n" for line in process.stdout), "the program ended before it was ready"
            assert any("EngineCore" in line for line in members(process.pid))
            yield process
        finally:
            if members(process.pid):
                os.killpg(process.pid, signal.SIGKILL)


def test_sigterm_ends_every_process(program: subprocess.Popen[str]) -> None:
    assert program.stdout
    program.send_signal(signal.SIGTERM)
    assert any(line == "closed\n" for line in program.stdout)
    assert program.wait(60) == 0
    wait_gone(program.pid)


def test_a_killed_program_leaves_no_engine(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.wait(60)
    wait_gone(program.pid)


def test_without_a_main_guard_it_ends_with_one_clear_sentence(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, str(script), str(checkpoint_folder)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            if members(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0
    assert GUARD in output
    wait_gone(process.pid)

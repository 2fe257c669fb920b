"""Children end with a parent that is killed, and not because it has finished watching."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="vLLM runs on Linux only")

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import subprocess, sys, time
from realtime_server.engines.orphans import OrphanWatch

child = subprocess.Popen(["sleep", "60"])
watch = OrphanWatch([child.pid])
if sys.argv[1] == "close":
    watch.close()
    assert child.poll() is None
    child.kill()
    child.wait()
    print("closed", flush=True)
else:
    print(child.pid, flush=True)
    time.sleep(60)
"""


def parent(argument: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, argument], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_child_ends_with_a_killed_parent() -> None:
    with parent("wait") as process:
        assert process.stdout
        number = process.stdout.readline().strip()
        assert is_alive(number)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    end_s = time.monotonic() + 30
    while is_alive(number) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not is_alive(number)


def test_closing_spares_the_child() -> None:
    with parent("close") as process:
        output, _ = process.communicate(timeout=30)
    assert output == "closed\n"
    assert process.returncode == 0


def is_alive(number: str) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return (Path("/proc") / number / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

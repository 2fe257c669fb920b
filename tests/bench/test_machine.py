"""Readings from /proc, against what Python knows by itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from realtime_server.bench import machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_cpu_time_is_that_of_the_process() -> None:
    assert machine.cpu_s(os.getpid()) == pytest.approx(time.process_time(), abs=0.1)


def test_memory_and_cores_are_plausible() -> None:
    assert 10 < machine.rss_mb(os.getpid()) < 10_000
    assert machine.describe().endswith(f"{machine.cores()} cores")


def test_the_peak_is_never_below_what_is_occupied_now() -> None:
    program = "import os; b'x' * 200_000_000; print(os.getpid(), flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        assert int(child.stdout.readline()) == child.pid  # what was taken is freed again
        assert machine.peak_mb(child.pid) > 200 > machine.rss_mb(child.pid)
        child.stdin.write(b"\n")


def test_descendants_are_children_and_theirs() -> None:
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == b"1\n"  # the grandchild runs
        found = machine.descendants(os.getpid())
        assert child.pid in found
        assert set(machine.descendants(child.pid)) < set(found)
        assert len(machine.descendants(child.pid)) == 1
        child.stdin.write(b"\n")


def test_the_listener_on_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert machine.listener(port) == os.getpid()
    assert machine.listener(port) is None


def test_usage_of_all_is_that_of_the_process_and_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.stdin
        both, alone = machine.Usage.of_all(os.getpid()), machine.Usage.of(os.getpid())
        assert both.rss_mb > alone.rss_mb
        child.stdin.write(b"\n")


def test_usage_between_two_moments_is_a_share_of_a_core() -> None:
    earlier, later = machine.Usage(10.0, 3.0, 50.0), machine.Usage(14.0, 4.0, 60.0)
    assert later.cores_since(earlier) == 0.25


def test_conditions_are_never_negative() -> None:
    watch = machine.Watch()
    time.sleep(0.02)
    assert all(value >= 0 for value in watch.conditions().values())

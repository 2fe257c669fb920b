"""As many file descriptors as may be had, and a word when they run out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from realtime_server import descriptors
from tests.realtime.harness import eventually

resource = pytest.importorskip("resource", reason="there is no such limit here")

# A process of its own, for a limit that was lowered for good stays.
RAISE = """
import resource
from realtime_server import descriptors
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
most = min(most, 4096)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
descriptors.raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


def test_the_limit_is_raised() -> None:
    ran = subprocess.run([sys.executable, "-c", RAISE], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


@contextmanager
def none_left() -> Iterator[None]:
    """Take all descriptors that there are."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 512), before[1]))
        while descriptors.are_left():
            taken.append(os.dup(2))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("no file descriptors are left" in record.getMessage() for record in caplog.records)


async def test_it_is_said_once_that_none_are_left(caplog: pytest.LogCaptureFixture) -> None:
    with none_left():
        watching = asyncio.create_task(descriptors.watch(look_s=0.001))
        await eventually(lambda: warnings(caplog))
        await asyncio.sleep(0.03)
        watching.cancel()
    assert warnings(caplog) == 1


async def test_it_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    with none_left():
        watching = asyncio.create_task(descriptors.watch(look_s=0.001, say_s=0.005))
        await eventually(lambda: warnings(caplog) > 2)
        watching.cancel()


async def test_nothing_is_said_while_some_are_left(caplog: pytest.LogCaptureFixture) -> None:
    watching = asyncio.create_task(descriptors.watch(look_s=0.001))
    await asyncio.sleep(0.03)
    assert not watching.done()
    watching.cancel()
    assert not caplog.records

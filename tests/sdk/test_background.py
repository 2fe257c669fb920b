"""Coroutines run on a loop of their own for callers of every kind, and end with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress

import pytest

from realtime_server.sdk.background import BackgroundLoop


async def nothing() -> None:
    pass


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    background = BackgroundLoop()
    yield background
    background.end(nothing)
    background.join()


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_it_runs_elsewhere(loop: BackgroundLoop) -> None:
    assert loop.run(thread_name()) == "realtime-server"


async def test_it_runs_for_a_running_loop_too(loop: BackgroundLoop) -> None:
    assert loop.run(thread_name()) == "realtime-server"
    assert await loop.arun(thread_name()) == "realtime-server"


async def fail() -> None:
    raise KeyError("why")


def test_errors_come_back(loop: BackgroundLoop) -> None:
    with pytest.raises(KeyError, match="why"):
        loop.run(fail())


async def test_cancelling_reaches_the_work(loop: BackgroundLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(loop.arun(work()))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 20)


def test_a_call_that_would_wait_for_itself_is_refused(loop: BackgroundLoop) -> None:
    async def call() -> None:
        loop.run(thread_name())

    with pytest.raises(RuntimeError, match="await its async form"):
        loop.run(call())


def test_the_end_runs_what_is_last_and_cancels_the_rest() -> None:
    background, told = BackgroundLoop(), []

    async def wait() -> None:
        await asyncio.Event().wait()

    async def last() -> None:
        told.append(threading.current_thread().name)

    waiting = background.post(wait())
    background.end(last)
    background.end(last)
    background.join()
    assert told == ["realtime-server"]
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(RuntimeError, match="closed"):
        background.run(thread_name())


def test_what_is_posted_while_it_ends_ends_too() -> None:
    for _ in range(20):
        background, posted, begun = BackgroundLoop(), [], threading.Event()

        def post(background=background, posted=posted, begun=begun) -> None:  # type: ignore[no-untyped-def]
            with suppress(RuntimeError):
                while True:
                    posted.append(background.post(asyncio.sleep(60)))
                    begun.set()

        thread = threading.Thread(target=post)
        thread.start()
        begun.wait(20)
        background.end(nothing)
        thread.join()
        background.join()
        assert posted
        assert all(future.done() for future in posted)


def test_it_ends_from_within() -> None:
    background = BackgroundLoop()

    async def call() -> None:
        background.end(nothing)
        background.join()

    background.run(call())
    background.join()
    with pytest.raises(RuntimeError):
        background.run(nothing())

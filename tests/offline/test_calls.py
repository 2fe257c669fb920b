"""Calls that answer, fail, hang, are dropped, or are told to stop."""

from __future__ import annotations

import asyncio
import time
from typing import Never

import pytest

from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import ConfigurationError, EngineError, EngineTimeoutError
from realtime_server.offline import calls
from realtime_server.offline.calls import Countdown, Deadlines, answer

QUICK = Deadlines(base_s=0.04, factor=0.0, patience_s=0.2, tick_s=0.01)


async def say(text: str, after_s: float = 0.0) -> str:
    await asyncio.sleep(after_s)
    return text


async def fail(error: BaseException) -> Never:
    await asyncio.sleep(0)
    raise error


async def test_an_answer_is_passed_on_and_so_is_an_engine_error() -> None:
    assert await answer(say("yes"), 1.0, QUICK) == "yes"
    error = EngineError("out of memory")
    with pytest.raises(EngineError) as caught:
        await answer(fail(error), 1.0, QUICK)
    assert caught.value is error


async def test_what_no_engine_declares_becomes_an_engine_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(EngineError, match=r"internal error \(KeyError\)"):
        await answer(fail(KeyError("x")), 1.0, QUICK)
    assert "in a way that its engine does not declare" in caplog.text
    with pytest.raises(EngineError, match="dropped the job"):
        await answer(fail(asyncio.CancelledError()), 1.0, QUICK)


async def test_who_asks_is_told_how_a_call_ended() -> None:
    told: list[EngineError | None] = []
    error = EngineError("out of memory")
    await answer(say("yes"), 1.0, QUICK, tell=told.append)
    for call in (fail(error), fail(KeyError("x")), say("never", 100)):
        with pytest.raises(EngineError):
            await answer(call, 0.04, QUICK, tell=told.append)
    assert told[:2] == [None, error]
    assert [type(each) for each in told[2:]] == [EngineError, EngineTimeoutError]


async def test_a_call_that_hangs_meets_its_deadline() -> None:
    began_s = time.monotonic()
    with pytest.raises(EngineTimeoutError, match=r"within 0\.1 s"):
        await answer(say("never", 100), 0.05, QUICK)
    assert 0.04 < time.monotonic() - began_s < 5
    assert len(asyncio.all_tasks()) == 1


async def test_the_deadline_stands_still_while_others_come_first() -> None:
    assert await answer(say("late", 0.1), 0.04, QUICK, busy=lambda: True) == "late"
    until_s = time.monotonic() + 0.1
    with pytest.raises(EngineTimeoutError):
        await answer(say("never", 100), 0.04, QUICK, busy=lambda: time.monotonic() < until_s)
    assert time.monotonic() > until_s + 0.02


async def test_a_countdown_that_is_restarted_counts_from_then() -> None:
    countdown = Countdown(0.06)
    loop = asyncio.get_running_loop()
    for at_s in (0.04, 0.08, 0.12):
        loop.call_later(at_s, countdown.restart)
    assert await answer(say("late", 0.15), countdown, QUICK) == "late"


async def test_patience_has_an_end() -> None:
    began_s = time.monotonic()
    with pytest.raises(EngineTimeoutError):
        await answer(say("never", 100), 0.04, QUICK, busy=lambda: True)
    assert time.monotonic() - began_s > 0.15


async def test_a_silent_death_is_noticed_before_the_deadline() -> None:
    with pytest.raises(EngineError, match="has died"):
        await answer(say("never", 100), 1000.0, QUICK, alive=lambda: False)


async def test_cancelling_stops_the_call() -> None:
    stopped = asyncio.Event()

    async def call() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            stopped.set()

    task = asyncio.create_task(answer(call(), 100.0, QUICK))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


async def test_a_call_that_does_not_stop_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CLOSING_S", 0.01)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(EngineTimeoutError):
        await answer(stubborn(), 0.01, QUICK)
    release.set()
    await asyncio.sleep(0)


async def test_a_call_that_fails_while_it_is_stopped_is_not_complained_about() -> None:
    async def call() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise RuntimeError("cannot stop")

    with pytest.raises(EngineTimeoutError):
        await answer(call(), 0.01, QUICK)


def test_deadlines_are_those_of_a_live_session() -> None:
    from realtime_server.realtime.session import Clocks

    live, files = Clocks(), Deadlines()
    assert (files.base_s, files.factor) == (live.deadline_s, live.deadline_factor)
    assert files.for_samples(30 * SAMPLE_RATE) == 70.0
    with pytest.raises(ConfigurationError, match="tick_s"):
        Deadlines(tick_s=0.0)

"""The event log and its readers; the hub's count and its drain."""

from __future__ import annotations

import asyncio

import pytest

from realtime_server.core.messages import Event, Stopped
from realtime_server.engines.fake import FakeEngine, FakeScorer
from realtime_server.realtime.event_log import EventLog, ReaderTooSlowError
from realtime_server.realtime.hub import Hub
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, tone
from tests.realtime.harness import PATIENCE_S


def events(*numbers: int) -> list[Event]:
    return [Stopped(upto=number) for number in numbers]


def session() -> RealtimeASRSession:
    return RealtimeASRSession(FakeEngine(), FakeScorer())


async def test_a_reader_gets_every_event_once_and_in_order() -> None:
    log = EventLog()
    reader = log.add_reader()
    log.append(events(1, 2))
    assert await reader.take() == events(1, 2)
    waiting = asyncio.create_task(reader.take())
    await asyncio.sleep(0)
    log.append([])
    await asyncio.sleep(0)
    assert not waiting.done()
    log.append(events(3))
    assert await waiting == events(3)
    log.append(events(4))
    log.close()
    assert await reader.take() == events(4)
    assert await reader.take() == []
    assert log.next_seq == 4


async def test_readers_do_not_wait_for_each_other() -> None:
    log = EventLog()
    fast, slow = log.add_reader(), log.add_reader()
    log.append(events(1))
    assert await fast.take() == events(1)
    log.append(events(2))
    assert await fast.take() == events(2)
    assert await slow.take() == events(1, 2)


async def test_a_reader_may_take_a_few_at_a_time() -> None:
    log = EventLog()
    reader = log.add_reader()
    log.append(events(1, 2, 3))
    assert await reader.take(2) == events(1, 2)
    assert reader.behind == 1
    assert await reader.take(2) == events(3)


async def test_a_late_reader_starts_at_the_oldest_event_kept() -> None:
    log = EventLog(keep=2)
    log.append(events(1, 2, 3))
    assert await log.add_reader().take() == events(2, 3)


async def test_a_reader_that_lost_events_is_told() -> None:
    log = EventLog(keep=2)
    reader = log.add_reader()
    log.append(events(1, 2, 3))
    with pytest.raises(ReaderTooSlowError, match="1 events were dropped unread"):
        await reader.take()


@pytest.mark.parametrize("how", ["read", "close the reader", "close the log"])
async def test_waiting_for_a_reader_ends_when_it_has_read_or_will_not(how: str) -> None:
    log = EventLog()
    reader = log.add_reader()
    log.append(events(1, 2))
    waiting = asyncio.create_task(reader.wait_behind(1))
    await asyncio.sleep(0)
    log.append(events(3))
    await asyncio.sleep(0)
    assert not waiting.done()
    if how == "read":
        await reader.take()
    elif how == "close the reader":
        reader.close()
    else:
        log.close()
    await asyncio.wait_for(waiting, PATIENCE_S)
    await reader.wait_behind(0 if how == "read" else 1)


async def test_the_hub_counts_sessions_while_they_live() -> None:
    hub = Hub(max_sessions=2)
    async with session() as first, session() as second:
        with hub.holding(first):
            with hub.holding(second):
                assert set(hub.sessions.values()) == {first, second}
            assert list(hub.sessions.values()) == [first]
    assert not hub.sessions


async def test_draining_an_empty_hub_is_immediate() -> None:
    hub = Hub(max_sessions=2)
    await hub.drain(PATIENCE_S, PATIENCE_S)
    assert hub.draining


async def run(hub: Hub, live: RealtimeASRSession, *, leaves: bool = True) -> None:
    """A session that speaks and lives until it has ended; or goes on holding its place."""
    async with live:
        with hub.holding(live):
            live.feed("START")
            live.feed(pcm16(tone(1.0)))
            await live.wait_ended()
            if not leaves:
                await asyncio.Event().wait()


async def test_draining_ends_those_that_run_and_those_that_still_come() -> None:
    hub = Hub(max_sessions=2)
    early, late = session(), session()
    running = [asyncio.create_task(run(hub, early))]
    await asyncio.sleep(0)
    draining = asyncio.create_task(hub.drain(PATIENCE_S, PATIENCE_S))
    await asyncio.sleep(0)
    running.append(asyncio.create_task(run(hub, late)))
    await asyncio.gather(draining, *running)
    assert "sentences 1" in early.summary
    assert "sessions 0" in late.summary


async def test_draining_gives_up_on_what_never_ends_and_then_on_who_never_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = Hub(max_sessions=2)
    hanging = RealtimeASRSession(FakeEngine(decode_s=60.0), FakeScorer())
    running = asyncio.create_task(run(hub, hanging, leaves=False))
    await asyncio.sleep(0)
    await asyncio.wait_for(hub.drain(0.02, 0.02), PATIENCE_S)
    assert "failed 1" in hanging.summary
    assert "1 sessions had not finished after 0.02 s" in caplog.text
    assert "1 connections did not close" in caplog.text
    running.cancel()
    await asyncio.wait([running])

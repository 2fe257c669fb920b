"""What a viewer is told, when it comes and while it stays; without sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from realtime_server.core import messages as m
from realtime_server.core.record import Record
from realtime_server.core.segments import Sentence
from realtime_server.realtime.archive import Kept
from realtime_server.realtime.event_log import EventLog, ReaderTooSlowError
from realtime_server.realtime.viewers import AT_ONCE, NEWS_AT_ONCE, Viewing


class Told:
    """A session's record and log, told events."""

    def __init__(self, keep: int = 100) -> None:
        self.kept = Kept("s", None, Record(), EventLog(keep))
        self.count = 0

    def tell(self, *events: m.Event) -> None:
        self.kept.record.receive(events)
        self.kept.log.append(events)

    def lock(self, sentences: int = 1) -> None:
        for _ in range(sentences):
            sentence = Sentence(self.count, self.count, 0, f"n{self.count}", 0, 1)
            self.tell(m.SegmentLocked(upto=0, channel=0, segment=self.count, sentences=(sentence,)))
            self.count += 1


async def take(viewing: Viewing) -> list[dict[str, Any]]:
    async with asyncio.timeout(5):
        return [json.loads(message) for message in await viewing.take()]


def shown(messages: list[dict[str, Any]]) -> list[str]:
    return [message.get("text", message["type"]) for message in messages]


async def test_a_late_viewer_is_told_what_was_said_and_then_what_is() -> None:
    session = Told()
    session.tell(m.Started(upto=0))
    session.lock(2)
    viewing = Viewing(session.kept)
    assert shown(await take(viewing)) == ["started", "n0", "n1"]
    session.lock()
    assert shown(await take(viewing)) == ["n2"]


async def test_a_viewer_may_want_little_of_what_was_said() -> None:
    session = Told()
    session.tell(m.Started(upto=0))
    session.lock(5)
    assert shown(await take(Viewing(session.kept, 1))) == ["started", "n4"]


async def test_a_viewer_may_come_before_the_start() -> None:
    session = Told()
    viewing = Viewing(session.kept)
    assert await take(viewing) == []
    session.tell(m.Started(upto=0))
    assert shown(await take(viewing)) == ["started"]


async def test_one_that_falls_behind_is_told_so() -> None:
    session = Told(keep=4)
    session.tell(m.Started(upto=0))
    viewing = Viewing(session.kept)
    await take(viewing)
    session.lock(10)
    with pytest.raises(ReaderTooSlowError):
        await take(viewing)


async def test_the_past_is_told_a_little_at_a_time_as_it_was_when_the_viewer_came() -> None:
    session = Told()
    session.tell(m.Started(upto=0))
    session.lock(2 * AT_ONCE)
    viewing = Viewing(session.kept)
    pieces = [await take(viewing)]
    session.lock()
    while viewing.late:
        pieces.append(await take(viewing))
    assert max(map(len, pieces)) == AT_ONCE
    assert [text for piece in pieces for text in shown(piece)] == [
        "started",
        *(f"n{n}" for n in range(2 * AT_ONCE)),
    ]
    assert shown(await take(viewing)) == [f"n{2 * AT_ONCE}"]


async def test_it_is_not_over_before_the_past_is_told() -> None:
    session = Told()
    session.tell(m.Started(upto=0))
    session.lock(AT_ONCE)
    session.kept.log.close()
    viewing = Viewing(session.kept)
    await take(viewing)
    assert not viewing.over
    await take(viewing)
    assert viewing.over


async def test_many_viewers_are_told_the_past_one_piece_in_each_turn_of_the_loop() -> None:
    session = Told()
    session.tell(m.Started(upto=0))
    session.lock(AT_ONCE)
    turn, told = asyncio.Lock(), 0

    async def view() -> None:
        nonlocal told
        await take(Viewing(session.kept, turn=turn))
        told += 1

    async with asyncio.TaskGroup() as viewers:
        for _ in range(20):
            viewers.create_task(view())
        while told < 20:
            before = told
            await asyncio.sleep(0)
            assert told <= before + 1


async def test_many_news_are_told_a_few_at_a_time() -> None:
    session = Told(keep=2 * NEWS_AT_ONCE)
    viewing = Viewing(session.kept)
    await take(viewing)
    session.tell(m.Started(upto=0))
    session.lock(NEWS_AT_ONCE)
    assert viewing.late
    assert len(await take(viewing)) == NEWS_AT_ONCE
    assert not viewing.late
    assert shown(await take(viewing)) == [f"n{NEWS_AT_ONCE - 1}"]


async def test_it_is_over_when_the_session_is_and_all_was_told() -> None:
    session = Told()
    session.tell(m.Started(upto=0))
    viewing = Viewing(session.kept)
    assert not viewing.over
    await take(viewing)
    session.lock()
    session.kept.log.close()
    assert not viewing.over
    assert shown(await take(viewing)) == ["n0"]
    assert viewing.over


async def test_one_that_closes_leaves_nothing_in_the_log() -> None:
    session = Told()
    viewing = Viewing(session.kept)
    viewing.close()
    await take(viewing)
    viewing.close()
    assert not session.kept.log._readers

"""Transcripts are found by id and by name, for as long as they are kept, and what is kept is bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from realtime_server.core import messages as m
from realtime_server.core.record import Record
from realtime_server.core.segments import Sentence
from realtime_server.realtime.archive import MOST_CHARACTERS, MOST_ENDED, MOST_SENTENCES, Archive, Kept
from realtime_server.realtime.event_log import EventLog
from realtime_server.realtime.hub import Hub
from tests.realtime.harness import eventually


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def kept(id: str, name: str | None = None, sentences: int = 1, text: str = "a") -> Kept:
    record = Record()
    said = tuple(Sentence(n, 0, 0, text, 0, 1) for n in range(sentences))
    record.receive([m.Started(upto=0), m.SegmentLocked(upto=0, channel=0, segment=0, sentences=said)])
    return Kept(id, name, record, EventLog())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def archive(clock: Clock) -> Archive:
    return Archive(60.0, clock)


def ids(archive: Archive, *names: str) -> list[str | None]:
    return [found.id if (found := archive.find(name)) else None for name in names]


def test_a_session_is_found_by_its_id_and_its_name(archive: Archive) -> None:
    archive.add(kept("1", "studio"))
    archive.add(kept("2"))
    assert ids(archive, "1", "studio", "2", "3") == ["1", "1", "2", None]


def test_the_newest_has_the_name_and_keeps_it_when_the_older_one_goes(archive: Archive, clock: Clock) -> None:
    archive.add(kept("1", "studio"))
    archive.add(kept("2", "studio"))
    archive.end("1")
    assert ids(archive, "studio", "1") == ["2", "1"]
    archive.end("2")
    clock.now_s = 59.0
    assert ids(archive, "studio", "1", "2") == ["2", "1", "2"]
    clock.now_s = 60.0
    assert ids(archive, "studio", "1", "2") == [None, None, None]
    assert len(archive) == 0


def test_a_running_session_is_found_however_long_it_runs(archive: Archive, clock: Clock) -> None:
    archive.add(kept("1"))
    clock.now_s = 1e6
    assert ids(archive, "1") == ["1"]


def test_nothing_is_kept_of_a_session_that_said_nothing(archive: Archive) -> None:
    archive.add(kept("1", "a", sentences=0))
    archive.end("1")
    assert ids(archive, "1", "a") == [None, None]


def test_nothing_is_kept_where_it_is_not_to_be(clock: Clock) -> None:
    archive = Archive(0.0, clock)
    archive.add(kept("1"))
    archive.end("1")
    assert len(archive) == 0


def test_the_oldest_give_way_to_too_many(archive: Archive) -> None:
    for number in range(MOST_ENDED + 5):
        archive.add(kept(str(number)))
        archive.end(str(number))
    assert len(archive) == MOST_ENDED
    assert ids(archive, "4", "5") == [None, "5"]


def test_the_oldest_give_way_to_too_long_ones(archive: Archive) -> None:
    for number in range(3):
        archive.add(kept(str(number), sentences=MOST_SENTENCES // 2))
        archive.end(str(number))
    assert ids(archive, "0", "1", "2") == [None, "1", "2"]


def test_the_oldest_give_way_to_long_texts(archive: Archive) -> None:
    text = "x" * (MOST_CHARACTERS // 20)  # the same one, many times: it takes the memory of one
    for number in range(4):
        archive.add(kept(str(number), sentences=10, text=text))
        archive.end(str(number))
    assert ids(archive, "0", "1", "2", "3") == [None, None, "2", "3"]


def test_a_name_goes_back_to_the_session_that_still_has_it(archive: Archive) -> None:
    archive.add(kept("1", "studio"))
    archive.add(kept("2", "studio", sentences=0))
    assert ids(archive, "studio") == ["2"]
    archive.end("2")
    assert ids(archive, "studio", "2") == ["1", None]


def test_one_that_runs_has_the_name_before_one_that_has_ended(archive: Archive) -> None:
    archive.add(kept("1", "studio"))
    archive.add(kept("2", "studio"))
    archive.end("2")
    assert ids(archive, "studio", "2") == ["1", "2"]
    archive.end("1")
    assert ids(archive, "studio") == ["2"]


def test_nobody_takes_the_id_of_another_as_his_name(archive: Archive) -> None:
    archive.add(kept("1"))
    archive.add(kept("2", "1"))
    assert ids(archive, "1", "2") == ["1", "2"]
    archive.end("1")
    assert ids(archive, "1") == ["1"]


def test_what_is_old_is_forgotten_though_nobody_asks(clock: Clock) -> None:
    calls: list[tuple[float, Callable[[], None]]] = []
    archive = Archive(60.0, clock, lambda wait_s, do: calls.append((wait_s, do)))
    for number, now_s in enumerate((0.0, 10.0)):
        clock.now_s = now_s
        archive.add(kept(str(number), "studio"))
        archive.end(str(number))
    for now_s, left in ((60.0, 1), (70.0, 0)):
        ((wait_s, look),) = calls
        calls.clear()
        clock.now_s = now_s
        look()
        assert wait_s in (60.0, 10.0)
        assert len(archive) == left
    assert not calls
    assert not archive._named


async def test_the_hub_forgets_by_itself() -> None:
    hub = Hub(1, keep_transcripts_s=0.01)
    hub.archive.add(kept("1"))
    hub.archive.end("1")
    assert len(hub.archive) == 1
    await eventually(lambda: not len(hub.archive), "what is old is not forgotten")

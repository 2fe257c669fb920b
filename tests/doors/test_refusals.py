"""The lines of a log in which refusals are told: few of them, whoever knocks."""

from __future__ import annotations

from realtime_server.doors import refusals
from realtime_server.doors.refusals import RefusalLog
from tests.doors.test_rates import Clock


def test_a_sender_is_told_of_once_a_minute_for_each_reason() -> None:
    clock = Clock()
    log = RefusalLog(clock)
    assert log.note("a", "rate", "too many") == "refused a: too many"
    assert [log.note("a", "rate", "too many") for _ in range(5)] == [None] * 5
    assert log.note("a", "origin", "no") == "refused a: no"
    assert log.note("b", "rate", "too many") == "refused b: too many"
    clock.now_s += 59.9
    assert log.note("a", "rate", "too many") is None
    clock.now_s += 0.2
    assert log.note("a", "rate", "too many") == "refused a: too many; 6 times more since this was told last"
    clock.now_s += 61
    assert log.note("a", "rate", "too many") == "refused a: too many"


def test_a_flood_from_many_senders_is_a_few_lines_and_a_number() -> None:
    clock = Clock()
    log = RefusalLog(clock)
    told = [log.note(str(n), "no_token", "no") for n in range(5000)]
    assert sum(line is not None for line in told) == refusals.LINES
    clock.now_s += 60
    assert log.note("0", "no_token", "no") == "refused 0: no; and 4940 refusals that were not told"
    assert log.note("1", "no_token", "no") == "refused 1: no"


def test_what_it_remembers_is_bounded() -> None:
    clock = Clock()
    log = RefusalLog(clock)
    for n in range(5 * refusals.KEPT):
        clock.now_s += 2
        assert log.note(str(n), "no_token", "no")
    assert len(log) == refusals.KEPT

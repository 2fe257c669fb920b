"""What is held back for a final, and when progress is told."""

from __future__ import annotations

import pytest

from realtime_server.core import messages as m
from realtime_server.core.counts import SessionCounts
from realtime_server.core.outbox import PROGRESS, Outbox


def box(protocol: int) -> Outbox:
    outbox = Outbox(SessionCounts())
    outbox.begin(protocol)
    return outbox


def partial(end: int) -> m.PartialChanged:
    return m.PartialChanged(upto=end, channel=0, segment=0, start=0, end=end, text="a")


LOCKED = m.SegmentLocked(upto=5, channel=0, segment=0, sentences=())
FAILED = m.Failed(upto=5, code="c", message="w")
FINAL = m.Finished(upto=9)


def test_in_protocol_1_the_final_comes_before_what_failed_meanwhile() -> None:
    outbox = box(1)
    for event in (FAILED, LOCKED, partial(7)):
        outbox.tell(event, ending=True)
    assert outbox.take() == []
    outbox.tell_final(FINAL)
    assert outbox.take() == [LOCKED, FINAL, FAILED]
    outbox.tell_final(FINAL)
    assert outbox.take() == [FINAL]


def test_in_protocol_2_everything_is_told_as_it_happens() -> None:
    outbox = box(2)
    outbox.tell(LOCKED, ending=True)
    outbox.tell(FAILED, ending=True)
    assert outbox.take() == [LOCKED, FAILED]


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_partial_is_of_no_use_at_the_end(protocol: int) -> None:
    outbox = box(protocol)
    outbox.tell(partial(3), ending=True)
    outbox.tell_final(FINAL)
    assert outbox.take() == [FINAL]


def test_in_protocol_1_progress_is_that_of_the_text_and_any_result_tells_it() -> None:
    outbox = box(1)
    outbox.tell(partial(100))
    outbox.take()
    outbox.tell_progress(99 + PROGRESS, 10 * PROGRESS)
    assert outbox.take() == []
    outbox.tell_progress(100 + PROGRESS, 10 * PROGRESS)
    assert outbox.take() == [m.Progress(upto=100 + PROGRESS, received=10 * PROGRESS)]
    outbox.tell_progress(100 + PROGRESS, 20 * PROGRESS)
    assert outbox.take() == []


def test_in_protocol_2_progress_is_that_of_the_audio() -> None:
    outbox = box(2)
    outbox.tell(partial(100))
    outbox.take()
    outbox.tell_progress(0, PROGRESS)
    outbox.tell_progress(0, 2 * PROGRESS - 1)
    assert outbox.take() == [m.Progress(upto=0, received=PROGRESS)]


def test_a_session_begins_with_nothing_told() -> None:
    outbox = box(2)
    outbox.tell_progress(0, 5 * PROGRESS)
    outbox.begin(1)
    outbox.take()
    outbox.tell_progress(PROGRESS, PROGRESS)
    assert len(outbox.take()) == 1


def test_errors_and_partials_are_counted_when_they_go_out() -> None:
    counts = SessionCounts()
    outbox = Outbox(counts)
    outbox.tell(FAILED, ending=True)
    assert counts.errors == 0
    outbox.tell_final(FINAL)
    outbox.tell(partial(1))
    assert (counts.errors, counts.shown) == (1, 1)

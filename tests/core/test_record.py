"""A record has what a reader that was there from the beginning knows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core import messages as m
from realtime_server.core.record import Record
from realtime_server.core.segments import Sentence, SpeakerChange
from realtime_server.core.setup import AudioFormat, Setup
from realtime_server.core.wire_v2 import WireV2
from tests.audio import silence, tone
from tests.core.driver import Driver

SETUP = Setup(protocol=2)


def locked(*ids: int, upto: int = 0) -> m.SegmentLocked:
    sentences = tuple(Sentence(id, id, 0, f"n{id}", id, id + 1) for id in ids)
    return m.SegmentLocked(upto=upto, channel=0, segment=ids[0] if ids else 99, sentences=sentences)


def kept(*events: m.Event) -> Record:
    record = Record()
    record.receive(events)
    return record


def opened(segment: int) -> m.SegmentOpened:
    return m.SegmentOpened(upto=0, channel=0, segment=segment, start=5)


def partial(segment: int, text: str) -> m.PartialChanged:
    return m.PartialChanged(upto=0, channel=0, segment=segment, start=5, end=9, text=text, unstable=text)


STARTED = m.Started(upto=0, setup=SETUP)


def test_why_a_session_was_ended_is_known_until_the_next_begins() -> None:
    record = kept(STARTED, m.Failed(upto=0, code="segment_failed", message="not that"))
    assert record.problem is None
    record.receive([m.Finished(upto=0), m.Failed(upto=0, code="limit", message="too long", fatal=True)])
    assert record.problem == "too long"
    record.receive([STARTED])
    assert record.problem is None


def test_before_a_start_there_is_nothing() -> None:
    record = kept(m.Failed(upto=0, code="c", message="w"), m.LanguageSet(upto=0, name="en"))
    assert list(record.catch_up()) == []
    assert not record.started
    assert record.language is None
    assert record.channels == 1


def test_what_is_being_said_is_told_after_what_was() -> None:
    record = kept(STARTED, locked(0), opened(1), partial(1, "a"), partial(1, "b"))
    assert list(record.catch_up()) == [STARTED, locked(0), opened(1), partial(1, "b")]
    assert record.sentences == locked(0).sentences


def test_a_locked_segment_is_not_being_said_any_more() -> None:
    record = kept(STARTED, opened(1), partial(1, "a"), locked(1), partial(1, "late"), opened(2), locked())
    assert list(record.catch_up()) == [STARTED, locked(1), opened(2)]


def test_speakers_are_those_of_now() -> None:
    changes = (SpeakerChange(0, None, 3), SpeakerChange(7, None, 1))
    record = kept(STARTED, locked(0, 1), m.SpeakersRevised(upto=0, changes=changes))
    assert [sentence.speaker for sentence in record.sentences] == [3, None]
    assert len(list(record.catch_up())) == 3


def test_channels_are_those_of_the_start() -> None:
    two = Setup(protocol=2, audio=AudioFormat("mulaw", 8000, 2))
    assert kept(m.Started(upto=0, setup=two)).channels == 2


def test_settings_are_those_of_now() -> None:
    record = kept(STARTED, m.LanguageSet(upto=0, name="zh", setup=Setup(language="zh")))
    assert record.language == "zh"
    assert list(record.catch_up()) == [m.Started(upto=0, setup=Setup(language="zh"))]


def test_a_reader_may_want_the_latest_sentences_only() -> None:
    record = kept(STARTED, locked(0), locked(1, 2, upto=7))
    told = [event.sentences[0].id for event in record.catch_up(2) if isinstance(event, m.SegmentLocked)]
    assert told == [1, 2]
    assert list(record.catch_up(0)) == [STARTED]
    assert record.upto == 7


def test_the_end_is_told_too() -> None:
    finished, stopped = m.Finished(upto=9), m.Stopped(upto=9)
    record = kept(STARTED, opened(0), finished, stopped)
    assert list(record.catch_up()) == [STARTED, finished, stopped]
    assert record.stopped


def test_a_new_session_forgets_the_one_before() -> None:
    record = kept(STARTED, locked(0), m.Stopped(upto=9), STARTED)
    assert list(record.catch_up()) == [STARTED]
    assert not record.stopped


def final_of(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return next({**x, "seq": 0} for x in messages if x["type"] == "final")


@settings(max_examples=25, deadline=None)
@given(at=st.integers(0, 40))
def test_a_late_reader_ends_with_the_same_transcript(at: int) -> None:
    driver = Driver()
    driver.say('START {"protocol": 2}')
    for _ in range(3):
        driver.hear(np.concatenate([tone(1.0), silence(2.5)]))
    driver.say("STOP")
    at = min(at, len(driver.events))
    wire = WireV2("s")
    late = [*kept(*driver.events[:at]).catch_up(), *driver.events[at:]]
    assert final_of([json.loads(x) for x in wire.encode(late)]) == final_of([{**x} for x in driver.messages])


@pytest.mark.parametrize("count", [None, 3])
def test_catching_up_does_not_change_the_record(count: int | None) -> None:
    record = kept(STARTED, locked(0), opened(1))
    assert list(record.catch_up(count)) == list(record.catch_up(count))


def test_what_is_received_while_a_reader_catches_up_is_not_in_it() -> None:
    record = kept(STARTED, locked(0), locked(1), opened(2))
    reading = record.catch_up()
    assert next(reading) == STARTED
    change = SpeakerChange(1, None, 3)
    record.receive([locked(2, upto=7), m.SpeakersRevised(upto=7, changes=(change,)), m.Stopped(upto=9)])
    assert list(reading) == [locked(0), locked(1), opened(2)]

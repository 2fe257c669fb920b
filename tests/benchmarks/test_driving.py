"""The stand-ins that the core is measured with."""

from __future__ import annotations

from itertools import chain

import numpy as np

from benchmarks.driving import CoreDriver, Place, say
from realtime_server.bench.speech import Recording
from realtime_server.core import messages as m
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, ScoreJob
from realtime_server.core.segments import FRAME, HOP, SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from tests.audio import speech_pattern


def decode_job(start: int, end: int) -> DecodeJob:
    audio = np.zeros(end - start, np.float32)
    return DecodeJob(0, "s", 1, 0, "partial", Priority.REFRESH, 0, start, end, audio, "", DecodingOptions())


def test_texts_grow_with_the_audio() -> None:
    short, long = (say(decode_job(SAMPLE_RATE, end * SAMPLE_RATE)).text for end in (2, 5))
    assert long.startswith(short)
    assert len(long.split()) == 10


def test_scores_are_those_of_the_place_and_go_round() -> None:
    known, place = np.arange(10, dtype=np.float32), Place()
    answers = [
        place.advance(ScoreJob(0, "s", 1, 0, np.zeros(FRAME, np.float32), False, False), known)
        for _ in range(4)
    ]
    assert [len(answer) for answer in answers] == [2, 6, 6, 6]
    assert np.concatenate(answers).tolist() == [n % 10 for n in range(4 * FRAME // HOP - 4)]


def test_a_driven_core_locks_what_it_hears_again_and_again() -> None:
    recording = Recording(speech_pattern([(1.0, 1.0)]), ((0, 1000),))
    scores = np.repeat([1.0, 0.0], 100).astype(np.float32)
    settings = SessionSettings(endpointing=EndpointingOptions.parse("fixed:600"))
    events = list(chain(*CoreDriver(recording, scores, settings).hear(100)))
    locked = [event for event in events if isinstance(event, m.SegmentLocked)]
    assert len(locked) == 5
    assert any(isinstance(event, m.PartialChanged) for event in events)

"""How it is counted in which language sentences begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.hearing import KnownWords
from benchmarks.languages import BEGINNING, PAUSE_MS, Beginnings, Found, Noting, find, joined, report_of
from realtime_server.core import messages as m
from realtime_server.core.jobs import Decoded, DecodeJob
from realtime_server.core.segments import Sentence
from tests.models.whisper import job


def partial(text: str, segment: int, start: int) -> m.PartialChanged:
    return m.PartialChanged(
        upto=0, channel=0, segment=segment, start=start, end=start, text=text, stable="", unstable=text
    )


def locked(segment: int, start_ms: int, language: str | None) -> m.SegmentLocked:
    sentence = Sentence(segment, segment, 0, "text", start_ms, start_ms + 900, language=language)
    return m.SegmentLocked(upto=0, channel=0, segment=segment, sentences=(sentence,))


def told() -> Beginnings:
    """Three sentences: shown first after 600 and 700 ms, and 2 s after its beginning, when it was locked."""
    it = Beginnings()
    for now_ms, event in (
        (500, partial("", 0, 0)),
        (600, partial("One", 0, 0)),
        (1400, partial("One two", 0, 0)),
        (3000, locked(0, 0, "en")),
        (4700, partial("Yer", 1, 64_000)),
        (6000, locked(1, 4000, "zh")),
        (10_000, locked(2, 8000, "fr")),
    ):
        it.now = now_ms * 16
        it.take([event])
    return it


def test_what_is_shown_first_is_counted_by_its_language_and_its_time() -> None:
    first = {0: "en", 1: "tr", 2: "fr"}
    spoken = [(3500, "en"), (7500, "zh"), (11_000, "en")]
    assert find(told(), first, spoken) == Found(3, elsewhere=1, mistaken=1, late_ms=(600, 700, 2000))


def test_recordings_are_joined_with_pauses_and_known_by_their_ends() -> None:
    samples, spoken = joined([(np.ones(16_000, np.float32), "en"), (np.ones(8000, np.float32), "zh")])
    assert spoken == [(1000 + PAUSE_MS, "en"), (1500 + 2 * PAUSE_MS, "zh")]
    assert len(samples) == spoken[-1][0] * 16
    assert np.abs(samples[16_000 : 16 * spoken[0][0]]).max() < 0.01


class Turkish(KnownWords):
    """Hears Turkish in one second of audio and more, English in two."""

    async def transcribe(self, job: DecodeJob, on_text: object = None) -> Decoded:
        seconds = len(job.audio) / 16_000
        return Decoded("word" if seconds >= 1 else "", language="tr" if seconds < 2 else "en")


async def test_the_first_words_of_a_segment_are_noted_and_long_partials_are_not_decoded() -> None:
    engine = Noting(Turkish([]))
    answers = [
        await engine.transcribe(replace(job(np.zeros(samples, np.float32), kind=kind), segment=segment))
        for samples, kind, segment in (
            (8000, "partial", 0),
            (16_000, "partial", 0),
            (BEGINNING, "partial", 0),
            (BEGINNING + 1, "partial", 1),
            (BEGINNING + 1, "final", 1),
        )
    ]
    assert [answer.text for answer in answers] == ["", "word", "word", "", "word"]
    assert engine.first == {0: "tr", 1: "en"}


@pytest.mark.parametrize(("elsewhere", "missed"), [(1, 0), (2, 1)])
def test_sentences_of_one_language_have_a_bound(elsewhere: int, missed: int) -> None:
    found = Found(10, elsewhere, 0, (500,) * 10)
    report = report_of({"English": found, "in turn": replace(found, elsewhere=9)})
    assert len(report.missed) == missed
    assert {figure.case for figure in report.figures} == {"English", "in turn", "one language"}

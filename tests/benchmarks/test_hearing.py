"""Hearing a whole session at once: who was told live and after STOP, and what that is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.conversations import Conversation, Said
from benchmarks.hearing import KnownWords, Models, Told, hear, speech_of
from realtime_server.core import messages as m
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import Sentence, SpeakerChange, Word
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.fake import FakeEmbedder, FakeScorer
from tests.audio import silence

SETTINGS = SessionSettings(endpointing=EndpointingOptions.parse("fixed:600"), speakers=True)


def hum(hz: int, seconds: float) -> Samples:
    times = np.arange(round(seconds * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def conversation() -> Conversation:
    """Two voices, 3 s each, with a second between them and another behind."""
    samples = np.concatenate([hum(200, 3), silence(1), hum(1600, 3), silence(1)])
    said = (Said(0, 3000, "low"), Said(4000, 7000, "high"))
    return Conversation("two", samples, said, tuple((each.start, each.end) for each in said))


async def told_of(talk: Conversation) -> Told:
    models = Models(KnownWords(talk.spells), FakeScorer(), FakeEmbedder())
    return await hear(talk.samples, models, talk.name, SETTINGS)


async def test_a_session_is_heard_with_its_words_and_speakers() -> None:
    told = await told_of(conversation())
    first, second = told.sentences.values()
    assert (first.speaker, second.speaker, told.live) == (0, 1, {0: 0, 1: 1})
    assert [word.start_ms for word in second.words] == list(range(4000, 7000, 300))
    assert told.swaps == 0


def locked(*speakers: int | None) -> m.SegmentLocked:
    words = (Word("w", 100, 900),)
    sentences = tuple(
        Sentence(
            n, 0, 0, "w", 1000 * n, 1000 * n + 1000, tuple(w.shifted(1000 * n) for w in words), speaker=who
        )
        for n, who in enumerate(speakers)
    )
    return m.SegmentLocked(upto=0, channel=0, segment=0, sentences=sentences)


def revised(number: int, before: int | None, after: int | None) -> m.SpeakersRevised:
    return m.SpeakersRevised(upto=0, changes=(SpeakerChange(number, before, after),))


def test_live_speakers_are_those_told_first() -> None:
    told = Told()
    told.take([locked(0, None, 1), revised(1, None, 2), revised(2, 1, 0)])
    told.stopping = True
    told.take([revised(0, 0, 3)])
    assert told.live == {0: 0, 1: 2, 2: 1}
    assert [sentence.speaker for sentence in told.sentences.values()] == [3, 2, 0]
    assert told.swaps == 1
    sentences = told.sentences.values()
    assert speech_of(sentences, told.live, by_words=False)[0] == (0, 1000, 0)
    assert speech_of(sentences, told.live, by_words=True)[1] == (1100, 1900, 2)
    assert len(speech_of(sentences, {0: None, 1: 1, 2: 1}, by_words=True)) == 2


async def test_scores_of_what_is_right_and_wrong() -> None:
    pytest.importorskip("pyannote.metrics", reason="the extra 'dev' is not installed")
    from benchmarks.wrong_speakers import right_turns, score

    talk = conversation()
    told = await told_of(talk)
    right = score(talk, told, by_words=True)
    assert (right.live.confusion, right.live.words, right.live.speakers) == (0, 0, 2)
    assert right.live.error == pytest.approx(0, abs=0.1)
    assert (right.changed, right.swaps, len(right_turns(talk, told))) == (0, 0, 2)
    told.stopping = True
    told.take([revised(1, 1, 0)])
    wrong = score(talk, told, by_words=True)
    assert wrong.live == right.live
    assert (wrong.final.confusion, wrong.final.words) == (pytest.approx(50, abs=1), 50)
    assert (wrong.changed, wrong.final.speakers) == (50, 1)
    assert len(right_turns(talk, told)) == 1
    assert right_turns(talk, told, live=True) == list(talk.said)

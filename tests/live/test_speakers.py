"""Who spoke, told by the whole live service with the real networks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the extra 'speakers' is not installed")
pytest.importorskip("soxr", reason="the extra 'files' is not installed")

from benchmarks import conversations, telephone
from benchmarks.conversations import Conversation
from benchmarks.hearing import KnownWords, Models, hear
from realtime_server.bench import speech
from realtime_server.core.jobs import Samples
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.engines.loading import (
    EngineOptions,
    SpeakerOptions,
    load_embedder,
    load_engine,
    load_scorer,
)
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, silence
from tests.live.sessions import results_of
from tests.models.speaker import weights_folder

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

SETTINGS = SessionSettings(speakers=True)
TURNS = 6


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = load_engine(EngineOptions())
    yield engine
    asyncio.run(engine.aclose())


@pytest.fixture
def scorer() -> Scorer:
    return load_scorer(EngineOptions(), "fsmn")


@pytest.fixture
async def embedder() -> AsyncIterator[Embedder]:
    weights_folder()
    embedder = load_embedder(SpeakerOptions(), "network")
    yield embedder
    await embedder.aclose()


async def results(
    engine: Engine, scorer: Scorer, embedder: Embedder, samples: Samples
) -> list[dict[str, Any]]:
    """Every result of a session that tells speakers apart."""
    session = RealtimeASRSession(engine, scorer, SETTINGS, embedder=embedder)
    return await results_of(session, pcm16(samples))


def speakers_at(sentences: list[dict[str, Any]], start: int, end: int) -> int | None:
    """Whose sentence has most of the time from start to end, ms."""
    shares: dict[int | None, int] = {}
    for sentence in sentences:
        shared = min(end, sentence["end"]) - max(start, sentence["start"])
        shares[sentence.get("spk")] = shares.get(sentence.get("spk"), 0) + max(0, shared)
    return max(shares, key=lambda speaker: shares[speaker])


async def test_two_people_on_a_call_are_told_apart_turn_by_turn(
    engine: Engine, scorer: Scorer, embedder: Embedder, shared_data: Path
) -> None:
    """One segment of speech holds all six turns."""
    audio = shared_data / "multi" / "azure-katiesteve_mono.wav"
    call = conversations.recorded(audio, audio.with_name(f"{audio.stem}.derived.rttm"), "call")
    final = (await results(engine, scorer, embedder, call.samples))[-1]
    told = [speakers_at(final["sentences"], said.start, said.end) for said in call.said]
    assert len(call.said) == TURNS
    assert told == [0, 1] * 3, final["sentences"]
    assert [sentence["spk"] for sentence in final["sentences"]] == [0, 1] * 3
    assert final["sentences"][1]["text"].lower().startswith("good morning, katie")


async def test_a_conversation_is_told_right_live_and_after_stop(
    engine: Engine, scorer: Scorer, embedder: Embedder, shared_data: Path
) -> None:
    pytest.importorskip("pyannote.metrics", reason="the extra 'dev' is not installed")
    from benchmarks.wrong_speakers import score

    voices = conversations.voices(shared_data, conversations.HELD_OUT)
    english = {name: parts for name, parts in voices.items() if name in conversations.ENGLISH}
    talk = conversations.talk(english, 1)
    assert talk.speakers == 3
    told = await hear(talk.samples, Models(engine, scorer, embedder), talk.name, SETTINGS)
    scores = score(talk, told, by_words=True)
    print(f"{talk.ms / 1000:.0f} s of {talk.name}: {scores}")
    assert scores.live.confusion <= 8
    assert scores.final.confusion <= 6
    assert scores.live.words <= 8
    assert scores.final.words <= 6
    assert (scores.final.speakers, scores.swaps) == (3, 0)
    assert scores.changed <= 10


@pytest.mark.parametrize(("name", "seed"), [("katie", 10), ("yyp-a", 0), ("1995", 1)])
async def test_one_speaker_alone_stays_one(
    name: str, seed: int, scorer: Scorer, embedder: Embedder, shared_data: Path
) -> None:
    """His few seconds again and again, louder and softer, clean, in noise and by telephone: odd phrases come often."""
    voices = conversations.voices(shared_data, {**conversations.TUNED, **conversations.HELD_OUT})
    await check_alone(conversations.alone(name, voices[name], 150.0, seed), scorer, embedder)


async def test_the_reader_of_the_fetched_recording_stays_one(scorer: Scorer, embedder: Embedder) -> None:
    alone = conversations.alone(conversations.CITIES, conversations.cities(), 150.0, seed=0)
    await check_alone(alone, scorer, embedder)


async def check_alone(alone: Conversation, scorer: Scorer, embedder: Embedder) -> None:
    """One speaker is told, live and after STOP."""
    told = await hear(alone.samples, Models(KnownWords(alone.spells), scorer, embedder), alone.name, SETTINGS)
    assert len(told.sentences) > 5
    assert set(told.live.values()) == {0}
    assert {sentence.speaker for sentence in told.sentences.values()} == {0}


@pytest.mark.parametrize("line", [np.array, telephone.g711], ids=["clean", "telephone"])
async def test_somebody_who_speaks_once_is_found(
    line: Callable[[Samples], Samples], scorer: Scorer, embedder: Embedder, shared_data: Path
) -> None:
    """For 3 to 6 s, within two minutes of somebody else."""
    pytest.importorskip("pyannote.metrics", reason="the extra 'dev' is not installed")
    from benchmarks.wrong_speakers import right_turns

    voices = conversations.voices(shared_data, conversations.HELD_OUT)
    talk = conversations.with_guest(voices, 120.0, seed=3).through(line)
    told = await hear(talk.samples, Models(KnownWords(talk.spells), scorer, embedder), talk.name, SETTINGS)
    (guest,) = [said for said in talk.said if talk.name.endswith(f", once {said.speaker}")]
    assert guest in right_turns(talk, told, live=True)
    assert guest in right_turns(talk, told)
    assert {sentence.speaker for sentence in told.sentences.values()} == {0, 1}


def check_speakers(messages: list[dict[str, Any]]) -> None:
    """Nobody speaks without words, and who was told before STOP stays who he is."""
    for message in messages:
        assert all(sentence["text"] for sentence in message["sentences"] if "spk" in sentence)
    for before, after in pairwise(messages[:-1]):
        for one, other in zip(before["sentences"], after["sentences"], strict=False):
            assert one.get("spk") in (None, other.get("spk"))


QUIET = (
    "dtmf-0.wav", "dtmf-5.wav", "dtmf-pound.wav", "dtmf-star.wav", "pipecat-ding1.wav",
    "pipecat-office-ambience-24k.mp3", "pyannote-empty.wav", "rtstt-active-beep.wav", "sb-noise2.wav",
    "silence2sec.wav",
)  # fmt: skip
SPEECH_MS = 63_340  # where the only speech of musanmix.mp3 begins; music and noise come before


@pytest.mark.parametrize("name", ["", *QUIET])
async def test_nobody_speaks_where_nothing_is_said(
    name: str, engine: Engine, scorer: Scorer, embedder: Embedder, shared_data: Path
) -> None:
    samples = speech.load(shared_data / "noise" / name).samples if name else silence(10.0)
    messages = await results(engine, scorer, embedder, samples)
    assert not [sentence for message in messages for sentence in message["sentences"]]


async def test_music_and_noise_are_nobody_and_whoever_speaks_after_them_is_the_first(
    engine: Engine, scorer: Scorer, embedder: Embedder, shared_data: Path
) -> None:
    recording = speech.load(shared_data / "noise" / "musanmix.mp3")
    messages = await results(engine, scorer, embedder, recording.samples)
    check_speakers(messages)
    assert messages[-1]["sentences"]
    for sentence in messages[-1]["sentences"]:
        assert sentence["spk"] == 0
        assert sentence["start"] > SPEECH_MS - 1000

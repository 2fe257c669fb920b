"""What is no speech gives no text; what is, gives text only where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realtime_server import weights
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.demo import load_client
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, silence
from tests.live.sessions import results_of

pytestmark = pytest.mark.embedded

Models = tuple[Engine, Scorer]


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    engine, scorer = load_engine(EngineOptions()), load_scorer(EngineOptions(), "fsmn")
    yield engine, scorer
    await engine.aclose()
    await scorer.aclose()


async def results(models: Models, pcm: bytes, *commands: str) -> list[dict[str, Any]]:
    """Feed audio as fast as it goes; return every result."""
    return await results_of(RealtimeASRSession(*models), pcm, *commands)


def texts(messages: list[dict[str, Any]]) -> set[str]:
    """Every text that was ever shown."""
    return {text for m in messages for text in (m["partial"], *(s["text"] for s in m["sentences"])) if text}


def read(path: Path) -> bytes:
    client = load_client()
    return b"".join(client.cut_frames(client.decode(path)))


def hum(seconds: float, level: float) -> Samples:
    """Mains hum: 50 Hz and its harmonics."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    wave = sum(np.sin(2 * np.pi * 50 * n * times) / n for n in (1, 2, 3, 5))
    return (level * wave).astype(np.float32)


def noise(seconds: float, level: float) -> Samples:
    return np.random.default_rng(0).normal(0, level, round(seconds * SAMPLE_RATE)).astype(np.float32)


@pytest.mark.parametrize(
    "audio",
    [silence(20.0), hum(20.0, 0.02), hum(20.0, 0.2), noise(20.0, 0.001), noise(20.0, 0.05)],
    ids=["silence", "hum", "loud hum", "faint noise", "noise"],
)
async def test_made_up_noise_gives_no_text(models: Models, audio: Samples) -> None:
    assert texts(await results(models, pcm16(audio), "HOTWORDS:FunASR,best of times")) == set()


@pytest.mark.parametrize(
    "name",
    [
        "silence2sec.wav", "pyannote-empty.wav", "sb-noise2.wav", "pipecat-office-ambience-24k.mp3",
        "pipecat-ding1.wav", "rtstt-active-beep.wav", "dtmf-0.wav", "dtmf-5.wav", "dtmf-pound.wav", "dtmf-star.wav",
    ],
)  # fmt: skip
async def test_recorded_noise_gives_no_text(models: Models, shared_data: Path, name: str) -> None:
    assert texts(await results(models, read(shared_data / "noise" / name))) == set()


async def test_text_appears_only_where_there_is_speech(models: Models, shared_data: Path) -> None:
    table = (shared_data / "noise" / "musanmix-smn-gender.csv").read_text().splitlines()[1:]
    rows = [row.split("\t") for row in table]
    speech = [(float(start), float(stop)) for label, start, stop in rows if label in ("male", "female")]
    # The table splits speech at each breath, a sentence goes over it.
    first, last = speech[0][0], speech[-1][1]
    assert not any(first < float(start) < last for label, start, _ in rows if label in ("music", "noise"))
    final = (await results(models, read(shared_data / "noise" / "musanmix.mp3")))[-1]
    assert final["sentences"]
    for sentence in final["sentences"]:
        assert first - 1 <= sentence["start"] / 1000 < sentence["end"] / 1000 <= last + 1


async def test_speech_after_long_silence_is_heard(models: Models) -> None:
    (clip,) = (weights.find("clips") / "en").glob("hello_world.wav")
    (sentence,) = (await results(models, pcm16(silence(60.0)) + read(clip)))[-1]["sentences"]
    assert "hello world" in sentence["text"].lower()
    assert sentence["start"] >= 59_500

"""Real speech through the CPU recognizer: the sentences of the live service, right, and with the right speakers."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
import pytest
import pytest_asyncio
from whisper_normalizer.english import EnglishTextNormalizer

from realtime_server import weights
from realtime_server.core import messages as m
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.segments import Sentence
from realtime_server.core.settings import SessionSettings
from realtime_server.demo import TEXT, load_client
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recording import Recording
from realtime_server.offline.transcriber import Transcriber
from realtime_server.realtime.session import RealtimeASRSession
from tests.conftest import SHARED
from tests.offline.test_transcriber import example

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

PATIENCE_S = 60.0  # for what takes seconds unless it hangs
FIXED = EndpointingOptions(mode="fixed", silence_ms=600)
SHARED_SPEECH = ("en/realtimestt-asr-reference.wav", "zh/azure-zhcn_continuous.wav", "multi/ami-dev00.wav")


@dataclass(frozen=True, slots=True)
class Models:
    """The recognizer and the voice activity network."""

    engine: Engine
    scorer: Scorer


@pytest_asyncio.fixture
async def models() -> AsyncIterator[Models]:
    options = EngineOptions()
    loaded = Models(load_engine(options), load_scorer(options, "fsmn"))
    yield loaded
    await loaded.engine.aclose()
    await loaded.scorer.aclose()


def reading() -> Path:
    return weights.find("recordings") / "two_cities.wav"


def pcm_of(path: Path) -> bytes:
    """What the client sends of a recording."""
    client = load_client()
    return b"".join(client.cut_frames(client.decode(path)))


async def stream(pcm: bytes, models: Models, settings: SessionSettings) -> list[Sentence]:
    """What the live service locks."""
    sentences: list[Sentence] = []
    async with RealtimeASRSession(models.engine, models.scorer, settings) as session:
        reader = session.log.add_reader()
        for message in ("START", pcm, "STOP"):
            session.feed(message)
        session.end()
        while events := await asyncio.wait_for(reader.take(), PATIENCE_S):
            sentences += [
                each for event in events if isinstance(event, m.SegmentLocked) for each in event.sentences
            ]
    return sentences


@pytest.mark.parametrize("name", ["two_cities.wav", *SHARED_SPEECH])
async def test_offline_sentences_are_the_live_ones(name: str, models: Models) -> None:
    path = SHARED / name if "/" in name else reading()
    if not path.is_file():
        pytest.skip("the shared recordings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    decoding = DecodingOptions(words=True)
    pcm = pcm_of(path)
    live = await stream(pcm, models, SessionSettings(endpointing=FIXED, options=decoding))
    recording = Recording()
    recording.append(np.frombuffer(pcm, "<i2"))
    work = Transcriber(models.engine, models.scorer)
    made = await work.transcribe(recording, FileOptions(endpointing=FIXED, decoding=decoding))
    assert len(live) > 2
    assert list(made.sentences) == live


async def test_a_reading_is_right_with_and_without_voice_activity(models: Models) -> None:
    recording = Recording()
    recording.append(np.frombuffer(pcm_of(reading()), "<i2"))
    normal = EnglishTextNormalizer()
    for options in (FileOptions(), FileOptions(segmentation="energy")):
        made = await Transcriber(models.engine, models.scorer).transcribe(recording, options)
        rate = jiwer.wer(normal(TEXT), normal(made.text))
        print(f"{options.segmentation}: word error rate {100 * rate:.1f} %")
        assert rate <= 0.03
        assert made.language == "en"


def test_the_example_in_the_docstring_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["example", str(reading())])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example(), "example", "exec"), {"__name__": "__main__"})
    assert printed.getvalue().startswith("It was the best of times")

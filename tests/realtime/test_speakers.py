"""Speakers over a real socket: who spoke, who is told late, and recognition that goes on when nobody can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Embeddings, EmbedJob, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer
from realtime_server.errors import ConfigurationError, EngineError
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, silence
from tests.realtime.harness import Client
from tests.realtime.process import served

FIXED = ("--endpointing", "fixed:600")
PATIENCE_S = 30.0
LOW, HIGH = 200.0, 2000.0  # Hz: two voices to whoever listens to octaves


def voice(pitch_hz: float, seconds: float = 2.0) -> Samples:
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (0.3 * np.sin(2 * np.pi * pitch_hz * times)).astype(np.float32)


def talk(*pitches_hz: float) -> bytes:
    return pcm16(np.concatenate([part for hz in pitches_hz for part in (voice(hz), silence(1.0))]))


async def transcript(client: Client, *frames: str | bytes) -> dict[str, Any]:
    await client.say("START", *frames, "STOP")
    return await client.until(lambda message: message.get("is_final"), PATIENCE_S)


def speakers(message: dict[str, Any]) -> list[int | None]:
    return [sentence.get("spk") for sentence in message["sentences"]]


async def test_two_voices_are_two_speakers_in_every_session() -> None:
    async with served("--speakers", "bands", *FIXED) as server, server.client() as client:
        final = await transcript(client, talk(LOW, HIGH, LOW, LOW))
        assert speakers(final) == [0, 1, 0, 0]
        assert speakers(await transcript(client, talk(HIGH))) == [0]
        assert not any("error" in message for message in client.messages)


async def test_without_the_flag_nobody_is_told_apart() -> None:
    async with served(*FIXED) as server, server.client() as client:
        assert speakers(await transcript(client, talk(LOW, HIGH))) == [None, None]


async def test_a_missing_network_costs_the_speakers_and_nothing_else(tmp_path: Path) -> None:
    """The operator reads why at the start, every session's client once."""
    flags = ("--speakers", "--speaker-model", str(tmp_path))
    async with served(*flags, *FIXED) as server, server.client() as client:
        assert any("serving without speakers: " in line for line in server.log)
        for _ in range(2):
            client.messages.clear()
            final = await transcript(client, talk(LOW, HIGH, LOW))
            assert speakers(final) == [None, None, None]
            await client.until(lambda message: message.get("event") == "stopped", PATIENCE_S)
            (error,) = [message["error"] for message in client.messages if "error" in message]
            assert error.startswith("speakers are no longer told apart: ")
            assert str(tmp_path) in error or "not installed" in error


class Unsteady(FakeEmbedder):
    """Fails from a given job on."""

    def __init__(self, fails_from: int) -> None:
        super().__init__()
        self._left = fails_from

    async def embed(self, job: EmbedJob) -> Embeddings:
        self._left -= 1
        if self._left < 0:
            raise EngineError("out of memory")
        return await super().embed(job)


@pytest.mark.parametrize("fails_from", [0, 1, 3, 5])
async def test_a_network_that_fails_later_leaves_what_was_told(fails_from: int) -> None:
    settings = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600), speakers=True)
    async with RealtimeASRSession(
        FakeEngine(), FakeScorer(), settings, embedder=Unsteady(fails_from)
    ) as session:
        session.feed("START")
        session.feed(talk(LOW, HIGH, LOW, HIGH))
        session.feed("STOP")
        session.end()
        messages = [message async for message in session.messages()]
    assert sum('"error"' in message for message in messages) == 1
    final = next(message for message in messages if '"is_final":true' in message)
    assert final.count('"text"') == 4


async def test_a_session_that_tells_speakers_apart_needs_somebody_who_can() -> None:
    with pytest.raises(ConfigurationError, match="embedder"):
        RealtimeASRSession(FakeEngine(), FakeScorer(), SessionSettings(speakers=True))

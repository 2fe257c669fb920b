"""Speakers over a real socket: who spoke, who is told late, and recognition that goes on when nobody can tell."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import ClusterJob, Embeddings, EmbedJob, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer
from realtime_server.errors import ConfigurationError, EngineError, EngineTimeoutError
from realtime_server.realtime.options import Clocks
from realtime_server.realtime.patience import answer_in_time, answer_in_turn
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, silence
from tests.realtime.harness import Client
from tests.realtime.process import Process, served

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


async def health(server: Process) -> dict[str, Any]:
    def ask() -> bytes:
        with urlopen(f"http://127.0.0.1:{server.port}/health", timeout=PATIENCE_S) as answer:
            return bytes(answer.read())

    told: dict[str, Any] = json.loads(await asyncio.to_thread(ask))
    return told


@pytest.mark.parametrize(("flags", "told"), [(("--speakers", "bands"), "bands"), ((), "off")])
async def test_health_tells_what_tells_them_apart(flags: tuple[str, ...], told: str) -> None:
    async with served(*flags) as server:
        assert (await health(server))["speakers"] == told


async def test_a_missing_network_costs_the_speakers_and_nothing_else(tmp_path: Path) -> None:
    """The operator reads why at the start, every session's client once."""
    flags = ("--speakers", "--speaker-model", str(tmp_path))
    async with served(*flags, *FIXED) as server, server.client() as client:
        assert any("serving without speakers: " in line for line in server.log)
        assert (await health(server))["speakers"] == "unavailable"
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


class OneByOne(FakeEmbedder):
    """Takes a while for each job, and one at a time; after `hangs_after` jobs it answers nobody."""

    def __init__(self, takes_s: float, hangs_after: int = 1_000_000) -> None:
        super().__init__()
        self._takes_s, self._left = takes_s, hangs_after
        self._turn = asyncio.Lock()
        self._answered_s = float("-inf")
        self.longest_s = 0.0  # that a job waited for its answer

    def answered_s(self, job: EmbedJob | ClusterJob) -> float:
        return self._answered_s

    async def embed(self, job: EmbedJob) -> Embeddings:
        asked_s = time.monotonic()
        async with self._turn:
            self._left -= 1
            await asyncio.sleep(self._takes_s if self._left >= 0 else 3600)
            self._answered_s = time.monotonic()
        self.longest_s = max(self.longest_s, self._answered_s - asked_s)
        return await super().embed(job)


async def hear_together(
    embedder: FakeEmbedder, deadline_s: float, sessions: int
) -> list[list[dict[str, Any]]]:
    """What each of some sessions is told, which say the same at the same time."""
    settings = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600), speakers=True)

    async def hear() -> list[dict[str, Any]]:
        clocks = Clocks(deadline_s=deadline_s)
        async with RealtimeASRSession(
            FakeEngine(), FakeScorer(), settings, embedder=embedder, clocks=clocks
        ) as session:
            session.feed("START")
            session.feed(talk(LOW, HIGH, LOW, HIGH))
            session.feed("STOP")
            session.end()
            return [json.loads(message) async for message in session.messages()]

    return await asyncio.gather(*(hear() for _ in range(sessions)))


async def test_nobody_is_given_up_while_others_are_answered() -> None:
    embedder = OneByOne(takes_s=0.02)
    for messages in await hear_together(embedder, deadline_s=0.2, sessions=12):
        assert not any("error" in message for message in messages)
        assert speakers(next(message for message in messages if message.get("is_final"))) == [0, 1, 0, 1]
    assert embedder.longest_s > 0.2


async def test_an_embedder_that_hangs_costs_the_speakers_within_one_deadline() -> None:
    begun_s = time.monotonic()
    for messages in await hear_together(OneByOne(0.01, hangs_after=3), deadline_s=0.2, sessions=4):
        (error,) = [message["error"] for message in messages if "error" in message]
        assert error == "speakers are no longer told apart: no answer within 0.2 s"
        assert len(next(message for message in messages if message.get("is_final"))["sentences"]) == 4
    assert time.monotonic() - begun_s < PATIENCE_S


async def test_a_timeout_of_whoever_answers_is_no_deadline() -> None:
    async def time_out() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await answer_in_time(time_out(), 10.0)
    with pytest.raises(TimeoutError, match="of its own"):
        await answer_in_turn(time_out(), 10.0, time.monotonic)
    with pytest.raises(EngineTimeoutError, match=r"no answer within 0\.0 s"):
        await answer_in_time(asyncio.sleep(3600), 0.01)
    with pytest.raises(EngineTimeoutError, match=r"no answer within 0\.0 s"):
        await answer_in_turn(asyncio.sleep(3600), 0.01, lambda: 0.0)

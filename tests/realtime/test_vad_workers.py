"""A server whose voice activity works in processes of its own: what its clients see, and what it leaves behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from realtime_server.bench.machine import LINUX, descendants
from realtime_server.engines.fake import FakeEngine
from realtime_server.engines.vad import FsmnScorer
from realtime_server.engines.vad_workers import WorkerScorer
from tests.audio import pcm16, silence
from tests.models.vad import network, read, weights_folder
from tests.realtime.harness import FIXED, Message, eventually, serving
from tests.realtime.process import served
from tests.realtime.test_http import ask

pytestmark = pytest.mark.embedded

PACKET = 3200  # bytes: 100 ms


async def hear(scorer: FsmnScorer | WorkerScorer, speech: bytes, kill_after: int = -1) -> list[Message]:
    """Sentences of a stream, one of whose workers is killed behind a packet."""
    async with serving(FakeEngine(decode_s=0.0), scorer, settings=FIXED) as service:
        async with service.client() as client:
            await client.say("START")
            for number, at in enumerate(range(0, len(speech), PACKET)):
                await client.say(speech[at : at + PACKET])
                if number == kill_after:
                    assert isinstance(scorer, WorkerScorer)
                    await client.until(
                        lambda message, so_far=100 * number: message.get("duration_ms", 0) > so_far - 2500
                    )
                    os.kill(scorer.pids[0], signal.SIGKILL)
            await client.say("STOP")
            final = await client.final()
            assert not any("error" in message for message in client.messages)
        if kill_after >= 0:
            assert b"vad_worker_restarts_total 1.0" in (await ask(service, "/metrics")).body
        sentences: list[Message] = final["sentences"]
    return sentences


async def test_a_session_does_not_notice_where_voice_activity_works_nor_that_its_worker_dies(
    shared_data: Path,
) -> None:
    speech = pcm16(read(shared_data / "zh" / "funasr-vad_example.wav"))[: 300 * PACKET]
    workers = WorkerScorer(weights_folder(), 1)
    try:
        found = await hear(workers, speech, kill_after=150)
    finally:
        await workers.aclose()
    assert found == await hear(FsmnScorer(network()), speech)
    assert len(found) > 4


async def test_workers_are_up_before_anybody_speaks() -> None:
    workers = WorkerScorer(weights_folder(), 2)
    try:
        async with serving(FakeEngine(), workers, settings=FIXED):
            await eventually(lambda: workers.up == 2, "the workers are not up")
    finally:
        await workers.aclose()


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
async def test_the_command_starts_its_workers_and_ends_them() -> None:
    async with served("--vad", "fsmn", "--vad-workers", "2") as server:
        assert len(descendants(server.process.pid)) == 2
        workers = descendants(server.process.pid)
        async with server.client() as client:
            assert (await client.transcribe(silence(1.0)))["sentences"] == []
        server.signal()
        assert await server.exit_code(30.0) == 0
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))

"""vLLM's process dies: whoever waits is told, whoever comes later too, nothing hangs, and the server ends."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from realtime_server.core.jobs import Decoded
from realtime_server.errors import EngineError
from realtime_server.realtime.server import DIED
from tests.audio import pcm16, tone
from tests.realtime.process import served
from tests.vllm.engines import decode, job, vllm_engine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]

PATIENCE_S = 60.0
START_S = 240.0  # for a server with vLLM


async def test_every_job_is_told_that_the_engine_died(checkpoint_folder: Path, tmp_path: Path) -> None:
    engine = vllm_engine(checkpoint_folder, tmp_path)
    assert not engine.healthy
    with pytest.raises(EngineError, match="not been started"):
        await engine.transcribe(job(0))
    await engine.warmup()
    assert engine.healthy
    assert await decode(engine, [job(0)])

    (process,) = [each for each in multiprocessing.active_children() if "EngineCore" in each.name]
    begun = asyncio.Event()
    waiting = [
        asyncio.create_task(engine.transcribe(job(n, seconds=25, max_new_tokens=None), lambda _: begun.set()))
        for n in range(40)
    ]
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    process.kill()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_S)
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Decoded)]
    assert failed, "all of them were faster than the signal"
    assert {type(outcome) for outcome in failed} == {EngineError}
    assert {str(outcome) for outcome in failed} == {"vLLM's engine has died"}
    assert not engine.healthy
    for _ in range(2):
        with pytest.raises(EngineError, match="has died"):
            await asyncio.wait_for(engine.transcribe(job(1)), PATIENCE_S)
    await asyncio.wait_for(engine.aclose(), PATIENCE_S)
    assert not [each for each in multiprocessing.active_children() if "EngineCore" in each.name]


def engine_of(server: int) -> int:
    """The number of the process in which a server's vLLM runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server and "EngineCore" in (path / "cmdline").read_text():
                found.append(int(path.name))
        except OSError:
            continue
    (number,) = found
    return number


async def test_the_server_tells_its_clients_and_ends(checkpoint_folder: Path, tmp_path: Path) -> None:
    flags = ("--engine", "funasr-nano", "--device", "cpu", "--model", str(checkpoint_folder))
    bounds = ("--max-model-len", "512", "--deadline-seconds", str(PATIENCE_S))
    async with served(*flags, *bounds, start_s=START_S, REALTIME_SERVER_CACHE=str(tmp_path)) as server:
        async with server.client() as speaking, server.client() as idle:
            await speaking.say("START", pcm16(tone(1.0)))
            await speaking.until(lambda message: message.get("partial"), PATIENCE_S)
            engine = engine_of(server.process.pid)
            os.kill(engine, signal.SIGINT)  # as Ctrl-C in a terminal: it is the server that ends its vLLM
            heard = len(speaking.messages)
            await speaking.say(pcm16(tone(2.0)))
            await speaking.until(lambda message: message.get("duration_ms", 0) > 2000, PATIENCE_S)
            assert not any("error" in message for message in speaking.messages[heard:])
            os.kill(engine, signal.SIGKILL)
            await speaking.say(pcm16(tone(3.0)))
            assert await speaking.closed(PATIENCE_S) == 1012
            assert await idle.closed(PATIENCE_S) == 1012
        (final,) = (message for message in speaking.messages if message.get("is_final"))
        assert final["sentences"], "the partial was to stand in"
        (error,) = (message["error"] for message in speaking.messages if "error" in message)
        assert error.endswith("vLLM's engine has died")
        assert await server.exit_code(PATIENCE_S) == 1
    assert sum(f"ERROR {DIED}: ending the sessions" in line for line in server.log) == 1
    assert sum(line.startswith(f"realtime-server: {DIED}; ") for line in server.log) == 1

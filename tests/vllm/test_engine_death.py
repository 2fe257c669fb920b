"""vLLM's process dies: whoever waits is told, whoever comes later too, and nothing hangs."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path

import pytest

from realtime_server.core.jobs import Decoded
from realtime_server.errors import EngineError
from tests.vllm.engines import decode, job, vllm_engine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]

PATIENCE_S = 60.0


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
    assert {str(outcome) for outcome in failed} == {
        "the language model's engine has died; restart the server, its log says why"
    }
    assert not engine.healthy
    for _ in range(2):
        with pytest.raises(EngineError, match="has died"):
            await asyncio.wait_for(engine.transcribe(job(1)), PATIENCE_S)
    await asyncio.wait_for(engine.aclose(), PATIENCE_S)
    assert not [each for each in multiprocessing.active_children() if "EngineCore" in each.name]

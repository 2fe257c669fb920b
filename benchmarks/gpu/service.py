"""The service: the whole engine with the micro-batched encoder and vLLM, jobs in, texts out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from benchmarks.gpu.bench import Bench
from realtime_server.bench import machine
from realtime_server.bench.figures import Report
from realtime_server.core.jobs import Priority
from realtime_server.engines.generation import Sampling
from realtime_server.errors import EngineError

if TYPE_CHECKING:
    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine

AUDIO_PER_S, ALONE_MS = 3000.0, 110.0  # bounds


def measure(bench: Bench) -> Report:
    """The whole engine: jobs in, texts out."""
    import uvloop

    return uvloop.run(_service(bench))


async def _service(bench: Bench) -> Report:
    from realtime_server.engines.vllm_engine import load

    scale = bench.scale
    cards = bench.options.tensor_parallel_size
    spread = f", its language model over {cards} GPUs" * (cards > 1)
    report = bench.report(
        "service", f"segments of {scale.seconds} s, {scale.tokens} tokens each, one engine{spread}"
    )
    engine = load(bench.options)
    try:
        began_s = time.monotonic()
        await engine.warmup()
        report.add("start", time.monotonic() - began_s, "s", case="engine")
        for count, requests in scale.loads.items():
            took_s = await _transcribe(bench, report, engine, (count, requests), words=False)
            bench.fastest = max(bench.fastest, bench.per_s(requests, took_s))
        most, requests = max(scale.loads.items())
        await _transcribe(bench, report, engine, (most, requests // 2), words=True)
        await _language_model(bench, report, engine, (most, requests // 2))
    finally:
        await engine.aclose()
    return report


async def _transcribe(
    bench: Bench, report: Report, engine: FunAsrNanoEngine, load: tuple[int, int], *, words: bool
) -> float:
    """Add the figures of (in flight, requests); return the seconds it took."""
    count, requests = load
    priority = Priority.FINAL if count == 1 else Priority.FILE

    async def one(number: int) -> None:
        decoded = await engine.transcribe(bench.job(number, words=words, priority=priority))
        if decoded.finish != "length":
            raise EngineError(f"request {number} ended early: {decoded.finish}")

    await drive(one, count, min(count, requests))
    before = _used_s()
    took_s, latencies_ms = await drive(one, count, requests)
    case = f"{count} in flight{', word times' * words}"
    target = AUDIO_PER_S if count == 256 and not words and bench.bounded else None
    report.add("audio s per s", bench.per_s(requests, took_s), at_least=target, case=case)
    report.add("requests per s", requests / took_s, case=case)
    bound = {50: ALONE_MS} if count == 1 and bench.bounded else None
    report.add_percentiles("answer", latencies_ms, "ms", bounds=bound, case=case)
    for name, used_s in zip(("this process", "vLLM's processes"), _used_s(), strict=True):
        report.add(f"CPU of {name}", (used_s - before[name != "this process"]) / took_s, "cores", case=case)
    return took_s


async def _language_model(
    bench: Bench, report: Report, engine: FunAsrNanoEngine, load: tuple[int, int]
) -> None:
    """Add the figures of the language model alone, on prompts of the same length."""
    import torch

    from realtime_server.models.nano_config import NanoConfig

    count, requests = load
    rows = torch.randn(44, NanoConfig.read(bench.folder).llm.width).to(torch.bfloat16)

    async def one(number: int) -> None:
        await engine.llm.generate(
            rows, Sampling(bench.scale.tokens, ()), request_id=f"alone-{number}-{time.time()}"
        )

    took_s, latencies_ms = await drive(one, count, requests)
    case = f"{count}, language model alone"
    report.add("audio s per s", bench.per_s(requests, took_s), case=case)
    report.add("requests per s", requests / took_s, case=case)
    report.add_percentiles("answer", latencies_ms, "ms", case=case)


async def drive(
    one: Callable[[int], Awaitable[None]], count: int, requests: int
) -> tuple[float, list[float]]:
    """Run requests, `count` at a time: seconds from the first to the last, and milliseconds of each."""
    latencies_ms: list[float] = []
    numbers = iter(range(requests))

    async def worker(numbers: Iterator[int]) -> None:
        for number in numbers:
            began_s = time.perf_counter()
            await one(number)
            latencies_ms.append(1000 * (time.perf_counter() - began_s))

    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(worker(numbers))
    return time.perf_counter() - began_s, latencies_ms


def _used_s() -> tuple[float, float]:
    """CPU seconds of this process and of those below it, so far."""
    return machine.cpu_s(os.getpid()), sum(map(machine.cpu_s, machine.descendants(os.getpid())))

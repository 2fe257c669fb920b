"""Our live server beside FunASR's own: the same card, weights, audio and client, the same few streams on each.

FunASR's asks for a partial every 960 ms of audio, so ours is told to, here; the partials are counted all the same.
Then ours goes on, with more streams and the voice activity in processes of its own.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.live import (
    CLOSING_S,
    NOTES,
    READY_S,
    Plan,
    Spot,
    add,
    climb,
    held,
    plan_of,
    serving,
)
from benchmarks.gpu.live_clients import Crowd
from benchmarks.gpu.live_server import FRONT, WORKERS
from benchmarks.gpu.programs import Program, started
from realtime_server.bench.climbing import PARTIALS, Step
from realtime_server.bench.figures import Report

THEIRS, OURS = "funasr", "ours"
INTERVAL_MS = 960  # of audio, between two partials of theirs
START_S = 110.0  # of the time, kept for the start of ours
SAME = 3  # numbers of streams at which ours is measured, too
FAR, FAR_FIRST = (50, 75, 100, 125, 150, 200, 250, 300), 100
COUNTS, FIRST = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64), 4


def measure(bench: Bench) -> Report:
    """Climb on theirs, then measure ours at the same numbers of streams."""
    plan = plan_of(bench)
    if not bench.live.streams and not bench.tiny:
        plan = replace(plan, counts=COUNTS, first=FIRST)
    report = bench.report("versus", f"{plan.load.title}; server, streams")
    report.notes += [*NOTES, f"both: a partial every {INTERVAL_MS} ms of audio, at the soonest"]
    with Crowd(plan.processes, bench.live.speech) as crowd:
        with reference(bench) as server:
            report.add("start", server.took_s, "s", case=THEIRS)
            spot = Spot(bench, crowd, server, THEIRS, server.urls[THEIRS])
            until_s = time.monotonic() + (bench.left_s - START_S - CLOSING_S) / 3
            theirs = list(climb(plan.counts, plan.first, spot.measure_with(plan), until_s - 2 * plan.step_s))
            add(report, THEIRS, theirs)
            report.notes += spot.profile(plan, max(held(theirs), min(plan.counts)))
        if bench.left_s < START_S + CLOSING_S + plan.step_s:
            report.notes.append("no time was left for our server")
            return report
        workers = 0 if bench.tiny else bench.live.vad_workers
        with serving(bench, vad_workers=workers, interval_ms=INTERVAL_MS) as server:
            report.add("start", server.took_s, "s", case=OURS)
            spot = Spot(bench, crowd, server, OURS, server.urls[FRONT])
            ours = list(same(bench, plan, spot, theirs))
            if workers:
                far, spot = (
                    replace(plan, counts=FAR, first=FAR_FIRST),
                    replace(spot, name=WORKERS, url=server.urls[WORKERS]),
                )
                until_s = time.monotonic() + bench.left_s - CLOSING_S
                add(
                    report,
                    WORKERS,
                    list(climb(far.counts, far.first, spot.measure_with(far), until_s - plan.step_s)),
                )
            report.notes += server.troubles()
        add(report, OURS, ours)
    report.notes += compared(theirs, ours)
    return report


def reference(bench: Bench) -> AbstractContextManager[Program]:
    """FunASR's server while a block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site = ["--site", str(bench.reference_site.absolute())] if bench.reference_site else []
    its = ["--port", str(port), "--model", str(bench.folder), "--device", "cpu" if bench.tiny else "cuda:0"]
    if bench.tiny:
        its += ["--dtype", "fp32", "--max-model-len", str(bench.options.max_model_len), "--enforce-eager"]
    words = ["benchmarks.gpu.live_reference", *site, "--vad", str(bench.live.vad_model), "--", *its]
    return started(words, names=[THEIRS], ready_s=READY_S, listening=r"Server on (ws://\S+)")


def same(bench: Bench, plan: Plan, spot: Spot, steps: Sequence[Step]) -> Iterator[Step]:
    """Steps with as many streams: the most that were held first, then downwards, then what was not held."""
    order = sorted(steps, key=lambda step: (not step.held, -step.clients if step.held else step.clients))
    measure_step = spot.measure_with(plan)
    for step in order[:SAME]:
        if bench.left_s < plan.step_s + CLOSING_S:
            return
        yield Step(step.clients, measure_step(step.clients))


def compared(theirs: Sequence[Step], ours: Sequence[Step]) -> list[str]:
    """Both at the same number of streams, in a line each."""
    others = {step.clients: step.report for step in ours}
    lines = []
    for step in sorted(theirs, key=lambda step: step.clients):
        if step.clients in others:
            names = (PARTIALS, "text lag, p95", "STOP to final, p95")
            pairs = [
                f"{name} {value(step.report, name)} and {value(others[step.clients], name)}" for name in names
            ]
            lines.append(f"{step.clients} streams, {THEIRS} and {OURS}: {'; '.join(pairs)}")
    return lines


def value(report: Report, name: str) -> str:
    """A figure in words."""
    return next((f"{f.value:.4g} {f.unit}".strip() for f in report.figures if f.name == name), "none")

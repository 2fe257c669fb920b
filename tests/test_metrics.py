"""What /metrics tells, without a server; tests/realtime/test_operators.py asks a real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from realtime_server.core.counts import SessionCounts
from realtime_server.core.jobs import ClusterJob, EmbedJob, Job, ScoreJob, WaitJob
from realtime_server.errors import EngineError
from realtime_server.metrics import Metrics, Snapshot

NONE = np.zeros((0, 8), np.float32)
SCORE = ScoreJob(0, "s", 1, 0, NONE[0:0, 0], first=True, last=False)
EMBED = EmbedJob(1, "s", 1, 0, 0, (), ())
CLUSTER = ClusterJob(2, "s", 1, 0, (), NONE, final=False)
WAIT = WaitJob(3, "s", 1, 0, 300)


def snapshot() -> Snapshot:
    counts = SessionCounts(
        sessions=3, audio_samples=8000, segments=4, sentences=5, partials=60, folded=7, cancelled=8, recovered=9,
        truncated=10, failed=11, decode_failures=12,
    )  # fmt: skip
    return Snapshot(
        about={"version": "1", "engine": 'a "fake"'}, counts=counts, sessions=2, max_sessions=100, ready=False,
        in_line={"partial": 13, "file": 15}, in_engine={"final": 14}, engine_up=True, engine_silent_s=1.5,
        late=True,
    )  # fmt: skip


@dataclass
class Workers:
    up: int = 16
    restarts: int = 17


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample, by name and labels, without the prefix."""
    return {
        sample.name.removeprefix("realtime_server_")
        + "".join(f" {v}" for _, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render())
        for sample in family.samples
    }


def test_what_is_known_is_read_when_somebody_asks() -> None:
    assert values(Metrics(snapshot)).items() >= {
        'info a "fake" 1': 1, "ready": 0, "sessions": 2, "max_sessions": 100, "starts_total": 3,
        "audio_seconds_total": 0.5, "segments_total": 4, "sentences_total": 5, "partials_total decoded": 60,
        "partials_total folded": 7, "partials_total cancelled": 8, "flagged_total recovered": 9,
        "flagged_total truncated": 10, "flagged_total failed": 11, "decode_failures_total": 12,
        "jobs partial line": 13, "jobs partial engine": 0, "jobs final engine": 14, "jobs file line": 15,
        "engine_up": 1, "engine_silent_seconds": 1.5, "late": 1, "vad_workers": 0, "vad_worker_restarts_total": 0,
    }.items()  # fmt: skip
    found = values(Metrics(lambda: replace(snapshot(), vad=Workers())))
    assert (found["vad_workers"], found["vad_worker_restarts_total"]) == (16, 17)


def test_what_happens_is_counted() -> None:
    metrics = Metrics(snapshot)
    metrics.observe_lag("partial", 0.25)
    metrics.observe_decode("eager", 0.0, 1.0)
    metrics.observe_decode("file", 9.0, 2.0)
    jobs: list[tuple[Job, EngineError | None]] = [
        (SCORE, None),
        (EMBED, None),
        (CLUSTER, EngineError("")),
        (WAIT, None),
    ]
    for job, error in jobs:
        metrics.observe_job(job, error)
    metrics.count_partials(sent=2, superseded=1)
    for size in (100, 20):
        metrics.count_message(size)
    metrics.count_error("limit")
    metrics.count_refused("full")
    metrics.count_connection()
    assert values(metrics).items() >= {
        "lag_seconds_bucket partial 0.2": 0, "lag_seconds_bucket partial 0.3": 1, "lag_seconds_sum partial": 0.25,
        "decode_seconds_count eager": 1, "decode_seconds_sum eager": 1, "line_seconds_sum eager": 0,
        "decode_seconds_sum file": 2, "line_seconds_sum file": 9, "decode_seconds_count final": 0,
        "lag_seconds_count final": 0, "work_total vad ok": 1, "work_total embed ok": 1, "work_total cluster failed": 1,
        "work_total cluster ok": 0, "texts_total sent": 2, "texts_total superseded": 1, "messages_total": 2,
        "message_bytes_total": 120, "errors_total limit": 1, "refused_total full": 1, "connections_total": 1,
    }.items()  # fmt: skip


def test_a_recording_has_no_lag_for_nobody_waits() -> None:
    assert not [
        name for name in values(Metrics(snapshot)) if name.startswith("lag_seconds") and "file" in name
    ]


def test_servers_of_one_process_share_nothing() -> None:
    one, two = Metrics(snapshot), Metrics(snapshot)
    one.count_connection()
    assert values(two)["connections_total"] == 0
    assert not any("realtime_server" in metric.name for metric in prometheus_client.REGISTRY.collect())


def test_the_process_is_told_and_no_times_of_creation() -> None:
    names = values(Metrics(snapshot))
    assert {"process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"} <= set(names)
    assert not [name for name in names if "created" in name]


def test_an_observation_costs_microseconds() -> None:
    """120 streams make about two thousand a second: at 5 us each a hundredth of a core. The best of many tries."""
    metrics = Metrics(snapshot)
    observations: list[Callable[[], None]] = [
        lambda: metrics.observe_lag("partial", 0.3),
        lambda: metrics.observe_decode("final", 0.1, 0.2),
        lambda: metrics.observe_job(SCORE, None),
        lambda: metrics.count_message(300),
    ]
    for observe in observations:
        assert min(cost_us(observe) for _ in range(20)) < 5.0


def cost_us(observe: Callable[[], None], times: int = 200) -> float:
    began_s = time.perf_counter()
    for _ in range(times):
        observe()
    return 1e6 * (time.perf_counter() - began_s) / times

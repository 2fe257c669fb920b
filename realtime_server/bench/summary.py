"""Figures that every benchmark with clients reports."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_server.bench import accounting, swarm
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.full_load import Outcome
from realtime_server.bench.machine import Usage

NEAR_A_CORE = 0.9  # cores' worth of CPU from which on an event loop is the limit


def takes_of(logs: Sequence[swarm.Log]) -> list[accounting.Heard]:
    """All takes of all clients."""
    return [heard for log in logs for heard in log.takes]


def add_service(
    report: Report, logs: Sequence[swarm.Log], server: tuple[Usage, Usage], *, takes: int, case: str = "",
    memory_mb: float | None = None,
) -> None:  # fmt: skip
    """Whether everything was answered, and what it cost the server between two moments; memory_mb: at most."""
    add_answers(report, logs, takes=takes, case=case)
    add_server(report, *server, case=case, memory_mb=memory_mb)


def add_answers(report: Report, logs: Sequence[swarm.Log], *, takes: int, case: str = "") -> None:
    """Whether everything was answered."""
    pings, pongs = sum(log.pings for log in logs), [ms for log in logs for ms in log.pings_ms]
    finals = sum(accounting.final_ms(heard) is not None for heard in takes_of(logs))
    report.add("pings answered", 100 * len(pongs) / pings if pings else 100, "%", at_least=100, case=case)
    report.add("ping, p95", percentile(pongs, 95), "ms", case=case)
    report.add("takes", takes, case=case)
    report.add("takes with a final", 100 * finals / takes, "%", at_least=100, case=case)
    report.add("errors", sum(len(log.errors) for log in logs), at_most=0, case=case)
    report.notes += sorted({f"error: {error}" for log in logs for error in log.errors})[:5]


def add_server(
    report: Report, before: Usage, after: Usage, *, case: str = "", memory_mb: float | None = None
) -> None:
    """What it cost the server between two moments."""
    report.add("server CPU, of a core", 100 * after.cores_since(before), "%", case=case)
    report.add("server memory", after.rss_mb, "MB", at_most=memory_mb, case=case)


def add_front(report: Report, outcome: Outcome) -> None:
    """What of the server's CPU and memory its event loop's process has; it can use one core."""
    if outcome.front_cores is not None and outcome.ended.front:
        report.add("of the CPU the event loop's process", 100 * outcome.front_cores, "%")
        report.add("of the memory the event loop's process", outcome.ended.front.rss_mb, "MB")


def add_clients(report: Report, outcome: Outcome) -> None:
    """What the clients did, and what came to them."""
    began, ended = outcome.began, outcome.ended
    report.add("client CPU, of a core", 100 * outcome.client_cores, "%")
    late = [ms for heard in takes_of(outcome.logs) for ms in heard.late_ms]
    report.add("frames sent late by, p95", percentile(late, 95), "ms")
    report.add("messages to clients", (ended.messages - began.messages) / outcome.seconds, "/s")
    report.add("bytes to clients", (ended.bytes - began.bytes) / outcome.seconds / 1000, "kB/s")

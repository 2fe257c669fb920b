"""Figures that every benchmark with clients reports."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import accounting, swarm
from benchmarks.figures import Report, percentile
from benchmarks.machine import Usage


def takes_of(logs: Sequence[swarm.Log]) -> list[accounting.Heard]:
    """All takes of all clients."""
    return [heard for log in logs for heard in log.takes]


def add_service(
    report: Report, logs: Sequence[swarm.Log], server: tuple[Usage, Usage], *, takes: int, case: str = ""
) -> None:
    """Whether everything was answered, and what it cost the server between two moments."""
    pings, pongs = sum(log.pings for log in logs), [ms for log in logs for ms in log.pings_ms]
    finals = sum(accounting.final_ms(heard) is not None for heard in takes_of(logs))
    before, after = server
    report.add("pings answered", 100 * len(pongs) / max(1, pings), "%", at_least=100, case=case)
    report.add("ping, p95", percentile(pongs, 95), "ms", case=case)
    report.add("takes with a final", 100 * finals / takes, "%", at_least=100, case=case)
    report.add("errors", sum(len(log.errors) for log in logs), at_most=0, case=case)
    report.add("server CPU", 100 * after.cores_since(before), "% of a core", case=case)
    report.add("server memory", after.rss_mb, "MB", case=case)
    report.notes += sorted({f"error: {error}" for log in logs for error in log.errors})[:5]

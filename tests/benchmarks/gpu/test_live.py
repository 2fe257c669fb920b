"""How a climb goes, what is said of it, and what a profile's table tells; no server, no GPU."""

from __future__ import annotations

import math
import time

import pytest

from benchmarks.gpu import profiling
from benchmarks.gpu.live import add, climb, held, step_report
from benchmarks.gpu.live_clients import Told
from benchmarks.gpu.profiling import Look, Watching, cores, table
from realtime_server.bench.accounting import Heard, Result
from realtime_server.bench.climbing import Step
from realtime_server.bench.figures import Report
from realtime_server.bench.options import Load
from realtime_server.bench.swarm import Log, Take

COUNTS = (10, 20, 30, 40, 50)


def measured(clients: int, most: int) -> Report:
    report = Report("load", "")
    report.add("text lag, p95", 100.0 * clients / most, "ms", at_most=100)
    return report


@pytest.mark.parametrize(
    ("most", "first", "tried", "found"),
    [
        (36, 20, [20, 30, 40, 35], 35),
        (14, 30, [30, 20, 10, 15], 10),
        (99, 40, [40, 50], 50),
        (5, 10, [10], 0),
    ],
)
def test_a_climb_goes_up_from_what_holds_and_down_from_what_does_not(
    most: int, first: int, tried: list[int], found: int
) -> None:
    steps = list(climb(COUNTS, first, lambda clients: measured(clients, most), math.inf))
    assert [step.clients for step in steps] == tried
    assert held(steps) == found


def test_a_climb_begins_no_step_too_late() -> None:
    steps = list(climb(COUNTS, 20, lambda clients: measured(clients, 99), time.monotonic() - 1))
    assert [step.clients for step in steps] == [20]


def test_a_climbs_end_is_a_note_and_not_a_missed_bound() -> None:
    report = Report("gpu live", "")
    add(report, "front", [Step(count, measured(count, 35)) for count in (20, 30, 40)])
    assert not report.missed
    assert report.notes == ["front: 30 held; not 40: text lag, p95: 114 ms, at most 100"]
    assert [figure.case for figure in report.figures] == ["front", "front 20", "front 30", "front 40"]


def heard(began_ms: float) -> Heard:
    """A take of 3 s of speech with a partial a second, and its final 100 ms behind STOP."""
    told = [Result(at + 150.0, at, "text", (), 0, final=False) for at in (1000, 2000, 2900)]
    final = Result(3100.0, 3000, "", ("text",), 3000, final=True)
    return Heard(((0, 3000),), [*told, final], stop_ms=3000.0, late_ms=[began_ms])


def test_a_step_counts_what_all_processes_saw_while_all_clients_spoke() -> None:
    logs = [Log(takes=[heard(0.0)], began_s=[began_s]) for began_s in (100.0, 100.5)]
    takes = [[Take([b""] * 30, ((0, 3000),))] for _ in logs]
    looks = [Look(at, {1: ("server", at / 2, 100.0)}) for at in (100.5, 101.0, 103.0)]
    told = [Told(logs[:1], 0.1), Told(logs[1:], 0.2)]
    report = step_report(
        Load(seconds=3.0, stagger_s=0.5), ("gpu live", ""), takes, told, Watching(looks, [(5.0, 6.0)])
    )
    found = {figure.name: figure.value for figure in report.figures}
    assert found["text lag, p95"] == pytest.approx(150)
    assert found["partials per second of speech"] == pytest.approx(1.0)
    assert found["STOP to final, p50"] == pytest.approx(100)
    assert found["CPU of server"] == pytest.approx(0.5)
    assert found["spells without text for at most 1.2 s"] == 100
    assert (found["busiest client process"], found["GPU memory"]) == (0.2, 5.0)
    assert not report.missed


def test_partials_that_come_seldom_miss_a_bound() -> None:
    take = Heard(
        ((0, 6000),), [Result(at + 50.0, at, "text", (), 0, final=at == 6000) for at in (1000, 3000, 6000)]
    )
    take.stop_ms = 6000.0
    log = Log(takes=[take], began_s=[10.0])
    looks = [Look(at, {}) for at in (10.0, 16.0)]
    report = step_report(
        Load(seconds=6.0, stagger_s=0.0), ("gpu live", ""), [[Take([b""] * 60, take.spells)]], [Told([log], 0.1)],
        Watching(looks),
    )  # fmt: skip
    assert [figure.name for figure in report.missed] == ["partial interval, p95"]


def test_cpu_is_told_by_kind_of_process() -> None:
    before = Look(10.0, {1: ("server", 1.0, 0.0), 2: ("workers", 5.0, 0.0)})
    after = Look(12.0, {1: ("server", 2.0, 0.0), 2: ("workers", 6.0, 0.0), 3: ("workers", 1.0, 0.0)})
    assert cores(before, after) == {"server": 0.5, "workers": 1.0}


def test_a_profile_tells_time_in_a_function_and_below_it() -> None:
    rate = profiling.RATE
    folded = [f"main (a/b.py:1);work (a/c.py:2) {rate}", f"main (a/b.py:9) {rate}"]
    told = table(folded, 4.0, "server").splitlines()
    assert told[0] == "server: 50 % of a core's time was sampled as busy"
    assert " 25.0 %  work (a/c.py)" in told
    assert " 50.0 %  main (a/b.py)" in told


def test_a_machine_without_a_profiler_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="py-spy is not on the path"):
        profiling.record({}, 1.0, tmp_path)  # type: ignore[arg-type]

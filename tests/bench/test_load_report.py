"""The figures of one step, from takes made by hand."""

from __future__ import annotations

import math

import pytest

from realtime_server.bench import swarm
from realtime_server.bench.accounting import Heard, Result
from realtime_server.bench.full_load import Moment, Outcome
from realtime_server.bench.load_report import report_on
from realtime_server.bench.machine import Usage
from realtime_server.bench.options import Load

SPELLS = ((500, 2500),)
RESULTS = [
    Result(1100, 1000, "one", (), 0, False),
    Result(1900, 1700, "one two", (), 0, False),
    Result(2400, 2300, "one too three", (), 0, False),
    Result(2560, 2500, "", ("one too three",), 2500, True),
]
TAKES = [[swarm.Take([b""] * 25, SPELLS)]] * 2


def outcome(*, pace: float = 1.0, cpu_s: float = 1.0, results: list[Result] = RESULTS) -> Outcome:
    def log() -> swarm.Log:
        return swarm.Log(
            takes=[Heard(SPELLS, results, stop_ms=2500.0)], began_s=[100.0], messages=6, bytes=600
        )

    usages = Usage(100.0, 10.0, 50.0), Usage(104.0, 12.0, 60.0)
    fronts = Usage(100.0, 5.0, 30.0), Usage(104.0, 6.0, 30.0)
    began, ended = (
        Moment(100.0, 0.0, usages[0], 0, 0, fronts[0]),
        Moment(104.0, cpu_s, usages[1], 12, 1200, fronts[1]),
    )
    return Outcome([log(), log()], began, ended, pace)


def figures(load: Load, seen: Outcome) -> dict[str, float]:
    return {figure.name: figure.value for figure in report_on(load, "a title", TAKES, seen).figures}


def test_a_step_has_what_a_reader_notices_and_what_it_cost() -> None:
    found = figures(Load(), outcome())
    assert found["clients"] == 2
    assert found["speech in what they say"] == 80
    assert found["first partial from speech onset, p50"] == 600
    assert found["onsets without a partial"] == 0
    assert found["text lag, p50"] == 100
    assert found["text lag, p99"] == pytest.approx(200, abs=3)
    assert found["STOP to final, p95"] == pytest.approx(60)
    assert found["partials per client"] == 3
    assert found["partials per second of speech"] == 1.5
    assert found["partial interval, p50"] == 650
    assert found["speech without text, p95"] == 800
    assert found["shown words that changed"] == 25
    assert math.isnan(found["speech end to locked, p50"])  # STOP follows the only utterance
    assert found["takes with a final"] == 100
    assert (found["server CPU, of a core"], found["client CPU, of a core"]) == (50, 25)
    assert found["of the CPU the event loop's process"] == 25
    assert (found["messages to clients"], found["bytes to clients"]) == (3, 0.3)


def test_lag_and_stop_have_bounds() -> None:
    report = report_on(Load(lag_ms=150, stop_ms=50), "a title", TAKES, outcome())
    assert [figure.name for figure in report.missed] == ["text lag, p95", "STOP to final, p95"]


def test_at_another_pace_times_are_still_of_the_wall() -> None:
    found = figures(Load(pace=2.0, stagger_s=1), outcome(pace=2.0))
    assert found["text lag, p50"] == 50
    assert found["STOP to final, p50"] == pytest.approx(30)


def test_without_a_pace_there_is_speed_and_no_lag() -> None:
    load = Load(pace=0, stop_ms=1)
    report = report_on(load, "a title", TAKES, outcome(pace=0))
    found = {figure.name: figure.value for figure in report.figures}
    assert found["audio recognized"] == pytest.approx(5 / 2.56)
    assert "text lag, p95" not in found
    assert report.missed == []


def test_a_client_without_an_answer_is_not_held() -> None:
    report = report_on(Load(), "a title", TAKES, outcome(results=[]))
    assert {figure.name for figure in report.missed} == {
        "text lag, p95", "STOP to final, p95", "takes with a final"
    }  # fmt: skip
    assert figures(Load(pace=0), outcome(pace=0, results=[]))["audio recognized"] == 0


def test_clients_that_are_the_limit_are_told() -> None:
    report = report_on(Load(), "a title", TAKES, outcome(cpu_s=3.9))
    assert any("with 2 clients their own process used 0.97 of the one core" in note for note in report.notes)
    assert report_on(Load(), "a title", TAKES, outcome()).notes == []

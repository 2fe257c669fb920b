"""Percentiles, bounds, tables and JSON of benchmark reports."""

from __future__ import annotations

import json
import math

import pytest

from realtime_server.bench.figures import Figure, Report, percentile, publish


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3.0], 95, 3.0), ([4.0, 1.0, 2.0, 3.0], 50, 2.5), ([float(n) for n in range(101)], 95, 95.0)],
)
def test_percentile_lies_where_so_many_values_are_below(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_percentile_of_nothing_is_no_number() -> None:
    assert math.isnan(percentile([], 50))


@pytest.mark.parametrize(
    ("value", "at_most", "at_least", "met"),
    [
        (5, 5, None, True), (5.1, 5, None, False), (5, None, 5, True), (4.9, None, 5, False),
        (math.nan, 5, None, False), (math.nan, None, 5, False), (math.nan, None, None, True),
    ],
)  # fmt: skip
def test_bounds_include_their_value_and_nothing_measured_keeps_none(
    value: float, at_most: float | None, at_least: float | None, met: bool
) -> None:
    assert Figure("lag", value, "ms", at_most, at_least).met is met


def test_percentiles_are_those_that_are_asked_for() -> None:
    report = Report("live", "a title")
    report.add_percentiles("lag", [1.0, 2.0], "ms", percents=(50, 99))
    assert [figure.name for figure in report.figures] == ["lag, p50", "lag, p99"]


def test_table_has_a_column_per_case_and_marks_what_missed() -> None:
    report = Report("live", "a title", notes=["a note"], conditions={"load average": 1.5})
    report.add_percentiles("lag", [100.0, 300.0], "ms", bounds={95: 200}, case="one")
    report.add("lag, p95", 150.0, "ms", at_most=400, case="two")
    report.add("errors", 0, at_most=0, case="one")
    report.add("errors", 0, at_most=0, case="two")
    lines = report.table().splitlines()
    assert lines[0] == "live: a title"
    assert lines[1].split() == ["one", "two", "bound"]
    assert lines[2].split() == ["lag,", "p50", "200", "ms", "-"]
    assert lines[3].strip() == "lag, p95  290 ms !  150 ms  at most 200 (one); at most 400 (two)"
    assert lines[4].split() == ["errors", "0", "0", "at", "most", "0"]
    assert lines[5:] == ["  a note", "  machine: load average 1.50"]
    assert [str(figure) for figure in report.missed] == ["lag, p95 (one): 290 ms, at most 200"]


def test_what_was_not_measured_has_no_unit() -> None:
    report = Report("live", "a title")
    report.add("lag", math.nan, "ms")
    assert report.table().splitlines()[1].split() == ["lag", "none"]


def test_publishing_names_what_was_missed(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("live", "a title", conditions={"cores used by others": 1.5})
    report.add("errors", 2, at_most=0)
    assert publish("live", report) == 1
    *_, named, disturbed = capsys.readouterr().out.splitlines()
    assert named == "missed: live: errors: 2, at most 0"
    assert disturbed.startswith("other processes used 1.5 cores")


def test_json_line_has_every_figure_and_null_for_what_was_not_measured() -> None:
    report = Report("live", "a title")
    report.add("share of text", 99.5, "%", at_least=100)
    report.add("lag, p95", math.nan, "ms")
    report.add("messages", 12.0, "/s", case="2 speakers")
    found = json.loads(report.json_line())
    assert found["share_of_text_percent"] == 99.5
    assert found["lag_p95_ms"] is None
    assert found["messages_per_s_2_speakers"] == 12.0
    assert found["missed"] == ["share_of_text_percent"]

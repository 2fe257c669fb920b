"""Which numbers of clients are tried, when that ends, and what is said of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import pytest

from realtime_server.bench import climbing
from realtime_server.bench.climbing import Step
from realtime_server.bench.figures import Report


def measured(clients: int, lag_ms: float = 100, partials: float = 1.0) -> Report:
    report = Report("load", "a title", notes=["of every step"])
    report.add(climbing.CLIENTS, clients)
    report.add("text lag, p95", lag_ms, "ms", at_most=1000)
    report.add(climbing.PARTIALS, partials)
    return report


def steps(*pairs: tuple[int, float]) -> Sequence[Step]:
    return [Step(clients, measured(clients, lag_ms)) for clients, lag_ms in pairs]


@pytest.mark.parametrize(
    ("most", "tried"),
    [(1, [1]), (3, [1]), (4, [1, 4]), (32, [1, 4, 8, 16, 32]), (100, [1, 4, 8, 16, 32, 64])],
)
def test_numbers_are_doubled(most: int, tried: list[int]) -> None:
    assert list(climbing.doubling(most)) == tried


def test_numbers_may_be_named() -> None:
    assert climbing.counts("1,2,6") == [1, 2, 6]


@pytest.mark.parametrize("text", ["", "one", "1,0", "1,-2", "1,,2"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="numbers above zero"):
        climbing.counts(text)


def test_the_climb_ends_where_a_bound_is_missed() -> None:
    found = list(climbing.climb([1, 4, 8, 16], lambda clients: measured(clients, 200 * clients)))
    assert [(step.clients, step.held) for step in found] == [(1, True), (4, True), (8, False)]


def test_the_last_number_that_held_is_named_and_why_the_next_did_not() -> None:
    summary = climbing.summarize(steps((1, 100), (4, 900), (8, 1200)), "a title", at_least=4)
    assert summary.held == 4
    assert summary.notes[0] == "held: 4; not 8: text lag, p95: 1 200 ms, at most 1 000"
    assert summary.missed == []
    lines = summary.table().splitlines()
    assert lines[1].split() == ["1", "client", "4", "clients", "8", "clients", "bound"]
    assert lines[2].split("  ")[-2:] == ["1 200 ms !", "at most 1 000"]
    assert sum("of every step" in line for line in lines) == 1
    assert json.loads(summary.json_line())["clients_that_held"] == 4


@pytest.mark.parametrize(
    ("found", "held", "said"),
    [
        (steps((1, 2000)), 0, "held: none; not 1: text lag, p95: 2 000 ms, at most 1 000"),
        (steps((1, 1), (4, 1)), 4, "held: 4, the most that were tried"),
    ],
)
def test_none_may_hold_or_all(found: Sequence[Step], held: int, said: str) -> None:
    summary = climbing.summarize(found, "a title", at_least=1)
    assert (summary.held, summary.notes[0]) == (held, said)


def test_too_few_that_held_are_a_missed_bound() -> None:
    summary = climbing.summarize(steps((1, 100), (4, 1001)), "a title", at_least=4)
    assert list(map(str, summary.missed)) == ["clients that held: 1, at least 4"]
    assert json.loads(summary.json_line())["missed"] == ["clients_that_held"]


def test_texts_that_are_young_because_they_are_few_are_told() -> None:
    found = [
        Step(1, measured(1, partials=1.2)),
        Step(4, measured(4, partials=1.1)),
        Step(8, measured(8, partials=0.5)),
    ]
    assert climbing.thinned(found)[0].startswith(
        "from 8 clients on partials come less than half as often as with 1"
    )
    assert climbing.thinned(found[:2]) == []

"""From one client upwards until the server does not hold them any more."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from realtime_server.bench.figures import Figure, Report

FIRST_STEPS = (1, 4)
CLIENTS = "clients"  # the figure that heads a column
PARTIALS = "partials per second of speech"
THINNED = 0.5  # of the partials that the first step got: with fewer, its texts do not compare


@dataclass(frozen=True, slots=True)
class Step:
    """So many clients, and what was measured; its bounds are those that the server must keep to hold them."""

    clients: int
    report: Report

    @property
    def held(self) -> bool:
        """Whether every bound was kept."""
        return not self.report.missed


@dataclass
class Climb(Report):
    """All steps, a column each. held: the last number of clients that held; at_least: the number asked for."""

    held: int = 0
    at_least: int = 1

    @property
    def missed(self) -> list[Figure]:
        """Nothing if enough clients held: to miss a bound is how a climb ends."""
        return self._outcome.missed

    def json_line(self) -> str:
        """How far the server held; the steps have had their lines."""
        return self._outcome.json_line()

    @property
    def _outcome(self) -> Report:
        held = Figure("clients that held", self.held, "", at_least=self.at_least)
        return Report(self.benchmark, self.title, [held], conditions=self.conditions)


def counts(text: str) -> list[int]:
    """Read "1,2,6", for argparse."""
    with suppress(ValueError):
        numbers = [int(number) for number in text.split(",")]
        if min(numbers) > 0:
            return numbers
    raise argparse.ArgumentTypeError(f"expected numbers above zero, separated by commas, not {text}")


def doubling(most: int) -> Iterator[int]:
    """1, 4, 8, 16 and so on."""
    doubled = (FIRST_STEPS[-1] << n for n in range(1, most.bit_length()))
    return takewhile(lambda count: count <= most, chain(FIRST_STEPS, doubled))


def climb(numbers: Iterable[int], measure: Callable[[int], Report]) -> Iterator[Step]:
    """Measure each number of clients until one is not held."""
    for clients in numbers:
        step = Step(clients, measure(clients))
        yield step
        if not step.held:
            return


def summarize(steps: Sequence[Step], title: str, at_least: int) -> Climb:
    """Put the steps side by side, and say how far the server held."""
    summary = Climb("load", title, at_least=at_least)
    for step in steps:
        case = f"{step.clients} client{'s' * (step.clients > 1)}"
        summary.figures += [
            replace(figure, case=case) for figure in step.report.figures if figure.name != CLIENTS
        ]
        summary.notes += [note for note in step.report.notes if note not in summary.notes]
    summary.held = max((step.clients for step in steps if step.held), default=0)
    summary.notes = [verdict(steps), *thinned(steps), *summary.notes]
    return summary


def thinned(steps: Sequence[Step]) -> list[str]:
    """Whether a server kept its texts young by sending few of them."""
    rates = [each.value for step in steps for each in step.report.figures if each.name == PARTIALS]
    few = [place for place, rate in enumerate(rates) if rate < THINNED * rates[0]]
    if not few:
        return []
    place = few[0]
    return [
        f"from {steps[place].clients} clients on partials come less than half as often as with {steps[0].clients}:\n"
        "the lag is only of the texts that came; see speech without text"
    ]


def verdict(steps: Sequence[Step]) -> str:
    """The last number that held, and why the next did not."""
    *before, last = steps
    if last.held:
        return f"held: {last.clients}, the most that were tried"
    held = f"held: {before[-1].clients}" if before else "held: none"
    return f"{held}; not {last.clients}: {'; '.join(map(str, last.report.missed))}"

"""What a benchmark reports: figures with their bounds, as a table for people and a line of JSON for programs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

DISTURBED = 0.2  # cores used by others above which a missed bound may be their doing
MISSED = "missed: "  # begins a line that names a bound


def percentile(values: Iterable[float], percent: float) -> float:
    """The value below which `percent` % of `values` lie, interpolated; nan if there are none."""
    known = np.fromiter(values, np.float64)
    return float(np.percentile(known, percent)) if known.size else math.nan


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. case: the column it stands in, for benchmarks that measure several cases."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    case: str = ""

    @property
    def met(self) -> bool:
        """Whether it keeps its bound; a value that could not be measured keeps none."""
        above = self.at_most is not None and not self.value <= self.at_most
        below = self.at_least is not None and not self.value >= self.at_least
        return not above and not below

    @property
    def bound(self) -> str:
        """The bound in words, "" if there is none."""
        if self.at_most is not None:
            return f"at most {_number(self.at_most)}"
        return f"at least {_number(self.at_least)}" if self.at_least is not None else ""

    @property
    def key(self) -> str:
        """Its name in JSON: words and unit, joined by underscores."""
        unit = self.unit.replace("%", "percent").replace("/", " per ")
        return re.sub(r"\W+", "_", f"{self.name} {unit} {self.case}").strip("_").lower()

    def __str__(self) -> str:
        value = f"{_number(self.value)} {self.unit}".rstrip()
        return f"{self.name}{f' ({self.case})' * bool(self.case)}: {value}, {self.bound}"


@dataclass(slots=True)
class Report:
    """A benchmark's outcome. title: one line with the settings it ran under; notes: what the reader must know."""

    benchmark: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    conditions: dict[str, float] = field(default_factory=dict)  # of the machine meanwhile

    def add(
        self, name: str, value: float, unit: str = "", *,
        at_most: float | None = None, at_least: float | None = None, case: str = "",
    ) -> None:  # fmt: skip
        """Add a figure; see Figure."""
        self.figures.append(Figure(name, value, unit, at_most, at_least, case))

    def add_percentiles(
        self, name: str, values: Sequence[float], unit: str, *,
        bounds: dict[int, float] | None = None, case: str = "", percents: Sequence[int] = (50, 95),
    ) -> None:  # fmt: skip
        """Add the median and the 95th percentile, or others; bounds: percent -> at most."""
        for percent in percents:
            limit = (bounds or {}).get(percent)
            self.add(f"{name}, p{percent}", percentile(values, percent), unit, at_most=limit, case=case)

    @property
    def missed(self) -> list[Figure]:
        """The figures that do not keep their bounds."""
        return [figure for figure in self.figures if not figure.met]

    def table(self) -> str:
        """The figures in rows, cases in columns, bounds at the right."""
        cases = list(dict.fromkeys(figure.case for figure in self.figures))
        names = list(dict.fromkeys(figure.name for figure in self.figures))
        cells = {(figure.name, figure.case): figure for figure in self.figures}
        rows = [["", *cases, "bound"]] if any(cases) else []
        for name in names:
            found = [cells.get((name, case)) for case in cases]
            rows.append([name, *(_cell(figure) for figure in found), _bounds(found)])
        conditions = ", ".join(f"{name} {_number(value)}" for name, value in self.conditions.items())
        lines = [f"{self.benchmark}: {self.title}", *_aligned(rows), *map(_wrapped, self.notes)]
        return "\n  ".join([*lines, *([f"machine: {conditions}"] if conditions else [])])

    def json_line(self) -> str:
        """Everything in the table, on one line."""
        figures = {f.key: None if math.isnan(f.value) else round(f.value, 4) for f in self.figures}
        missed = [figure.key for figure in self.missed]
        return json.dumps({
            "benchmark": self.benchmark, "title": self.title, **figures, "missed": missed,
            "machine": {name: round(value, 2) for name, value in self.conditions.items()},
        })  # fmt: skip


def publish(name: str, report: Report) -> int:
    """Print the table, the line of JSON, and the bounds that were missed; return the exit code."""
    print(f"{report.table()}\n{report.json_line()}")
    for figure in report.missed:
        print(f"{MISSED}{name}: {figure}")
    others = report.conditions.get("cores used by others", 0.0)
    if report.missed and others > DISTURBED:
        print(f"other processes used {others:.1f} cores meanwhile: measure again when the machine is quiet")
    return 1 if report.missed else 0


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    value = "none" if math.isnan(figure.value) else f"{_number(figure.value)} {figure.unit}".rstrip()
    return value + " !" * (not figure.met)


def _bounds(figures: Sequence[Figure | None]) -> str:
    """The bounds of a row, each with the case it is for, unless it is for all that have the figure."""
    bounds = [figure.bound for figure in figures if figure]
    if len(set(bounds)) == 1:
        return bounds[0]
    bounded = [figure for figure in figures if figure and figure.bound]
    return "; ".join(f"{figure.bound} ({figure.case})".removesuffix(" ()") for figure in bounded)


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    if math.isnan(value):
        return "none"
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}".replace(",", " ")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *values, bound in rows:
        right = (value.rjust(width) for value, width in zip(values, widths[1:], strict=False))
        lines.append("  ".join([name.ljust(widths[0]), *right, bound]).rstrip())
    return lines


def _wrapped(note: str) -> str:
    """A note, indented where it goes on in a second line."""
    return note.replace("\n", "\n  ")

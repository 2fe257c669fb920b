"""The steps of a load as a picture, if matplotlib is installed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realtime_server.bench.climbing import PARTIALS, Step
from realtime_server.resources import pip_install

SIZE_INCHES = (9, 9)
PANELS = {
    "ms": ("text lag, p50", "text lag, p95", "STOP to final, p95", "first partial from speech onset, p95"),
    "%": ("server CPU, of a core", "client CPU, of a core"),
    "per second of speech": (PARTIALS,),
}


def why_not() -> str:
    """Why there can be no plot, "" if there can."""
    if find_spec("matplotlib"):
        return ""
    return f"no plot: the package 'matplotlib' is not installed; run: {pip_install('bench')}"


def draw(path: Path, steps: Sequence[Step], title: str) -> None:
    """Draw the figures over the number of clients, bounds dashed; partials below, as only equal ones compare."""
    canvas: Any = importlib.import_module("matplotlib.figure").Figure(
        figsize=SIZE_INCHES, layout="constrained"
    )
    canvas.suptitle(title, wrap=True, fontsize=9)
    panels = canvas.subplots(len(PANELS), 1, sharex=True)
    clients = [step.clients for step in steps]
    for panel, (unit, names) in zip(panels, PANELS.items(), strict=True):
        for name in names:
            _add_line(panel, clients, steps, name)
        panel.set_ylabel(unit)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        if panel.lines:
            panel.legend(fontsize=8)
    panels[-1].set_xlabel("clients")
    panels[-1].set_xscale("log", base=2)
    panels[-1].set_xticks(clients, [str(count) for count in clients])
    canvas.savefig(path, dpi=120)


def _add_line(panel: Any, clients: Sequence[int], steps: Sequence[Step], name: str) -> None:
    figures = [{figure.name: figure for figure in step.report.figures}.get(name) for step in steps]
    values = [figure.value if figure else math.nan for figure in figures]
    if all(map(math.isnan, values)):
        return
    (line,) = panel.plot(clients, values, marker="o", label=name)
    bound = next((figure.at_most for figure in figures if figure and figure.at_most is not None), None)
    if bound is not None:
        panel.axhline(bound, linestyle="--", color=line.get_color(), alpha=0.6)

"""The picture, where matplotlib is installed, and what is said where it is not."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from realtime_server.bench import plot
from realtime_server.bench.climbing import PARTIALS, Step
from realtime_server.bench.figures import Report


def step(clients: int) -> Step:
    report = Report("load", "a title")
    report.add("text lag, p95", 100.0 * clients, "ms", at_most=1000)
    report.add("STOP to final, p95", float("nan"), "ms", at_most=500)
    report.add(PARTIALS, 1.2)
    return Step(clients, report)


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    assert plot.why_not().startswith("no plot: the package 'matplotlib' is not installed; run: ")


@pytest.mark.skipif(not find_spec("matplotlib"), reason="matplotlib is not installed")
@pytest.mark.filterwarnings("default")  # its own
def test_the_steps_become_a_picture(tmp_path: Path) -> None:
    assert plot.why_not() == ""
    plot.draw(tmp_path / "load.png", [step(1), step(4)], "a title")
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")

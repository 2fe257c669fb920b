"""The parts: run one after the other, given up when they take too long, bounded where the bounds hold."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu.__main__ import PARTS, limited, main, run
from benchmarks.gpu.bench import TINY, Bench
from realtime_server.bench.figures import Report
from realtime_server.engines.nano_options import NanoOptions


class StandIn:
    """A part of one figure; without one it fails."""

    def __init__(self, value: float | None) -> None:
        self.value = value

    def measure(self, bench: Bench) -> Report:
        if self.value is None:
            raise RuntimeError("no GPU")
        report = Report("stand-in", f"{bench.scale.seconds} s")
        report.add("speed", self.value, at_least=1.0)
        return report


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(TINY, NanoOptions(model=str(tmp_path), device="cpu"), tiny=True)


def test_a_part_that_fails_leaves_the_others_alone(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "figures.jsonl"
    assert run({"one": StandIn(None), "other": StandIn(2.0)}, replace(bench, log=log)) == 1
    printed = capsys.readouterr()
    assert "one failed" in printed.out
    assert "no GPU" in printed.err
    assert [line.split(",")[0] for line in log.read_text().splitlines()] == ['{"benchmark": "stand-in"']


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (0.5, 1)])
def test_a_missed_bound_is_an_exit_code(bench: Bench, value: float, code: int) -> None:
    assert run({"one": StandIn(value)}, bench) == code


def stubborn(end_s: float) -> None:
    """Goes on whatever error it meets."""
    while time.monotonic() < end_s:
        try:
            time.sleep(0.01)
        except Exception:
            pytest.fail("a part's own handlers must not take it")


def test_a_part_that_takes_too_long_is_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"given up after 0\.01 s"), limited(0.01):
        stubborn(began_s + 5)
    assert time.monotonic() < began_s + 2
    assert "stubborn" in capfd.readouterr().err  # where it was


def test_a_part_in_time_is_left_alone() -> None:
    with limited(0.05):
        began_s = time.monotonic()
    time.sleep(0.1)  # a limit that outlived its part would interrupt this
    assert time.monotonic() - began_s >= 0.1


def test_bounds_hold_for_the_real_shapes_on_one_gpu(bench: Bench) -> None:
    real = replace(bench, tiny=False)
    assert (bench.bounded, real.bounded) == (False, True)
    assert not replace(real, options=replace(real.options, tensor_parallel_size=2)).bounded


def test_a_slower_way_is_compared_once_the_service_is_known(bench: Bench) -> None:
    report = Report("torch", "")
    bench.compare(report, "alone", requests=4, took_s=2.0)
    assert {figure.name: figure.value for figure in report.figures} == {
        "audio s per s": 4.0, "s per request": 0.5
    }  # fmt: skip
    bench.fastest = 40.0
    bench.compare(report, "batch", requests=4, took_s=2.0)
    assert report.figures[-1].value == 10.0


def test_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["-h"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in PARTS)

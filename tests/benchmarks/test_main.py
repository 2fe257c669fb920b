"""The command line: names, flags, exit codes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import pytest

from benchmarks.__main__ import BENCHMARKS, main, run_one
from realtime_server.bench.figures import Report
from realtime_server.errors import RealtimeServerError


@dataclass
class StandIn:
    """A benchmark of one figure."""

    figure: float
    error: RealtimeServerError | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seconds", type=float, default=1.0)

    def run(self, arguments: argparse.Namespace) -> Report:
        if self.error:
            raise self.error
        report = Report("stand-in", f"{arguments.seconds:g} s")
        report.add("lag", self.figure, "ms", at_most=300)
        return report


def test_a_kept_bound_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_one("stand-in", StandIn(200.0), ["--seconds", "3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "stand-in: 3 s"
    assert printed[-1].startswith('{"benchmark": "stand-in"')


def test_a_missed_bound_exits_with_1_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_one("stand-in", StandIn(301.0), []) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "missed: stand-in: lag: 301 ms, at most 300"


def test_an_error_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_one("stand-in", StandIn(0.0, RealtimeServerError("no weights")), []) == 1
    assert capsys.readouterr().err == "stand-in: no weights\n"


@pytest.mark.parametrize(
    "arguments", [["latency"], ["vad", "latency"], ["--seconds", "3"], ["vad", "long", "--seconds", "3"]]
)
def test_unknown_names_and_flags_without_one_name_exit_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["-h"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in BENCHMARKS)

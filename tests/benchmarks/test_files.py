"""A small run with the fake engine, and figures that keep or miss their bounds."""

from __future__ import annotations

import json

import pytest

from benchmarks import files
from benchmarks.__main__ import run_one
from realtime_server.bench.figures import Report

pytestmark = pytest.mark.embedded  # the recordings, and FSMN-VAD


def run(health: float = 5.0, final: float = 100.0, lost: int = 0) -> files.Run:
    return files.Run(
        locked=[700.0], finals=[final], health=[1.0, health], lost=lost, segments=40, took_s=4.0, cores=0.5
    )


@pytest.mark.parametrize(
    ("beside", "missed"),
    [
        (run(), []),
        (run(health=101.0), ["/health, longest"]),
        (run(final=121.0), ["STOP to final, p50, beside : alone"]),
        (run(lost=1), ["without a sentence"]),
    ],
)
def test_bounds(beside: files.Run, missed: list[str]) -> None:
    report = Report("files", "")
    files._add_pairs(report, "fake", [(run(), beside)])
    assert [figure.name for figure in report.missed] == missed


def test_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--engines fake --pairs 1 --sessions 1 --seconds 1 --files 2 --minutes 0.5 --decode-ms 20"
    run_one("files", files, flags.split())
    told = json.loads(next(line for line in capsys.readouterr().out.splitlines() if line.startswith("{")))
    assert told["segments_of_recordings_per_s_fake_beside_files"] > 0
    assert told["segments_of_recordings_per_s_fake_alone"] == 0
    assert told["errors_fake_beside_files"] == told["without_a_sentence_fake_beside_files"] == 0
    assert told["health_longest_ms_fake_beside_files"] > 0

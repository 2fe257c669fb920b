"""What is said of two precisions, and the part as a whole on the tests' checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")
pytest.importorskip("transformers", reason="the language model in transformers is not installed")

from benchmarks.gpu import trained  # noqa: E402
from benchmarks.gpu.bench import TINY, Bench  # noqa: E402
from realtime_server.bench.figures import Report  # noqa: E402
from realtime_server.engines.nano_options import NanoOptions  # noqa: E402
from scripts.synthesis import SynthesiserMissingError, synthesiser  # noqa: E402
from scripts.tiny_evaluation import Score  # noqa: E402

pytestmark = pytest.mark.torch


def outcome(rows: list[list[float]], tokens: list[int], *heard: str) -> trained.Outcome:
    score = Score(cer=0.05, exact=0.5, start_ms=10.0, start_p90_ms=20.0, wrong=(), heard=heard)
    return trained.Outcome([torch.tensor(row) for row in rows], [torch.tensor(tokens)], score)


def test_the_exact_run_is_compared_with_nothing() -> None:
    report, exact = Report("trained", ""), outcome([[1.0]], [1], "a")
    trained.add(report, "exact", exact, exact)
    assert {figure.name: figure.value for figure in report.figures} == {
        "wrong characters": 5.0,
        "texts right to the letter": 50.0,
        "word starts, median error": 10.0,
        "word starts, p90 error": 20.0,
    }


def test_another_run_is_compared_with_the_exact_one() -> None:
    report = Report("trained", "")
    exact = outcome([[3.0, 4.0], [1.0, 0.0], [2.0, 0.0]], [1, 2, 3, 4], "a", "b", "c")
    found = outcome([[3.0, 4.5], [1.0, 0.0], [2.0, 1.0]], [1, 2, 3, 9], "a", "B", "c")
    trained.add(report, "rounded", found, exact)
    values = {figure.name: figure.value for figure in report.figures}
    assert values["rows' difference, median"] == pytest.approx(10.0)
    assert values["rows' difference, worst"] == pytest.approx(50.0)
    assert values["frames with the same CTC token"] == 75.0
    assert values["texts that differ"] == 1
    assert report.notes == ["rounded: 'b' became 'B'"]


def test_it_measures_the_tests_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        synthesiser()
    except SynthesiserMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("REALTIME_SERVER_CACHE", str(tmp_path))
    options = NanoOptions(model=str(tmp_path), device="cpu")
    report = trained.measure(Bench(replace(TINY, trained=4), options, tiny=True))
    values = {(figure.name, figure.case): figure.value for figure in report.figures}
    for name in trained.PRECISIONS:
        assert values["wrong characters", name] < 20, name
    assert 0.1 < values["rows' difference, median", trained.ENCODER] < 3
    assert values["frames with the same CTC token", trained.ALL] > 95

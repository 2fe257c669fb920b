"""The cost benchmark, small: its parts are the whole, with the network in the process and in a worker."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import cost
from realtime_server.bench import speech
from realtime_server.bench.speech import Recording
from tests.audio import speech_pattern
from tests.models.vad import weights_folder

PARTS = ("socket", "bytes", "core", "messages", "dispatch", "shell", "voice activity, ")


@pytest.mark.embedded
def test_the_parts_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    weights_folder()
    monkeypatch.setattr(speech, "reading", lambda: Recording(speech_pattern([(2.0, 1.0)] * 4), ()))
    parser = argparse.ArgumentParser()
    cost.add_arguments(parser)
    report = cost.run(parser.parse_args(["--streams", "2", "--seconds", "2"]))
    figures = {figure.name: figure.value for figure in report.figures}
    parts = [value for name, value in figures.items() if name.startswith(PARTS)]
    assert len(parts) == 8
    assert sum(parts) == pytest.approx(figures["whole, without the recognizer"])
    assert figures["streams per core"] == pytest.approx(1e6 / figures["whole, without the recognizer"])
    assert figures["whole, with a worker"] > 0
    assert figures["the worker"] > 0

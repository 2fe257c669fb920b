"""The streams benchmark, small: a real server process, two short streams, no weights."""

from __future__ import annotations

import pytest

from benchmarks import streams
from realtime_server.bench.speech import Recording
from realtime_server.errors import ConfigurationError
from tests.audio import speech_pattern

FLAGS = ("--engine", "fake", "--vad", "level", "--endpointing", "fixed:600")
RECORDING = Recording(speech_pattern([(1.0, 0.9), (0.8, 0.9)]), ((0, 1000), (1900, 2700)))


def test_two_streams_are_followed_to_their_finals() -> None:
    load = streams.Load(streams=2, seconds=2.0, stagger_s=0.2, flags=FLAGS)
    report = streams.measure(load, RECORDING, "two streams")
    figures = {figure.name: figure.value for figure in report.figures}
    assert figures["errors"] == 0
    assert figures["pings answered"] == 100
    assert figures["takes with a final"] == 100
    assert figures["text lag, p50"] > 0
    assert figures["first partial from speech onset, p50"] > 0
    assert figures["server memory"] > 10
    assert "text lag, p95" in report.table()


def test_streams_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--stagger"):
        streams.Load(streams=2, seconds=5.0, stagger_s=5.0, flags=FLAGS)

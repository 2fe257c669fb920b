"""The idle benchmark, small: a real server process, a few clients that say nothing."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import idle
from realtime_server.errors import ConfigurationError


def arguments(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    idle.add_arguments(parser)
    return parser.parse_args(["--vad", "level", *flags])


def test_sessions_are_begun_and_watched() -> None:
    report = idle.run(arguments("--sessions", "60", "--seconds", "0.2"))
    figures = {figure.name: figure.value for figure in report.figures}
    assert figures["sessions that began"] == 60
    assert figures["connected: connections lost"] == figures["begun: connections lost"] == 0
    assert figures["begun: server memory"] >= figures["memory without sessions"] > 10


def test_no_sessions_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--sessions"):
        idle.run(arguments("--sessions", "0"))

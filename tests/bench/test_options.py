"""Loads that make sense, and their line in the report."""

from __future__ import annotations

import pytest

from realtime_server.bench.options import Load
from realtime_server.errors import ConfigurationError


def test_a_load_is_told_on_a_line() -> None:
    assert Load().title == "talk, 30 s per client, STOP every 10 s, pace 1"
    assert Load(kind="call", pace=0).title == "call, 30 s per client, STOP every 10 s, as fast as it goes"


def test_only_clients_that_speak_together_are_a_load() -> None:
    with pytest.raises(ConfigurationError, match="--stagger"):
        Load(seconds=5, stagger_s=5)
    with pytest.raises(ConfigurationError, match="--stagger"):
        Load(seconds=10, stagger_s=5, pace=2)
    assert not Load(seconds=1, stagger_s=5, pace=0).paced


def test_unknown_loads_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="only talk, call"):
        Load(kind="song")

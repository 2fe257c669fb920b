"""Options are validated once, naming the field."""

from __future__ import annotations

import pytest

from realtime_server.core.settings import Limits, Pace
from realtime_server.errors import ConfigurationError


@pytest.mark.parametrize(
    "name", ["session_s", "undecoded_s", "sentences", "hotwords", "hotword_characters", "queued_commands"]
)
def test_limits_must_be_above_zero(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be above zero, not 0"):
        Limits(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["first_ms", "retry_ms", "interval_ms", "load_factor", "eager_limit_ms"])
def test_pace_must_be_above_zero(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be above zero, not -1"):
        Pace(**{name: -1})  # type: ignore[arg-type]

"""What is said where weights are random: as many signs as tokens, and a beginning that stays."""

from __future__ import annotations

import pytest

from benchmarks.gpu import script
from realtime_server.core.segments import FRAME, SAMPLE_RATE
from realtime_server.core.stabilization import StableText


@pytest.mark.parametrize(("seconds", "tokens"), [(0.025, 1), (1.0, 5), (2.0, 9), (10.0, 45)])
def test_tokens_are_those_of_the_seconds_rounded_up(seconds: float, tokens: int) -> None:
    samples = round(seconds * SAMPLE_RATE)
    assert script.tokens(samples) == tokens
    assert len(script.text(samples)) == tokens


def test_a_partial_agrees_with_the_next_but_for_its_last_signs() -> None:
    stable, whole = StableText(), script.text(10 * SAMPLE_RATE, seed=190)
    for end in range(SAMPLE_RATE, 10 * SAMPLE_RATE, 14 * FRAME):
        shown = script.text(end, seed=190, unstable_at=end)
        stable.receive_partial(shown, end)
        assert whole.startswith(shown[: -script.UNSTABLE])
        assert whole.startswith(stable.stable)
    assert len(stable.stable) > 30


def test_a_partial_ends_otherwise_than_the_final() -> None:
    for end in range(SAMPLE_RATE, 20 * SAMPLE_RATE, FRAME):
        final, partial = script.text(end, seed=7), script.text(end, seed=7, unstable_at=end)
        assert all(one != other for one, other in zip(final[-2:], partial[-2:], strict=True))

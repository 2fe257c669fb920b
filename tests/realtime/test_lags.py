"""Quantiles of lags, in little room."""

from __future__ import annotations

import pytest

from realtime_server.realtime.lags import LONGEST_MS, STEP_MS, Lags


def test_without_lags_there_is_no_quantile() -> None:
    assert Lags().quantile(0.5) is None


@pytest.mark.parametrize(("share", "lag_ms"), [(0.0, 10), (0.1, 10), (0.5, 50), (0.95, 100), (1.0, 100)])
def test_the_lag_that_a_share_of_the_texts_did_not_pass(share: float, lag_ms: int) -> None:
    lags = Lags()
    for lag in range(100, 0, -10):
        lags.add(lag)
    assert lags.quantile(share) == lag_ms


def test_what_is_kept_is_bounded() -> None:
    lags = Lags()
    for lag in range(0, 3 * LONGEST_MS, 7):
        lags.add(lag)
    assert len(lags._counts) <= LONGEST_MS // STEP_MS + 1
    assert lags.quantile(1.0) == LONGEST_MS

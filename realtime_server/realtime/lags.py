"""How late the texts of a session were, kept in little room."""

from __future__ import annotations

from collections import Counter

STEP_MS = 10  # the precision of what is kept, and at the same time what bounds it
LONGEST_MS = 60_000


class Lags:
    """Lags of one session, in ms."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, lag_ms: float) -> None:
        """A text was told so long after its audio had come."""
        self._counts[round(min(lag_ms, LONGEST_MS) / STEP_MS)] += 1

    def quantile(self, share: float) -> int | None:
        """The lag that this share of the texts did not pass; None if there was none."""
        left = share * self._counts.total()
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 0:
                return step * STEP_MS
        return None

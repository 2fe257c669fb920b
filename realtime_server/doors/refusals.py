"""What is logged of those who are refused: a line for each sender and reason a minute, and not too many lines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

EVERY_S = 60.0  # of one sender and reason
LINES = 60  # of all senders together, within EVERY_S
KEPT = 1000  # senders and reasons that are remembered


class RefusalLog:
    """Decides which refusals are worth a line; the rest are counted, and told with the next one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = (
            OrderedDict()
        )  # when, and how often since
        self._began_s, self._lines, self._untold = clock(), 0, 0

    def __len__(self) -> int:
        """How many senders and reasons are remembered."""
        return len(self._told)

    def note(self, sender: str, reason: str, words: str) -> str | None:
        """Count a refusal; return the line that tells it, if it is to be told now."""
        now_s, key = self._clock(), (sender, reason)
        told_s, more = self._told.get(key, (None, 0))
        if told_s is not None and now_s - told_s < EVERY_S:
            self._told[key] = (told_s, more + 1)
            return None
        if now_s - self._began_s >= EVERY_S:
            self._began_s, self._lines = now_s, 0
        if self._lines >= LINES:
            self._untold += 1
            return None
        self._lines += 1
        self._told[key] = (now_s, 0)
        self._told.move_to_end(key)
        if len(self._told) > KEPT:
            self._told.popitem(last=False)
        often = f"; {more} times more since this was told last" if more else ""
        others = f"; and {self._untold} refusals that were not told" if self._untold else ""
        self._untold = 0
        return f"refused {sender}: {words}{often}{others}"

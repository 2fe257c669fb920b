"""How often one sender may ask: a bucket for each, which asking empties and time fills again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

SENDERS = 10_000  # whose buckets are kept: about 3 MB


class RateLimiter:
    """Lets every sender ask `per_minute` times a minute, and as often at once after a minute of rest.

    The senders that have asked least recently are forgotten first, and so have a full bucket: a flood from many
    addresses costs a bounded amount of memory, and nobody who keeps asking gets a fresh bucket by it.
    per_minute: 0 for no limit.  clock: seconds, which only grow.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float], *, senders: int = SENDERS) -> None:
        self._size, self._clock, self._senders = per_minute, clock, senders
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def __len__(self) -> int:
        """How many senders are remembered."""
        return len(self._buckets)

    def take(self, sender: str) -> float:
        """Count a request; return 0 if it may be, else the seconds until the next one may."""
        if not self._size:
            return 0.0
        now_s, per_s = self._clock(), self._size / 60
        left, since_s = self._buckets.pop(sender, (float(self._size), now_s))
        left = min(self._size, left + (now_s - since_s) * per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_s
        self._buckets[sender] = (left if wait_s else left - 1, now_s)
        if len(self._buckets) > self._senders:
            self._buckets.popitem(last=False)
        return wait_s

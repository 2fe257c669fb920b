"""Whether the recognizer is so late that one more session would cost those that run.

Theory. What a busy recognizer has no room for waits in line (dispatch.py). How long finals wait tells whether sentences
are locked in time; how long partials wait tells how far their interval is stretched, as a session asks for none while
one waits. How old texts are when they are told says the rest: decodes that take long themselves, a voice activity
network or an event loop that does not keep up. Any of the three is late when more than one in twenty of the last
WINDOW_S were beyond its bound, which is to say that their 95th percentile is; what waits longer than that now counts as
well. FEW of them say nothing. Nobody is late for a client that sends faster than it is decoded: neither its later
sentences count, nor the age of audio that could not have been spoken yet (receipts.py).

The gate has three states:

    OPEN      everybody is let in             -> CLOSED when something is late
    CLOSED    nobody is                       -> AJAR when nothing is late by half of the bounds
    AJAR      one newcomer per TRICKLE_S is   -> CLOSED when something is late; OPEN after WINDOW_S

The gap between the bounds and their halves keeps it from flapping. AJAR does so, too: what newcomers cost is seen only
once they speak, and all who were refused come back at about the same time. Nobody is late for an empty server.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto

WINDOW_S = 10.0
FEW = 3
SHARE = 0.05  # that may be late
TEXTS = 2.5  # partials may wait so many times as long as finals, and texts be so many times as old
TRICKLE_S = 1.0
CALM = 0.5  # of a bound

TEXT = "text"  # the kind of a text's age
Wait = tuple[str, float]  # kind, seconds


class Gate(Enum):
    """See the module's docstring."""

    OPEN = auto()
    CLOSED = auto()
    AJAR = auto()


State = tuple[Gate, float]  # and since when, if AJAR


class Lateness:
    """Counts waits by the second. bound_s: how long finals may wait; None: nobody is ever late.

    waiting: what waits now, and for how long it has.
    """

    def __init__(
        self,
        bound_s: float | None,
        waiting: Callable[[], Iterable[Wait]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        others_s = TEXTS * (bound_s or 0)
        self._bounds = {"final": bound_s, "partial": others_s, TEXT: others_s} if bound_s else {}
        self._waiting, self._clock = waiting, clock
        self._seconds: deque[tuple[float, Counter[tuple[str, float]]]] = deque()
        self._state: State = (Gate.OPEN, 0.0)  # when the last second of waits began
        self._admitted_s = -TRICKLE_S

    def receive_wait(self, kind: str, waited_s: float) -> None:
        """A job had its turn, or was taken out of the line, after so long; or a TEXT was told that was so old."""
        if kind not in self._bounds:
            return
        now_s = self._clock()
        if not self._seconds or now_s - self._seconds[-1][0] >= 1.0:
            self._state = self._judge(now_s)
            self._forget(now_s)
            self._seconds.append((now_s, Counter()))
        count(self._seconds[-1][1], kind, waited_s, self._bounds[kind])

    def receive_newcomer(self) -> None:
        """Somebody was let in."""
        self._admitted_s = self._clock()

    def receive_empty(self) -> None:
        """Nobody is inside: there is nobody to be late for."""
        self._seconds.clear()
        self._state = Gate.OPEN, 0.0

    @property
    def problem(self) -> str | None:
        """One sentence for whoever is refused now, or None; asking changes nothing."""
        now_s = self._clock()
        gate, _ = self._judge(now_s)
        if gate is Gate.CLOSED:
            return "the recognizer is late for the sessions that run; try again later"
        if gate is Gate.AJAR and now_s - self._admitted_s < TRICKLE_S:
            return "the recognizer was late until just now, and newcomers come one by one; try again later"
        return None

    def _judge(self, now_s: float) -> State:
        """The gate as it is now: from the last second of waits on, judged whenever a second is forgotten."""
        gate, ajar_s = self._state
        forgotten = [begun_s + WINDOW_S for begun_s, _ in self._seconds]
        moments = [begun_s for begun_s, _ in list(self._seconds)[-1:]] + forgotten + [now_s]
        for at_s in (moment for moment in moments if moment <= now_s):
            late = self._late(at_s, now_s)
            if CALM in late and gate is Gate.CLOSED:
                continue
            if 1.0 in late:
                gate = Gate.CLOSED
            elif gate is Gate.CLOSED:
                gate, ajar_s = Gate.AJAR, at_s
            elif gate is Gate.AJAR and at_s - ajar_s >= WINDOW_S:
                gate = Gate.OPEN
        return gate, ajar_s

    def _late(self, at_s: float, now_s: float) -> set[float]:
        """Of 1 and CALM, those by which something was late at a moment since the last wait came."""
        total = Counter[tuple[str, float]]()
        for begun_s, counts in self._seconds:
            if at_s - begun_s < WINDOW_S:
                total.update(counts)
        for kind, waited_s in self._waiting() if self._bounds else ():
            waited_s -= now_s - at_s
            if kind in self._bounds and waited_s > CALM * self._bounds[kind]:
                count(total, kind, waited_s, self._bounds[kind])
        return {
            part for kind in self._bounds for part in (1.0, CALM)
            if total[kind, part] >= max(FEW, SHARE * total[kind, 0.0])
        }  # fmt: skip

    def _forget(self, now_s: float) -> None:
        while self._seconds and now_s - self._seconds[0][0] >= WINDOW_S:
            self._seconds.popleft()


def count(counts: Counter[tuple[str, float]], kind: str, waited_s: float, bound_s: float) -> None:
    """Count a wait among all of its kind (0), and among those beyond each part of its bound."""
    for part in (0.0, CALM, 1.0):
        counts[kind, part] += waited_s > part * bound_s or not part

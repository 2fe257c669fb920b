"""When segments end: silence schedules, and the options of one channel's endpointing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

from realtime_server.core.segments import HOP, SAMPLES_PER_MS
from realtime_server.errors import ConfigurationError

Mode = Literal["dynamic", "fixed", "client"]

WINDOW = 20  # frames (10 ms each) over which single judgements are smoothed
TURN = 15  # of them speech: the window turns voiced at this many, silent at no more than this many
TAIL = 12  # frames that a segment goes on after the window turned silent
# From the last speech frame to the end that is announced: 50 ms until the window turns, and the tail.
SHORTEST_EAGER_MS = (WINDOW - TURN + TAIL) * HOP // SAMPLES_PER_MS
SHORTEST_SILENCE_MS = 100  # below it a schedule would be faster than the window
SHORTEST_CAP_MS = 1000
SUBTRACTED_MS = 150  # the reference counts silence from the turn of the window, and from that takes this


def _check_silence(silence_ms: int) -> None:
    if silence_ms < SHORTEST_SILENCE_MS:
        raise ConfigurationError(f"silence of {silence_ms} ms: at least {SHORTEST_SILENCE_MS} ms are needed")


@dataclass(frozen=True, slots=True)
class SilenceSchedule:
    """How much silence ends a segment, by the length of its speech.

    rows: (up to this many ms, inclusive; ms of silence), rising. Longer speech takes the last row.
    """

    rows: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        lengths = [row[0] for row in self.rows]
        if not lengths or lengths[0] <= 0 or any(b <= a for a, b in pairwise(lengths)):
            raise ConfigurationError("a silence schedule needs rows with rising lengths above 0 ms")
        for _, silence_ms in self.rows:
            _check_silence(silence_ms)

    @classmethod
    def parse(cls, source: str | Iterable[Sequence[float | str]]) -> SilenceSchedule:
        """Read pairs, or text like "5000:2000,10000:1500,inf:100"; raise ConfigurationError."""
        pairs = [row.split(":") for row in source.split(",")] if isinstance(source, str) else source
        try:
            rows = tuple((float(up_to), int(silence)) for up_to, silence in pairs)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"silence schedule {source!r}: expected LENGTH_MS:SILENCE_MS rows, as in 5000:2000,inf:500"
            ) from error
        if any(math.isnan(up_to) for up_to, _ in rows):
            raise ConfigurationError(f"silence schedule {source!r}: a length is not a number")
        return cls(rows)

    def silence_ms(self, duration_ms: float) -> int:
        """Silence that ends a segment whose speech lasts `duration_ms`."""
        return next((silence for up_to, silence in self.rows if duration_ms <= up_to), self.rows[-1][1])


LIVE_SCHEDULE = SilenceSchedule.parse("5000:2000,10000:1500,15000:1000,30000:800,45000:400,inf:100")
OFFLINE_SCHEDULE = SilenceSchedule.parse(
    "10000:2000,20000:1000,30000:800,45000:600,50000:400,60000:200,inf:100"
)


@dataclass(frozen=True, slots=True)
class ReferenceCounting:
    """How FunASR's own streaming wrapper counts under a schedule; for comparing with it, not for use."""

    idle_counts: bool  # length counts from the previous segment's end (to release 1.4.14), not from the start
    subtracted_ms: int = SUBTRACTED_MS
    call_frames: int = 6  # frames per call; the schedule is looked up once in each, trailing silence counted


@dataclass(frozen=True, slots=True)
class EndpointingOptions:
    """When segments end."""

    mode: Mode = "dynamic"  # by the schedule, after silence_ms, or only when the client commits
    silence_ms: int = 800  # of "fixed"; counted as FunASR does: 100 ms less of real silence suffice
    schedule: SilenceSchedule = LIVE_SCHEDULE  # of "dynamic"
    max_segment_ms: int = 30_000  # longer speech is cut where it is quietest
    eager_ms: int | None = 200  # silence after which a likely end is announced; None: never
    reference: ReferenceCounting | None = None  # "dynamic" only

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ConfigurationError(f"endpointing mode {self.mode!r}: expected dynamic, fixed or client")
        _check_silence(self.silence_ms)
        if self.max_segment_ms < SHORTEST_CAP_MS:
            raise ConfigurationError(
                f"longest segment of {self.max_segment_ms} ms: at least {SHORTEST_CAP_MS} ms are needed"
            )
        if self.eager_ms is not None and self.eager_ms < SHORTEST_EAGER_MS:
            raise ConfigurationError(
                f"eager silence of {self.eager_ms} ms: at least {SHORTEST_EAGER_MS} ms are needed"
            )
        if self.reference and (self.mode != "dynamic" or self.eager_ms is not None):
            raise ConfigurationError("reference counting goes with mode dynamic and eager_ms None only")

    def fitting(self, *, schedule: bool) -> EndpointingOptions:
        """The same, without a schedule where the recognizer does not bear the segments that it makes."""
        return self if schedule or self.mode != "dynamic" else replace(self, mode="fixed", reference=None)

    @classmethod
    def parse(cls, text: str) -> EndpointingOptions:
        """Read "dynamic", "dynamic:5000:2000,inf:500", "fixed:600" or "client"; raise ConfigurationError."""
        mode, _, rest = text.strip().partition(":")
        if mode == "dynamic":
            return cls(schedule=SilenceSchedule.parse(rest) if rest else LIVE_SCHEDULE)
        if mode == "fixed" and rest.isascii() and rest.isdigit():
            return cls(mode="fixed", silence_ms=int(rest))
        if mode == "client" and not rest:
            return cls(mode="client")
        raise ConfigurationError(
            f"endpointing {text!r}: expected dynamic, dynamic:LENGTH_MS:SILENCE_MS,..., "
            "fixed:SILENCE_MS or client"
        )

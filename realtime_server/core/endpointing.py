"""Where segments begin and end, from one probability of speech per 10 ms.

Two decisions are stacked. A window over the last 200 ms turns single judgements into *voiced* or
*silent*, with hysteresis: 150 ms of speech in it make it voiced, 50 ms of silence silent. On top runs the
segment:

    state        what happens                                next     events
    IDLE         the window turns voiced                     OPEN     SpeechStarted, at most 400 ms back
    IDLE         speech while still voiced, after a cut      OPEN     SpeechStarted, at the cut
    OPEN         silent, eager_ms since the last speech      PAUSED   SpeechPaused
    PAUSED       the window turns voiced                     OPEN     SpeechResumed
    OPEN PAUSED  silent, as long as the options ask for      IDLE     SpeechEnded
    OPEN PAUSED  max_segment_ms reached, silent              IDLE     SpeechEnded
    OPEN         max_segment_ms reached, voiced              OPEN     SpeechEnded, SpeechStarted, at the cut
    OPEN         the same, and no speech after the cut       IDLE     SpeechEnded
    OPEN PAUSED  commit, or end of the audio                 IDLE     SpeechEnded

A SpeechPaused is followed by SpeechResumed or by a SpeechEnded that says the same. An end while voiced leaves
the window as it is, so that speech going on is not lost; any other end empties it. The window, and the mode
"fixed", follow FunASR's FsmnVADStreaming to the frame. Inside the class, positions are frame numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from realtime_server.core.endpointing_options import (
    LIVE_SCHEDULE,
    OFFLINE_SCHEDULE,
    SUBTRACTED_MS,
    TAIL,
    TURN,
    WINDOW,
    EndpointingOptions,
    Mode,
    ReferenceCounting,
    SilenceSchedule,
)
from realtime_server.core.segments import HOP, SAMPLES_PER_MS

__all__ = [
    "LIVE_SCHEDULE",
    "OFFLINE_SCHEDULE",
    "EndpointEvent",
    "Endpointer",
    "EndpointingOptions",
    "ReferenceCounting",
    "SilenceSchedule",
    "SpeechEnded",
    "SpeechPaused",
    "SpeechResumed",
    "SpeechStarted",
]

HOP_MS = HOP // SAMPLES_PER_MS
LOOK_BACK = 40  # frames before the turn to voiced at which a segment starts: the window and 200 ms more
# A frame is speech from this probability on: the reference's own thresholds, with and without a schedule.
SPEECH: dict[Mode, float] = {"dynamic": 0.75, "client": 0.75, "fixed": 0.8}


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """A segment opened at sample `start`."""

    start: int


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """If nothing more is said, the open segment will be exactly [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Speech again after SpeechPaused, from sample `at`; the segment goes on."""

    at: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """The segment is [start, end)."""

    start: int
    end: int


EndpointEvent = SpeechStarted | SpeechPaused | SpeechResumed | SpeechEnded


class State(Enum):
    """Where a channel stands; the table at the top of the module has the transitions."""

    IDLE = "idle"
    OPEN = "open"
    PAUSED = "paused"


class Endpointer:
    """Turns one channel's probabilities into segments; how they are split over calls does not matter."""

    def __init__(self, options: EndpointingOptions, find_cut: Callable[[int, int], int]) -> None:
        """Start at sample 0.

        find_cut: sample of lowest energy between first and last, both multiples of HOP and already judged.
        """
        self._options = options
        self._find_cut = find_cut
        self._threshold = SPEECH[options.mode]
        self._cap = options.max_segment_ms // HOP_MS
        self._window: deque[bool] = deque([False] * WINDOW, WINDOW)
        self._voiced = False
        self._state = State.IDLE
        self._frames = 0  # judged so far
        self._start = 0  # of the open segment
        self._first = 0  # speech frame of the open segment
        self._heard = 0  # latest speech frame at all
        self._last = 0  # latest speech frame that was part of voiced time
        self._turn = 0  # latest voiced frame, or the one at which the window turned silent
        self._end = 0  # of the previous segment
        self._idle_from = 0  # where the reference counts from: end of the call in which a segment ended

    @property
    def position(self) -> int:
        """Samples judged so far."""
        return self._frames * HOP

    @property
    def open_start(self) -> int | None:
        """First sample of the open segment, if there is one."""
        return None if self._state is State.IDLE else self._start * HOP

    @property
    def speech_end(self) -> int:
        """Sample at which the open segment would end if nothing more were said."""
        return self._natural_end() * HOP

    @property
    def settled(self) -> int:
        """Sample before which nothing will be part of a future segment; it never decreases."""
        idle = self._state is State.IDLE
        return HOP * (max(self._end, self._frames - LOOK_BACK) if idle else self._start)

    def receive_probabilities(self, probabilities: ArrayLike) -> list[EndpointEvent]:
        """Judge the next frames, one per HOP; act on the events in order."""
        events: list[EndpointEvent] = []
        for speech in (np.asarray(probabilities) >= self._threshold).tolist():
            events += self._judge(speech)
        return events

    def receive_commit(self, at: int) -> list[EndpointEvent]:
        """Close the open segment now, at sample `at` of the audio, of which the last 100 ms may not be judged yet.

        A segment in an announced pause ends where the pause said. No new one opens before that end.
        """
        if self._state is State.IDLE:
            return []
        paused, spoken = self._state is State.PAUSED, self._heard != self._last
        if paused and not spoken:
            return [self._close(self._natural_end())]
        # Speech since the pause was too little for the window, but the last word may be in it.
        resumed: list[EndpointEvent] = [self._resume(self._heard)] if paused else []
        latest = self._start + self._cap
        return [*resumed, self._close(min(max(self._frames, at // HOP), latest))]

    def receive_end(self, position: int) -> list[EndpointEvent]:
        """Close the open segment as by commit, because the audio is over at sample `position`.

        Call it after the last probabilities; they, and so the segment, stop up to 35 ms short of the audio.
        """
        if position < self.position:
            raise ValueError(f"{self.position} samples were judged, more than the {position} that there are")
        return self.receive_commit(self.position)

    def _judge(self, speech: bool) -> list[EndpointEvent]:
        frame, was_voiced = self._frames, self._voiced
        self._frames += 1
        self._window.append(speech)
        count = sum(self._window)
        self._voiced = count > TURN if was_voiced else count >= TURN
        if speech:
            self._heard = frame
        if was_voiced or self._voiced:
            self._last, self._turn = self._heard, frame
        if self._state is not State.IDLE:
            return self._follow(frame)
        if self._voiced and (speech or not was_voiced) and frame >= self._end:
            return [self._open(max(self._end, frame - LOOK_BACK), self._first_in_window(frame))]
        return []

    def _follow(self, frame: int) -> list[EndpointEvent]:
        end = self._end_by_silence(frame)
        if end is not None:
            return [self._close(end)]
        events: list[EndpointEvent] = []
        if self._voiced and self._state is State.PAUSED:
            events.append(self._resume(self._first_in_window(frame)))
        if self._frames - self._start >= self._cap:
            return events + (self._cut() if self._voiced else [self._close(self._natural_end())])
        if self._is_pause(frame):
            self._state = State.PAUSED
            events.append(SpeechPaused(self._start * HOP, self._natural_end() * HOP))
        return events

    def _is_pause(self, frame: int) -> bool:
        eager_ms = self._options.eager_ms
        if self._voiced or self._state is State.PAUSED or eager_ms is None:
            return False
        return (frame - self._last) * HOP_MS >= eager_ms

    def _end_by_silence(self, frame: int) -> int | None:
        """The segment's end if the silence up to `frame` is long enough."""
        options = self._options
        if self._voiced or options.mode == "client":
            return None
        limit_ms = self._limit_ms(frame)
        if options.mode == "dynamic" and options.reference is None:
            # Speech that has just come back may turn the window voiced in time: it is no silence that ends.
            silent_ms = (frame - self._last) * HOP_MS if self._heard < frame else 0
            return self._natural_end() if silent_ms >= limit_ms else None
        counted = frame - self._turn
        subtracted_ms = options.reference.subtracted_ms if options.reference else SUBTRACTED_MS
        limit_ms = max(limit_ms - subtracted_ms, 0)
        if counted == 0 or counted * HOP_MS < limit_ms:
            return None
        return self._frames - max(0, limit_ms // HOP_MS - (TAIL - 1))

    def _limit_ms(self, frame: int) -> int:
        options, reference = self._options, self._options.reference
        if options.mode == "fixed":
            return options.silence_ms
        if reference is None:
            return options.schedule.silence_ms((self._last - self._first + 1) * HOP_MS)
        since = self._idle_from if reference.idle_counts else self._start
        return options.schedule.silence_ms((_call_end(frame, reference.call_frames) - since) * HOP_MS)

    def _natural_end(self) -> int:
        """Where silence ends the segment: after its tail, which may not be judged yet."""
        return min(self._frames, self._turn + TAIL)

    def _first_in_window(self, frame: int) -> int:
        return frame - WINDOW + 1 + self._window.index(True)

    def _open(self, start: int, first: int) -> SpeechStarted:
        self._state, self._start, self._first = State.OPEN, start, max(start, first)
        return SpeechStarted(start * HOP)

    def _resume(self, frame: int) -> SpeechResumed:
        self._state = State.OPEN
        return SpeechResumed(frame * HOP)

    def _close(self, end: int) -> SpeechEnded:
        """End the segment; a window that is still voiced is kept, its speech goes on after the end."""
        if not self._voiced:
            self._window.extend([False] * WINDOW)
        if self._options.reference:
            self._idle_from = _call_end(self._frames - 1, self._options.reference.call_frames)
        self._state, self._end = State.IDLE, end
        return SpeechEnded(self._start * HOP, end * HOP)

    def _cut(self) -> list[EndpointEvent]:
        """End the segment in the quietest place of its last third, and go on from there."""
        first = self._start + self._cap * 2 // 3
        cut = round(self._find_cut(first * HOP, self.position) / HOP)
        cut = min(max(cut, first), self._frames)
        ended = self._close(cut)
        return [ended, self._open(cut, cut)] if self._last >= cut else [ended]


def _call_end(frame: int, call_frames: int) -> int:
    """Frames of audio that the reference had been given when it judged `frame`: two are its look-ahead."""
    return ((frame - 2) // call_frames + 2) * call_frames

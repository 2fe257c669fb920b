"""Which pieces of a segment are embedded as one voice.

Windows of 1.5 s every 0.75 s from the segment's start; the last ends with it and is shorter. A short segment is taken
as it is. Pauses inside a segment last up to two seconds and are nobody's voice, so half a second of a window must be
speech; a segment in which no window has that gives the one that has most.

What is due while a segment grows is decided by its own samples alone, so it is the same however they are packeted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from realtime_server.core.jobs import Window
from realtime_server.core.segments import HOP, to_samples

LENGTH = to_samples(1500)  # of a window
STEP = to_samples(750)  # from window to window
FRESH = to_samples(375)  # what the last window adds, at least
ENOUGH = to_samples(500)  # speech in a window that tells one speaker from another
LEAST = to_samples(200)  # speech in a window that is embedded at all
PAUSE = to_samples(500)  # between what is said in a row and what comes after
PROBABLE = 0.5  # a frame is speech from this probability on


class Speech:
    """Which frames of a channel are speech, from its first one on: 100 bytes a second."""

    def __init__(self) -> None:
        self._frames = bytearray()  # 0 or 1 per HOP

    def receive_probabilities(self, probabilities: ArrayLike) -> None:
        """The next frames' probabilities of speech."""
        self._frames += (np.asarray(probabilities) >= PROBABLE).astype(np.uint8).tobytes()

    def count(self, window: Window) -> int:
        """Samples of speech in a window."""
        return HOP * self._frames.count(1, window.start // HOP, window.end // HOP)

    def longest(self, start: int, end: int) -> int:
        """Samples of speech in the longest part of [start, end) that no pause of PAUSE interrupts."""
        parts = self._frames[start // HOP : end // HOP].split(bytes(PAUSE // HOP))
        return HOP * max(part.count(1) for part in parts)

    def suffices(self, window: Window) -> bool:
        """Whether a window holds enough speech to tell one speaker from another."""
        return self.count(window) >= ENOUGH


def windows_until(start: int, end: int, speech: Speech) -> list[Window]:
    """Windows that are due when a segment which started at `start` has reached `end`."""
    return [window for window in _grid(start, end) if speech.suffices(window)]


def windows_of(start: int, end: int, speech: Speech) -> list[Window]:
    """Windows of the segment [start, end), in order of time: those that were due before it ended come first."""
    grid, windows = _grid(start, end), windows_until(start, end, speech)
    last = Window(start + len(grid) * STEP, end)
    if speech.suffices(last) and (not windows or end - windows[-1].end >= FRESH):
        return [*windows, last]
    fullest = max([*grid, last], key=speech.count)
    return windows or [fullest] * (speech.count(fullest) >= LEAST)


def _grid(start: int, end: int) -> list[Window]:
    return [Window(first, first + LENGTH) for first in range(start, end - LENGTH + 1, STEP)]

"""A live stream cut into clips that a recognizer can take one after the other.

Counted are frames of 10 ms. A clip ends with a pause: 0.6 s in which every frame is 30 dB or more below the loudest of
the clip. Without one it ends after 30 s, where the last 5 s of it are quietest. A clip begins half a second before its
first sound; what is before that is dropped. A sound is a frame that is louder than 30 dB below the clip before; this
limit falls by 3 dB a second, down to -80 dB of full scale. How samples are packeted does not change where they are cut.
"""

from __future__ import annotations

import numpy as np

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE

FRAME = SAMPLE_RATE // 100  # samples of 10 ms
PAUSE, LEAD, LONGEST, SEARCHED = 60, 50, 3000, 500  # frames
WINDOW = 10  # frames whose mean says how quiet a place is
QUIET = 1e-3  # of the loudest frame's power: 30 dB
SILENT = 1e-8  # power of a frame with nothing in it: -80 dB of full scale
FALL = 10**-0.003  # of the limit, in a frame: 3 dB a second


class Utterances:
    """Samples in, clips of at most 30 s out."""

    def __init__(self) -> None:
        self._rest = np.empty(0, np.float32)  # less than a frame
        self._frames: list[Samples] = []
        self._powers: list[float] = []
        self._limit = SILENT  # power above which a frame is a sound
        self._loudest = 0.0  # of the clip's frames; 0: it has not begun
        self._since_loud = 0  # frames

    def receive_audio(self, samples: Samples) -> list[Samples]:
        """Clips that these samples (16 kHz, any number of them) end."""
        samples = np.concatenate([self._rest, samples.astype(np.float32, copy=False)])
        whole = len(samples) // FRAME * FRAME
        self._rest = samples[whole:].copy()
        clips: list[Samples] = []
        for frame in samples[:whole].reshape(-1, FRAME):
            clips += self._receive_frame(frame.copy())
        return clips

    def receive_end(self) -> list[Samples]:
        """The last clip, if one has begun."""
        rest = self._rest
        begun = self._loudest or (rest.size and np.square(rest, dtype=np.float64).mean() > self._limit)
        last = np.concatenate([*self._frames, rest])
        self.__init__()  # type: ignore[misc]  # begins anew
        return [last] if begun else []

    def _receive_frame(self, frame: Samples) -> list[Samples]:
        power = float(np.square(frame, dtype=np.float64).mean())
        self._frames.append(frame)
        self._powers.append(power)
        self._limit = max(SILENT, self._limit * FALL)
        if not self._loudest and power <= self._limit:
            del self._frames[:-LEAD], self._powers[:-LEAD]
            return []
        self._loudest = max(self._loudest, power)
        self._since_loud = 0 if power > QUIET * self._loudest else self._since_loud + 1
        if self._since_loud >= PAUSE:
            self._limit = max(SILENT, QUIET * self._loudest)
            self._loudest, self._since_loud = 0.0, 0
            return [self._cut(len(self._frames))]
        return [self._cut(self._quietest())] if len(self._frames) == LONGEST else []

    def _quietest(self) -> int:
        """The frame in the middle of the quietest place of those searched."""
        powers = np.array(self._powers[-SEARCHED:])
        means = np.convolve(powers, np.full(WINDOW, 1 / WINDOW), "valid")
        return len(self._powers) - SEARCHED + int(means.argmin()) + WINDOW // 2

    def _cut(self, end: int) -> Samples:
        """The frames before `end` as a clip; the others begin the next."""
        clip = np.concatenate(self._frames[:end])
        del self._frames[:end], self._powers[:end]
        return clip

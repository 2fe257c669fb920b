"""A whole recording in memory: mono, 16 kHz, 16 bits a sample, in blocks of a minute.

Two hours are 230 MB, half of what float32 takes, and at no time are they there twice: blocks never move, so
nothing is copied to grow. The live service hears 16 bits too, so a 16-bit file sounds the same to both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from realtime_server.core.audio import to_steps
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE

Pcm16 = npt.NDArray[np.int16]

BLOCK = 60 * SAMPLE_RATE  # samples


def to_pcm16(samples: Samples) -> Pcm16:
    """Float32 samples to 16 bits, little-endian, rounded; what is beyond -1..1 is clipped."""
    return to_steps(samples).astype("<i2")


class Recording:
    """Samples addressed by position from the beginning; grows at the end, any range can be read."""

    def __init__(self) -> None:
        self._blocks: list[Pcm16] = []
        self._size = 0
        self.notes: list[str] = []  # for people: what is damaged or was clipped; empty for most files

    def __len__(self) -> int:
        """Samples at 16 kHz."""
        return self._size

    @property
    def seconds(self) -> float:
        """Duration."""
        return self._size / SAMPLE_RATE

    def append(self, samples: Pcm16) -> None:
        """Add samples, int16 (n,), at the end."""
        while len(samples):
            index, used = divmod(self._size, BLOCK)
            if not used:
                self._blocks.append(np.empty(BLOCK, "<i2"))
            part = samples[: BLOCK - used]
            self._blocks[index][used : used + len(part)] = part
            self._size += len(part)
            samples = samples[len(part) :]

    def read(self, start: int, end: int) -> Samples:
        """Return samples [start, end), float32 (end - start,) in -1..1. Raises ValueError beyond the ends."""
        if not 0 <= start <= end <= self._size:
            raise ValueError(f"[{start}, {end}) is not within the recording's [0, {self._size})")
        samples = np.empty(end - start, np.float32)
        for position in range(start - start % BLOCK, end, BLOCK):
            first, last = max(start, position), min(end, position + BLOCK)
            samples[first - start : last - start] = self._blocks[position // BLOCK][
                first - position : last - position
            ]
        samples /= 32768
        return samples

"""Samples on their way in: bytes to floats, and the audio that jobs still need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import FRAME, HOP
from realtime_server.core.setup import AudioFormat, Encoding

Channels = NDArray[np.float32]  # (channels, n)

QUIET_WINDOW = (
    12 * HOP
)  # a pause between words lasts about this long (120 ms); a plosive's closure is shorter


class SampleReader:
    """Bytes of a client's format, in any pieces, to float32 samples; what is not a whole sample waits."""

    def __init__(self, format: AudioFormat) -> None:
        self._format = format
        self._carry = b""

    def receive_bytes(self, data: bytes) -> Channels:
        """Return the whole samples in the bytes so far, float32 (channels, n) in -1..1, at the format's rate."""
        if self._carry:
            data = self._carry + data
        whole = len(data) - len(data) % self._format.frame_bytes
        self._carry = data[whole:]
        return _read_samples(data[:whole], self._format.encoding).reshape(-1, self._format.channels).T


def to_steps(samples: Samples) -> Samples:
    """Return the 16-bit values nearest to samples in -1..1, still as floats; what is beyond is clipped."""
    return np.clip(np.rint(samples * 32768), -32768, 32767)


def quantise(samples: Samples) -> Samples:
    """Return samples in -1..1, float32, as 16 bits hold them."""
    return to_steps(samples) / np.float32(32768)


def _read_samples(data: bytes, encoding: Encoding) -> Samples:
    match encoding:
        case "pcm_s16le":
            return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
        case "pcm_f32le":
            # What is no number, or louder than full scale, would harm more than its own moment.
            return np.clip(np.nan_to_num(np.frombuffer(data, "<f4").astype(np.float32)), -1.0, 1.0)
        case "mulaw":
            return _MULAW[np.frombuffer(data, np.uint8)]
        case _:
            return _ALAW[np.frombuffer(data, np.uint8)]


def _expand_mulaw() -> Samples:
    """The 256 values of G.711 mu-law: sign, three bits of exponent, four of mantissa, all inverted."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = ((2 * mantissa + 33) << exponent) - 33
    return (np.where(code & 128, -magnitude, magnitude) * 4 / 32768).astype(np.float32)


def _expand_alaw() -> Samples:
    """The 256 values of G.711 A-law, whose even bits are inverted; the sign bit is set for positive values."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = np.where(exponent, (2 * mantissa + 33) << np.maximum(exponent - 1, 0), 2 * mantissa + 1)
    return (np.where(code & 128, magnitude, -magnitude) * 8 / 32768).astype(np.float32)


_MULAW, _ALAW = _expand_mulaw(), _expand_alaw()


class AudioBuffer:
    """The samples of one channel, addressed by absolute position, forgotten from the front.

    Memory is proportional to what is kept, not to what was ever received.
    """

    def __init__(self) -> None:
        self._data = np.zeros(4 * FRAME, np.float32)
        self._used = 0  # samples of _data in use, from its beginning
        self.start = 0  # position of the oldest sample kept

    @property
    def end(self) -> int:
        """Position after the newest sample."""
        return self.start + self._used

    def append(self, samples: Samples) -> None:
        """Add samples, float32 (n,), at `end`."""
        needed = self._used + len(samples)
        if needed > len(self._data):
            grown = np.zeros(2 * needed, np.float32)
            grown[: self._used] = self._data[: self._used]
            self._data = grown
        self._data[self._used : needed] = samples
        self._used = needed

    def read(self, start: int, end: int) -> Samples:
        """Return a copy of samples [start, end). Raises ValueError for what is not kept."""
        if not self.start <= start <= end <= self.end:
            raise ValueError(f"[{start}, {end}) is not within the kept audio [{self.start}, {self.end})")
        return self._data[start - self.start : end - self.start].copy()

    def discard_before(self, position: int) -> None:
        """Forget samples before `position`; positions outside the kept audio are clipped to it."""
        drop = min(position, self.end) - self.start
        # Moving the rest costs its length: wait until at least half of what is held can go.
        if drop <= 0 or 2 * drop < self._used:
            return
        keep = self._used - drop
        size = max(4 * FRAME, 2 * keep)
        moved = np.zeros(size, np.float32) if 2 * size < len(self._data) else self._data
        moved[:keep] = self._data[drop : self._used]
        self._data, self._used, self.start = moved, keep, self.start + drop

    def quietest(self, first: int, last: int) -> int:
        """Return the position in [first, last] around which the audio has the least energy, the latest of equals.

        Both ends must lie within the kept audio.
        The energy is averaged over 120 ms, so the answer lies between words rather than inside one.
        """
        audio = self.read(max(first - QUIET_WINDOW // 2, self.start), min(last + QUIET_WINDOW // 2, self.end))
        hops = len(audio) // HOP
        span = min(QUIET_WINDOW // HOP, hops)
        if last - first < HOP or span < QUIET_WINDOW // HOP:
            return last
        energy = np.square(audio[: hops * HOP].reshape(hops, HOP)).sum(axis=1, dtype=np.float64)
        averaged = np.convolve(energy, np.ones(span), mode="valid")
        best = len(averaged) - 1 - int(np.argmin(averaged[::-1]))
        middle = max(first - QUIET_WINDOW // 2, self.start) + best * HOP + QUIET_WINDOW // 2
        return min(max(middle, first), last)

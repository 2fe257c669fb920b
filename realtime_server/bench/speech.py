"""Read speech whose true beginnings and ends are known, in the pieces and at the times a benchmark needs.

Where speech is, is told by loudness of clean recordings, not by the voice activity network under test. The two
agree to about 50 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from realtime_server import weights
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import HOP, SAMPLES_PER_MS
from realtime_server.demo import load_client
from realtime_server.errors import ConfigurationError

HOP_MS = HOP // SAMPLES_PER_MS
READING = "two_cities.wav"
LOUD_DB = -25.0  # speech is what is louder than this, against the loud parts of the recording
PAUSE_MS = 250  # shorter pauses belong to the speech around them
SHORTEST_MS = 300  # shorter sounds are breaths and clicks
EDGE_MS = 150  # kept before and behind a piece cut out: soft sounds lie there
NOISE = 0.0005  # RMS between pieces: -66 dB, the rustle of a quiet room

Spell = tuple[int, int]  # speech from here to there, ms


@dataclass(frozen=True, slots=True)
class Recording:
    """Samples, 16 kHz, and the spells of speech in them, in order."""

    samples: Samples
    spells: tuple[Spell, ...]

    @property
    def ms(self) -> int:
        """Its length."""
        return len(self.samples) // SAMPLES_PER_MS

    @property
    def spoken_ms(self) -> int:
        """The speech in it."""
        return sum(end - start for start, end in self.spells)

    def cut(self, first_ms: int, last_ms: int) -> Recording:
        """The part from first_ms to last_ms, with the spells that lie in it, clipped and counted from there."""
        clipped = ((max(a, first_ms), min(b, last_ms)) for a, b in self.spells)
        spells = tuple((a - first_ms, b - first_ms) for a, b in clipped if a < b)
        return Recording(self.samples[first_ms * SAMPLES_PER_MS : last_ms * SAMPLES_PER_MS], spells)

    def from_on(self, offset_ms: int) -> Recording:
        """The same from `offset_ms` on, with what is before it at the end."""
        return join([self.cut(offset_ms, self.ms), self.cut(0, offset_ms)])


def load(path: Path) -> Recording:
    """Read a recording and find the speech in it. Raises ConfigurationError if it cannot be read."""
    client = load_client()
    try:
        samples = np.concatenate([np.empty(0, np.float32), *client.decode(path)])
    except client.ClientError as error:  # a package is missing: it says which
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    samples = samples[: len(samples) // HOP * HOP]
    return Recording(samples, find_speech(samples))


def reading() -> Recording:
    """44 s of Dickens."""
    return load(weights.find("recordings") / READING)


def clips() -> list[Recording]:
    """Short clips of synthetic speech, English and Mandarin."""
    folder = weights.find("clips")
    return [load(path) for language in ("en", "zh") for path in sorted((folder / language).glob("*.wav"))]


def find_speech(samples: Samples) -> tuple[Spell, ...]:
    """Spells of speech by loudness."""
    whole = samples[: len(samples) // HOP * HOP].reshape(-1, HOP)
    level = np.sqrt(np.mean(np.square(whole), axis=1))
    loud = np.flatnonzero(level > np.percentile(level, 95) * 10 ** (LOUD_DB / 20)) if level.size else level
    if not loud.size:
        return ()
    gaps = np.flatnonzero(np.diff(loud) * HOP_MS > PAUSE_MS)
    starts, ends = loud[np.r_[0, gaps + 1]], loud[np.r_[gaps, loud.size - 1]] + 1
    spells = zip((starts * HOP_MS).tolist(), (ends * HOP_MS).tolist(), strict=True)
    return tuple((start, end) for start, end in spells if end - start >= SHORTEST_MS)


def utterances(recording: Recording) -> list[Recording]:
    """Cut a recording into its spells, with what is soft around them."""
    return [recording.cut(max(0, a - EDGE_MS), min(recording.ms, b + EDGE_MS)) for a, b in recording.spells]


def quiet(ms: int) -> Recording:
    """Faint noise without speech."""
    noise = np.random.default_rng(ms).normal(0.0, NOISE, ms * SAMPLES_PER_MS).astype(np.float32)
    return Recording(noise, ())


def join(parts: Iterable[Recording]) -> Recording:
    """One after the other; a spell that goes on in the next part becomes one."""
    pieces: list[Samples] = []
    spells: list[Spell] = []
    at = 0
    for part in parts:
        for start, end in part.spells:
            begin = spells.pop()[0] if spells and spells[-1][1] == start + at else start + at
            spells.append((begin, end + at))
        pieces.append(part.samples)
        at += part.ms
    return Recording(np.concatenate([np.empty(0, np.float32), *pieces]), tuple(spells))


def with_pauses(parts: Sequence[Recording], pause_ms: int) -> Recording:
    """The parts, a pause before each."""
    return join(piece for part in parts for piece in (quiet(pause_ms), part))

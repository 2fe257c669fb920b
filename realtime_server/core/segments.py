"""Units of time, and the values that travel: Segment, Word, Sentence.

The sample count since START, at 16 kHz, is the only clock inside a session. Positions are absolute sample
numbers of their channel; what leaves the server is integer milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

SAMPLE_RATE = 16_000  # Hz, of everything behind the wire
SAMPLES_PER_MS = SAMPLE_RATE // 1000
HOP = 10 * SAMPLES_PER_MS  # samples per VAD probability (10 ms)
FRAME = 60 * SAMPLES_PER_MS  # samples per frame handed to the VAD (60 ms)

Flag = Literal["recovered", "truncated", "failed"]


def to_ms(samples: int) -> int:
    """Milliseconds of `samples`, rounded down."""
    return samples // SAMPLES_PER_MS


def to_samples(ms: float) -> int:
    """Samples of `ms` milliseconds, rounded to the nearest."""
    return round(ms * SAMPLES_PER_MS)


@dataclass(frozen=True, slots=True)
class Segment:
    """Audio between two endpoints: samples [start, end) of one channel, numbered from 0 per channel."""

    index: int
    channel: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"segment [{self.start}, {self.end}) is empty or negative")

    @property
    def start_ms(self) -> int:
        """Start in milliseconds."""
        return to_ms(self.start)

    @property
    def end_ms(self) -> int:
        """End in milliseconds."""
        return to_ms(self.end)


@dataclass(frozen=True, slots=True)
class Word:
    """A word, or a character where the script has no spaces; times in ms, confidence in 0..1 or None."""

    text: str
    start_ms: int
    end_ms: int
    confidence: float | None = None

    def shifted(self, by_ms: int) -> Word:
        """The same word, `by_ms` later."""
        return replace(self, start_ms=self.start_ms + by_ms, end_ms=self.end_ms + by_ms)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of locked text: a segment's, or one speaker's part of it. Times in ms from START.

    Text, times and order never change once the sentence has been sent; `speaker` may be revised.
    """

    id: int
    segment: int
    channel: int
    text: str
    start_ms: int
    end_ms: int
    words: tuple[Word, ...] = ()
    language: str | None = None
    confidence: float | None = None
    speaker: int | None = None
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeakerChange:
    """A locked sentence's speaker, as it was told and as it is now."""

    id: int  # of the sentence
    before: int | None
    after: int | None

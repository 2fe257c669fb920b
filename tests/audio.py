"""Synthetic audio for tests: float32, mono, 16 kHz. To the fakes a tone is speech and silence is not."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE

TONE_HZ = 400  # whole periods per 10 ms, so every VAD hop of a tone has the same level


def tone(seconds: float, level: float = 0.3) -> Samples:
    """A sine of peak `level`, round(seconds * 16000) samples."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (level * np.sin(2 * np.pi * TONE_HZ * times)).astype(np.float32)


def silence(seconds: float) -> Samples:
    """Zeros, round(seconds * 16000) samples."""
    return np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)


def speech_pattern(parts: Iterable[tuple[float, float]], level: float = 0.3) -> Samples:
    """Pairs of (seconds of tone, seconds of pause), one after the other."""
    pieces = [piece for speech, pause in parts for piece in (tone(speech, level), silence(pause))]
    return np.concatenate([silence(0.0), *pieces])


def pcm16(samples: Samples) -> bytes:
    """The samples as clients send them: 16-bit little-endian, clipped to -1..1."""
    return np.rint(np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes()

"""Synthetic voices, the same numbers everywhere."""

from __future__ import annotations

import numpy as np

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE

# Hz and seconds of those in tests/data/campplus-vectors.json
VOICES = ((110.0, 1.5), (205.0, 1.5), (150.0, 0.5), (150.0, 5.0))


def voice(hz: float, seconds: float, seed: int = 0) -> Samples:
    """A buzz at `hz` that glides a little, and noise; the same numbers everywhere."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    phase = 2 * np.pi * hz * (times + 0.01 * np.sin(3.0 * times))
    buzz = sum(np.sin(k * phase) / k for k in range(1, 12))
    noise = np.random.RandomState(seed).standard_normal(times.size)  # its numbers never change
    samples: Samples = (0.1 * buzz * (0.6 + 0.4 * np.sin(12.0 * times)) + 0.01 * noise).astype(np.float32)
    return samples

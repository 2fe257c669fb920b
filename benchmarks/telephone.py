"""What a telephone leaves of a sound: 8 kHz, mu-law (ITU-T G.711), and on older lines 300 to 3400 Hz."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.libraries import needed
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE

RATE = 8000
BAND_HZ = (300, 3400)
ORDER = 4


def g711(samples: Samples) -> Samples:
    """The same, 16 kHz again, as many samples. Raises ConfigurationError if its libraries are missing."""
    return _widened(_mu_law(_narrowed(samples)), len(samples))


def old_line(samples: Samples) -> Samples:
    """The same through a line that lets 300 to 3400 Hz pass."""
    signal = needed("scipy.signal", "speakers")
    band = signal.butter(ORDER, BAND_HZ, "bandpass", fs=RATE, output="sos")
    return _widened(_mu_law(signal.sosfilt(band, _narrowed(samples))), len(samples))


def _narrowed(samples: Samples) -> Samples:
    return np.asarray(needed("soxr", "files").resample(samples, SAMPLE_RATE, RATE), np.float32)


def _widened(samples: Samples, count: int) -> Samples:
    wide = np.asarray(needed("soxr", "files").resample(samples, RATE, SAMPLE_RATE), np.float32)[:count]
    return np.pad(wide, (0, count - len(wide)))


def _mu_law(samples: NDArray[Any]) -> Samples:
    soundfile, file = needed("soundfile", "files"), io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="ULAW")
    file.seek(0)
    return np.asarray(soundfile.read(file, dtype="float32")[0])

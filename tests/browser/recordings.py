"""Sound files for the browser's microphone and file field."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt


def read_wav(path: Path) -> tuple[npt.NDArray[np.float64], int]:
    """Read mono PCM16 as samples in -1..1 and their rate."""
    with wave.open(str(path), "rb") as file:
        data = file.readframes(file.getnframes())
        return np.frombuffer(data, "<i2") / 32768, file.getframerate()


def write_wav(path: Path, samples: npt.NDArray[np.float64], rate: int) -> None:
    """Write mono samples in -1..1 as PCM16."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def tones(rate: int, seconds: float, *frequencies: float) -> npt.NDArray[np.float64]:
    """Sum of sines of amplitude 0.2."""
    t = np.arange(int(rate * seconds)) / rate
    return np.sum([0.2 * np.sin(2 * np.pi * f * t) for f in frequencies], axis=0)


def level_at(samples: npt.NDArray[np.float64], frequency: float, rate: int = 16000) -> float:
    """Amplitude of the sine of this frequency in `samples`, in decibels of full scale."""
    window = np.hanning(len(samples))
    t = np.arange(len(samples)) / rate
    amplitude = 2 * np.abs(np.sum(samples * window * np.exp(-2j * np.pi * frequency * t))) / window.sum()
    return float(20 * np.log10(max(amplitude, 1e-9)))

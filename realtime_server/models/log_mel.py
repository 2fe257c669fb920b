"""Whisper's log-mel spectrogram, in numpy; glm_asr.py has it in torch, of the same filters.

Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), section 2.2, and the
Slaney mel scale of the Auditory Toolbox (1998), which the model was trained with. The encoder sees a fixed
context: the audio is padded with silence, because a mel padded with a constant is something it never heard.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import HOP, SAMPLE_RATE

N_FFT = 400  # samples: 25 ms
N_MELS = 80
FRAMES_PER_S = SAMPLE_RATE // HOP  # 100 mel frames per second
FLOOR = 1e-10  # power below which everything is silence
RANGE = 8.0  # decades below the loudest bin that are kept

# The Slaney scale: linear up to 1 kHz, logarithmic above.
HZ_PER_MEL = 200 / 3
KNEE_HZ = 1000.0
KNEE_MEL = KNEE_HZ / HZ_PER_MEL
LOG_STEP = np.log(6.4) / 27  # natural log of the frequency ratio per mel above the knee

Mel = NDArray[np.float32]  # (80, frames)


def log_mel(audio: Samples, frames: int) -> Mel:
    """Log-mel spectrogram of `audio` followed by silence: float32 (80, frames), 100 frames per second.

    audio: float32, 16 kHz, at most `frames` x 160 samples; ValueError if it is longer.
    """
    if len(audio) > frames * HOP:
        raise ValueError(f"{len(audio)} samples do not fit into {frames} frames of {HOP}")
    # Frame i is centred on sample 160 i. Frames that reach past the audio see zeros; those wholly past it are
    # the floor, which spares their transforms.
    heard = min(frames, -(-(len(audio) + N_FFT // 2) // HOP))
    spectrum = np.fft.rfft(_framed(audio, frames, heard) * window(), axis=1)
    power = np.ascontiguousarray((spectrum.real**2 + spectrum.imag**2).T)
    mel = np.full((N_MELS, frames), FLOOR, dtype=np.float32)
    # Summed by hand: a matrix product differs in its last bit with the number of threads that the linear algebra
    # library happens to use, and a last bit may turn a word. Only the bins under each triangle count.
    for row, (first, weights) in enumerate(_bands()):
        np.sum(power[first : first + len(weights)] * weights, axis=0, out=mel[row, :heard])
    np.maximum(mel, FLOOR, out=mel)
    np.log10(mel, out=mel)
    np.maximum(mel, mel.max() - RANGE, out=mel)
    return (mel + 4.0) / 4.0


@lru_cache(maxsize=2)
def mel_filters(mels: int = N_MELS) -> NDArray[np.float32]:
    """Triangular filters of equal area on the Slaney mel scale: float32 (mels, 201)."""
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(SAMPLE_RATE / 2), mels + 2))
    bins = np.linspace(0.0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (right - left))
    return triangles.astype(np.float32)


@lru_cache(maxsize=1)
def _bands() -> tuple[tuple[int, NDArray[np.float32]], ...]:
    """Of each filter the first bin that counts, and the weights from there on, float32 (n, 1)."""
    rows = ((np.flatnonzero(row), row) for row in mel_filters())
    return tuple((int(bins[0]), row[bins[0] : bins[-1] + 1, None]) for bins, row in rows)


def _framed(audio: Samples, frames: int, heard: int) -> NDArray[np.float32]:
    """The first `heard` overlapping frames, (heard, 400); the edges of the context are mirrored, as in training."""
    half = N_FFT // 2
    context = np.zeros(frames * HOP, dtype=np.float32)
    context[: len(audio)] = audio
    padded = np.pad(context[: heard * HOP + half], (half, half), mode="reflect")
    return sliding_window_view(padded, N_FFT)[::HOP][:heard]


@lru_cache(maxsize=1)
def window() -> NDArray[np.float32]:
    """Periodic Hann window, float32 (400,)."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)).astype(np.float32)


def _hz_to_mel(hz: float) -> float:
    """Mel of a frequency above the knee."""
    return float(KNEE_MEL + np.log(hz / KNEE_HZ) / LOG_STEP)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies of mels."""
    return np.where(mel < KNEE_MEL, mel * HZ_PER_MEL, KNEE_HZ * np.exp(LOG_STEP * (mel - KNEE_MEL)))

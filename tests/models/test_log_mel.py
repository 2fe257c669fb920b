"""The spectrogram against a slow one written from the definition."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from realtime_server.core.jobs import Samples
from realtime_server.models.log_mel import FRAMES_PER_S, log_mel, mel_filters
from tests.audio import silence, tone


def slow_log_mel(audio: Samples, frames: int) -> np.ndarray:
    """The definition, in float64: DFT by its matrix, filters by their formula, one frame at a time."""
    padded = np.pad(np.concatenate([audio, np.zeros(frames * 160 - len(audio))]), 200, mode="reflect")
    window = [0.5 * (1 - math.cos(2 * math.pi * n / 400)) for n in range(400)]
    dft = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    mel = np.empty((80, frames))
    for frame in range(frames):
        power = np.abs(dft @ (padded[frame * 160 : frame * 160 + 400] * window)) ** 2
        mel[:, frame] = slow_filters() @ power
    logarithm = np.log10(np.maximum(mel, 1e-10))
    return (np.maximum(logarithm, logarithm.max() - 8) + 4) / 4


def slow_filters() -> np.ndarray:
    def hertz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    top = 15 + 27 * math.log(8) / math.log(6.4)  # mels of 8 kHz
    edges = [hertz(top * n / 81) for n in range(82)]
    filters = np.zeros((80, 201))
    for band, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for line in range(201):
            at = line * 40.0
            slope = (at - left) / (centre - left) if at <= centre else (right - at) / (right - centre)
            filters[band, line] = max(0.0, slope) * 2 / (right - left)
    return filters


def noise(samples: int) -> Samples:
    return np.random.default_rng(samples).normal(0, 0.1, samples).astype(np.float32)


def test_filters_are_the_slow_ones() -> None:
    np.testing.assert_allclose(mel_filters(), slow_filters(), atol=1e-8)


@pytest.mark.parametrize(
    "audio",
    [noise(8000), noise(16000), noise(15999), noise(161), noise(1), tone(0.3), silence(0.5), silence(0.0)],
    ids=["half", "full", "nearly full", "a frame", "a sample", "tone", "zeros", "nothing"],
)
def test_mel_is_the_slow_one(audio: Samples) -> None:
    mel = log_mel(audio, 100)
    assert mel.shape == (80, 100)
    assert mel.dtype == np.float32
    np.testing.assert_allclose(mel, slow_log_mel(audio, 100), atol=2e-5)


def test_padding_is_silence_in_the_audio() -> None:
    audio = noise(4800)
    padded = np.concatenate([audio, silence(1.7)])
    np.testing.assert_allclose(log_mel(audio, 2 * FRAMES_PER_S), log_mel(padded, 2 * FRAMES_PER_S), atol=1e-6)


def test_audio_longer_than_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="16001 samples"):
        log_mel(noise(16001), 100)


def test_it_does_not_depend_on_the_threads_of_the_linear_algebra_library() -> None:
    """A last bit that differs between two processes may turn a word: streamed and offline text must be the same."""
    code = (
        "import hashlib, numpy as np; from realtime_server.models.log_mel import log_mel;"
        "audio = np.random.default_rng(0).normal(0, 0.1, 160_000).astype(np.float32);"
        "print(hashlib.sha256(log_mel(audio, 1200).tobytes()).hexdigest())"
    )

    def digest(threads: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert digest("1") == digest("2") == digest("4")

"""What a telephone does to every voice: where it lies, and that voices are alike again without it."""

from __future__ import annotations

import numpy as np
import pytest

from realtime_server.models.campplus_channel import channel_directions
from realtime_server.models.speaker_network import Floats


def test_the_directions_are_orthonormal() -> None:
    directions = channel_directions()
    assert (directions.shape, directions.dtype) == ((2, 192), np.float32)
    assert np.allclose(directions @ directions.T, np.eye(2), atol=1e-6)


@pytest.mark.embedded
@pytest.mark.parametrize("line", ["g711", "old_line"])
def test_voices_move_along_them(line: str) -> None:
    """A reader who is none of those that the directions were found with."""
    pytest.importorskip("soxr", reason="the extra 'files' is not installed")
    pytest.importorskip("kaldi_native_fbank", reason="the CPU recognizer is not installed")
    from benchmarks import telephone
    from realtime_server.bench import speech
    from realtime_server.models.speaker_features import features
    from tests.models.speaker import network

    reading = speech.reading().samples[: 16 * 24_000]
    by_telephone = getattr(telephone, line)(reading)

    def mean(samples: Floats, directions: Floats) -> Floats:
        windows = np.stack([features(window) for window in samples.reshape(-1, 24_000)])
        vectors = network().embed(windows)
        vectors = vectors - vectors @ directions.T @ directions
        total: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).mean(axis=0)
        return total / np.linalg.norm(total)

    none, directions = np.zeros((0, 192), np.float32), channel_directions()
    before = float(mean(reading, none) @ mean(by_telephone, none))
    after = float(mean(reading, directions) @ mean(by_telephone, directions))
    print(f"{line}: {before:.2f} before, {after:.2f} after")
    assert after > before + 0.05
    assert after > 0.65

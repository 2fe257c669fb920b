"""What speaker networks see: how many frames, of what."""

from __future__ import annotations

import numpy as np
import pytest

from realtime_server.models.speaker_features import features, samples_of
from tests.models.voices import voice

pytestmark = pytest.mark.embedded


@pytest.mark.parametrize(
    ("samples", "frames"), [(400, 1), (559, 1), (560, 2), (720, 3), (16_000, 98), (24_000, 148)]
)
def test_frames_lie_within_the_samples(samples: int, frames: int) -> None:
    found = features(voice(150, 2.0)[:samples])
    assert found.shape == (frames, 80)
    assert found.dtype == np.float32
    assert samples_of(frames) <= samples < samples_of(frames + 1)


def test_less_than_a_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="399 samples are no frame of 400"):
        features(voice(150, 1.0)[:399])


def test_every_band_is_relative_to_its_mean() -> None:
    found = features(voice(150, 1.5))
    assert np.abs(found.mean(axis=0)).max() < 1e-4
    assert np.abs(found - features(0.25 * voice(150, 1.5))).max() < 1e-3


def test_silence_has_features_without_an_infinity() -> None:
    assert np.array_equal(features(np.zeros(24_000, np.float32)), np.zeros((148, 80)))


def test_a_frame_sees_only_its_samples() -> None:
    audio = voice(150, 1.5)
    first = features(audio)
    audio[-160:] = 0.0
    moved = features(audio) - first
    assert np.ptp(moved[:-1], axis=0).max() < 1e-4  # only the mean has moved
    assert np.abs(moved[-1] - moved[0]).max() > 0.1

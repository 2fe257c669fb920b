"""A client's audio on its way to 16 kHz: no seams between frames, nothing lost at the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core import messages as m
from realtime_server.core.audio import Channels
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.setup import AudioFormat, Encoding
from realtime_server.realtime.audio_input import AudioInput, check_resampling

RATES = [8_000, 11_025, 22_050, 44_100, 48_000]


def heard(format: AudioFormat, pieces: Iterable[bytes]) -> Channels:
    it = AudioInput(format)
    return np.concatenate([*(it.receive_bytes(piece) for piece in pieces), it.receive_end()], axis=1)


def sine(hertz: float, rate: int, seconds: float = 0.5) -> Channels:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)).astype("<f4")


def test_16_khz_passes_as_it_is() -> None:
    data = np.array([1, -2, 3], "<i2").tobytes()
    it = AudioInput(AudioFormat())
    assert (it.receive_bytes(data + b"\x01") * 32768).tolist() == [[1, -2, 3]]
    assert it.receive_end().shape == (1, 0)


@pytest.mark.parametrize("rate", RATES)
def test_a_tone_stays_a_tone_and_keeps_its_length_and_place(rate: int) -> None:
    (tone,) = heard(AudioFormat("pcm_f32le", rate), [sine(440, rate).tobytes()])
    wanted = sine(440, SAMPLE_RATE)
    assert abs(len(tone) - len(wanted)) <= 1
    middle = slice(1000, len(wanted) - 1000)
    assert np.abs(tone[middle] - wanted[middle]).max() < 0.01


@given(st.sampled_from(RATES), st.integers(1, 3), st.lists(st.integers(0, 8000), max_size=6))
@settings(max_examples=40, deadline=None)
def test_frames_of_any_size_give_the_same_samples(rate: int, channels: int, cuts: list[int]) -> None:
    format = AudioFormat("pcm_f32le", rate, channels)
    data = np.random.default_rng(1).uniform(-0.5, 0.5, 2000 * channels).astype("<f4").tobytes()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = heard(format, [data[a:b] for a, b in pairwise(edges)])
    whole = heard(format, [data])
    assert np.array_equal(pieces, whole)


@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le", "mulaw", "alaw"])
@pytest.mark.parametrize("rate", [SAMPLE_RATE, 44_100])
def test_what_is_heard_has_16_bits_whatever_the_format(encoding: Encoding, rate: int) -> None:
    data = sine(440, rate).tobytes()
    steps = heard(AudioFormat(encoding, rate), [data]) * 32768
    assert steps.dtype == np.float32
    assert steps.size
    assert np.array_equal(steps, np.round(steps))
    assert -32768 <= steps.min() < 0 < steps.max() <= 32767


def test_floats_are_heard_as_their_nearest_samples_of_16_bits() -> None:
    floats = np.random.default_rng(1).uniform(-1, 1, 5000).astype("<f4")
    whole = np.round(floats * 32768).clip(max=32767).astype("<i2")
    as_floats, as_whole = (
        heard(AudioFormat("pcm_f32le"), [floats.tobytes()]),
        heard(AudioFormat(), [whole.tobytes()]),
    )
    assert np.array_equal(as_floats, as_whole)


def test_channels_are_resampled_each_by_itself() -> None:
    both = np.stack([sine(440, 48_000), np.zeros(24_000, "<f4")], axis=1)
    left, right = heard(AudioFormat("pcm_f32le", 48_000, 2), [both.tobytes()])
    assert np.abs(left).max() > 0.4
    assert not right.any()


def test_what_resampling_adds_to_full_scale_is_clipped() -> None:
    square = np.sign(sine(1000, 48_000)).astype("<f4")
    (samples,) = heard(AudioFormat("pcm_f32le", 48_000), [square.tobytes()])
    assert np.abs(samples).max() <= 1.0


def test_a_rate_that_needs_a_missing_package_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    start = m.Start()
    assert check_resampling(start, AudioFormat()) is start
    refused = check_resampling(start, AudioFormat(sample_rate=8_000))
    assert isinstance(refused, m.Invalid)
    assert (refused.field, refused.protocol) == ("sample_rate", 2)
    assert "soxr, of its extra 'files'" in refused.message

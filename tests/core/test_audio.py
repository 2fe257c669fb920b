"""Bytes to samples, samples to frames, and the audio that is kept."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.audio import AudioBuffer, SampleReader, quantise, to_steps
from realtime_server.core.segments import FRAME, HOP
from realtime_server.core.setup import AudioFormat, Encoding
from tests.audio import silence, tone


@given(
    st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6),
    st.sampled_from(get_args(Encoding)), st.integers(1, 8),
)  # fmt: skip
def test_bytes_in_any_pieces_give_the_same_samples(
    data: bytes, cuts: list[int], encoding: Encoding, channels: int
) -> None:
    format = AudioFormat(encoding, 8_000, channels)
    whole = SampleReader(format).receive_bytes(data)
    reader, edges = SampleReader(format), [0, *sorted(cuts), len(data)]
    pieces = [reader.receive_bytes(data[a:b]) for a, b in pairwise(edges)]
    assert whole.shape == (channels, len(data) // format.frame_bytes)
    assert np.array_equal(np.concatenate(pieces, axis=1), whole)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    assert (np.abs(whole) <= 1).all()


def test_pcm16_spans_minus_one_to_one() -> None:
    (samples,) = SampleReader(AudioFormat()).receive_bytes(np.array([-32768, 0, 32767], "<i2").tobytes())
    assert samples.tolist() == [-1.0, 0.0, 32767 / 32768]


def test_samples_go_to_the_nearest_of_16_bits() -> None:
    steps = np.array([-40_000.0, -32_768.2, -0.6, 0.4, 1.0, 32_767.4, 32_768.0], np.float32)
    values = to_steps(steps / np.float32(32768))
    assert values.tolist() == [-32_768, -32_768, -1, 0, 1, 32_767, 32_767]
    assert values.dtype == np.float32
    assert quantise(steps / np.float32(32768)).tolist() == (values / 32768).tolist()
    assert quantise(steps).dtype == np.float32


def test_floats_beyond_full_scale_are_clipped_and_what_is_no_number_is_silence() -> None:
    data = np.array([0.25, -3.0, np.inf, -np.inf, np.nan], "<f4").tobytes()
    (samples,) = SampleReader(AudioFormat("pcm_f32le")).receive_bytes(data)
    assert samples.tolist() == [0.25, -1.0, 1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("encoding", "values"),
    [
        # from the tables of ITU-T G.711, scaled to 16 bits
        (
            "mulaw",
            {
                0x00: -32124,
                0x80: 32124,
                0x7F: 0,
                0xFF: 0,
                0xFE: 8,
                0x7E: -8,
                0xF0: 120,
                0xEF: 132,
                0xA5: 6652,
            },
        ),
        ("alaw", {0xD5: 8, 0x55: -8, 0xD4: 24, 0xAA: 32256, 0x2A: -32256, 0xC5: 264, 0xF5: 528, 0x80: 5504}),
    ],
)
def test_logarithmic_samples_are_those_of_the_standard(encoding: Encoding, values: dict[int, int]) -> None:
    (samples,) = SampleReader(AudioFormat(encoding)).receive_bytes(bytes(values))
    assert (samples * 32768).tolist() == list(values.values())


def test_channels_are_interleaved() -> None:
    data = np.arange(6, dtype="<i2").tobytes()
    samples = SampleReader(AudioFormat(channels=2)).receive_bytes(data)
    assert (samples * 32768).tolist() == [[0, 2, 4], [1, 3, 5]]


def test_the_buffer_is_addressed_by_absolute_position() -> None:
    buffer = AudioBuffer()
    buffer.append(np.arange(100, dtype=np.float32))
    buffer.append(np.arange(100, 20_000, dtype=np.float32))
    buffer.discard_before(15_000)
    assert buffer.start == 15_000
    assert buffer.end == 20_000
    assert buffer.read(16_000, 16_003).tolist() == [16_000, 16_001, 16_002]
    with pytest.raises(ValueError, match="not within the kept audio"):
        buffer.read(14_999, 15_010)


def test_what_is_read_is_a_copy() -> None:
    buffer = AudioBuffer()
    buffer.append(tone(0.1))
    buffer.read(0, 10)[:] = 7
    assert buffer.read(0, 10).max() < 1


def test_a_little_is_not_worth_moving_the_rest() -> None:
    buffer = AudioBuffer()
    buffer.append(tone(1.0))
    buffer.discard_before(100)
    assert buffer.start == 0
    buffer.discard_before(-5)
    assert buffer.start == 0


def test_memory_follows_what_is_kept_not_what_was_received() -> None:
    buffer = AudioBuffer()
    second = tone(1.0)
    for _ in range(200):
        buffer.append(second)
        buffer.discard_before(buffer.end - len(second))
    assert len(buffer._data) <= 8 * len(second)


def test_a_burst_gives_its_memory_back() -> None:
    buffer = AudioBuffer()
    buffer.append(tone(60.0))
    buffer.discard_before(buffer.end - FRAME)
    assert len(buffer._data) <= 4 * FRAME


def test_the_quietest_place_is_the_pause_between_words() -> None:
    buffer = AudioBuffer()
    buffer.append(np.concatenate([tone(1.0), silence(0.2), tone(0.5), silence(0.06), tone(1.0)]))
    cut = buffer.quietest(0, buffer.end)
    assert 1.0 * 16_000 < cut < 1.2 * 16_000


def test_among_equally_quiet_places_the_latest_wins() -> None:
    buffer = AudioBuffer()
    buffer.append(np.concatenate([tone(0.5), silence(0.2), tone(0.5), silence(0.2), tone(0.5)]))
    assert 1.2 * 16_000 <= buffer.quietest(0, buffer.end) <= 1.4 * 16_000


@given(st.integers(0, 32_000), st.integers(0, 32_000))
def test_the_quietest_place_lies_in_the_range_asked_for(first: int, length: int) -> None:
    buffer = AudioBuffer()
    buffer.append(np.random.default_rng(0).normal(size=32_000).astype(np.float32))
    last = min(first + length, buffer.end)
    assert first <= buffer.quietest(first, last) <= last


def test_where_there_is_too_little_to_compare_the_end_is_taken() -> None:
    buffer = AudioBuffer()
    buffer.append(tone(0.05))
    assert buffer.quietest(0, 2 * HOP) == 2 * HOP

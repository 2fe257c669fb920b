"""Samples go into blocks and come out in any range, unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.audio import SampleReader
from realtime_server.core.setup import AudioFormat
from realtime_server.offline.recording import BLOCK, Recording, to_pcm16

WHOLE = np.random.default_rng(0).integers(-32768, 32768, 3 * BLOCK + 1000).astype("<i2")
positions = st.integers(0, len(WHOLE))


@given(st.lists(positions, max_size=8), st.tuples(positions, positions))
def test_any_pieces_give_any_range(cuts: list[int], ends: tuple[int, int]) -> None:
    recording = Recording()
    for piece in np.split(WHOLE, sorted(cuts)):
        recording.append(piece)
    start, end = sorted(ends)
    assert (len(recording), recording.seconds) == (len(WHOLE), len(WHOLE) / 16_000)
    assert np.array_equal(recording.read(start, end) * 32768, WHOLE[start:end])


def test_what_was_read_belongs_to_the_reader() -> None:
    recording = Recording()
    recording.append(WHOLE[:100])
    recording.read(0, 100)[:] = 0
    assert np.array_equal(recording.read(0, 100) * 32768, WHOLE[:100])


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 101)])
def test_ranges_that_are_not_there(start: int, end: int) -> None:
    recording = Recording()
    recording.append(WHOLE[:100])
    with pytest.raises(ValueError, match="not within"):
        recording.read(start, end)


def test_an_empty_one() -> None:
    assert (len(Recording()), Recording().seconds, len(Recording().read(0, 0))) == (0, 0.0, 0)


def test_16_bits_are_rounded_and_clipped() -> None:
    samples = np.array([0, 0.6 / 32768, -0.6 / 32768, 1.0, -1.0, 7.0, -7.0], np.float32)
    assert to_pcm16(samples).tolist() == [0, 1, -1, 32767, -32768, 32767, -32768]


def test_16_bit_samples_are_those_of_the_live_service() -> None:
    recording = Recording()
    (live,) = SampleReader(AudioFormat()).receive_bytes(WHOLE.tobytes())
    recording.append(to_pcm16(live))
    assert np.array_equal(recording.read(0, len(WHOLE)), live)

"""Formats of audio."""

from __future__ import annotations

from typing import get_args

from realtime_server.core.setup import SAMPLE_BYTES, AudioFormat, Encoding


def test_every_encoding_has_its_size() -> None:
    assert set(SAMPLE_BYTES) == set(get_args(Encoding))


def test_a_frame_has_a_sample_of_every_channel() -> None:
    assert AudioFormat().frame_bytes == 2
    assert AudioFormat("pcm_f32le", 48_000, 3).frame_bytes == 12
    assert AudioFormat("mulaw", 8_000, 2).frame_bytes == 2

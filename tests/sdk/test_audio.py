"""What programs hand over becomes samples, or a sentence that says what is wrong with it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.errors import ConfigurationError
from realtime_server.sdk.audio import achunks, chunks, to_items, to_samples
from tests.audio import pcm16, tone


class Tensor:
    """As torch's: it must leave its device first."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("it is on another device")

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Any:
        return self._array


@pytest.mark.parametrize(
    ("given", "samples"),
    [
        (np.array([0.5, -0.5], np.float32), [0.5, -0.5]),
        (np.array([0.5, -0.5]), [0.5, -0.5]),
        (np.array([[0.5, -0.5]]), [0.5, -0.5]),
        (np.array([[0.5], [-0.5]]), [0.5, -0.5]),
        (np.array([16384, -32768], np.int16), [0.5, -1]),
        (np.array([1 << 30], np.int32), [0.5]),
        (np.array([], np.float32), []),
        (Tensor(np.array([0.25], np.float32)), [0.25]),
    ],
)
def test_arrays_become_samples(given: Any, samples: list[float]) -> None:
    made = to_samples(given)
    assert made.dtype == np.float32
    assert made.tolist() == samples


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((2, 3), np.float32), r"one channel of samples is expected, not an array of shape \(2, 3\)"),
        (np.array([1, 2], np.uint8), "not uint8"),
        (np.array([1, 2], np.int8), "not int8"),
        (np.array(["a"]), "not <U1"),
        (np.array([0.5, np.nan]), "some samples are not numbers"),
        (np.array([1000.0]), "divide those of 16 bits by 32768"),
    ],
)
def test_what_are_no_samples_is_refused_in_words(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        to_samples(given)


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_arrays_have_the_16_bits_of_files(rate: int) -> None:
    steps = to_samples(tone(0.1, level=0.3), rate) * 32768
    assert steps.dtype == np.float32
    assert np.array_equal(steps, np.round(steps))
    assert np.abs(steps).max() > 5000


def test_other_rates_are_resampled() -> None:
    pytest.importorskip("soxr")
    times = np.arange(8000) / 8000
    made = to_samples(np.sin(2 * np.pi * 400 * times).astype(np.float32), 8000)
    assert abs(len(made) - 16_000) < 100
    assert np.abs(made[4000:12_000]).max() == pytest.approx(1, abs=0.01)


def test_recordings_get_keys(tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_text("utt1 /1.wav\nutt2 /2.wav\n")
    file = io.BytesIO(b"x")
    given = ["a/talk.wav", Path("b.mp3"), np.zeros(3, np.float32), b"RIFF", file, tmp_path / "wav.scp"]
    items = to_items(given)
    assert [item.key for item in items] == [
        "talk", "b", "sample_2", "sample_3", "sample_4", "utt1", "utt2",
    ]  # fmt: skip
    assert items[4].source is file
    assert [item.key for item in to_items("talk.wav")] == ["talk"]
    assert [item.key for item in to_items(np.zeros(3, np.float32))] == ["sample_0"]
    assert to_items([]) == []


@pytest.mark.parametrize(("given", "kind"), [(3, "int"), ([0.5, 0.5], "float"), ({}, "dict")])
def test_what_is_no_recording_is_refused(given: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"sample_0 is no recording but of type {kind}"):
        to_items(given)


def test_a_list_that_is_missing_is_told() -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        to_items("no/wav.scp")


@given(st.lists(st.integers(0, 700), max_size=8), st.integers(1, 500), st.booleans())
def test_any_pieces_give_the_same_chunks(sizes: list[int], size: int, as_bytes: bool) -> None:
    audio = tone(sum(sizes) / 16_000)
    data = pcm16(audio)
    edges = np.cumsum([0, *sizes]).tolist()
    pieces: list[Any] = [audio[start:end] for start, end in pairwise(edges)]
    if as_bytes:  # cut within samples, too
        cuts = [0, *(max(0, 2 * edge - 1) for edge in edges), len(data)]
        pieces = [data[start:end] for start, end in pairwise(cuts)]
    cut = list(chunks(pieces, size))
    assert [len(chunk) for chunk, _ in cut] == [size] * (len(audio) // size) + [len(audio) % size]
    assert [last for _, last in cut] == [False] * (len(cut) - 1) + [True]
    whole = np.concatenate([chunk for chunk, _ in cut])
    assert np.abs(whole - audio).max(initial=0) < 2**-14


async def test_audio_that_is_awaited_is_cut_alike() -> None:
    async def pieces() -> AsyncIterator[Any]:
        yield tone(0.5)
        yield tone(0.3)

    cut = [(len(chunk), last) async for chunk, last in achunks(pieces(), 6000)]
    assert cut == [(6000, False), (6000, False), (800, True)]

"""The audio that programs hand over: arrays, bytes, paths, lists of them, and streams, which are cut in chunks."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from os import PathLike
from typing import Any

import numpy as np

from realtime_server.core.audio import SampleReader, quantise
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.setup import AudioFormat
from realtime_server.offline.audio_file import resample
from realtime_server.offline.inputs import Item, expand

LOUDEST = 8.0  # resampling may overshoot 1; what is far beyond is on another scale


def is_array(audio: object) -> bool:
    """Whether it holds samples: an array of numpy, or of others that numpy can read, such as torch's."""
    return isinstance(audio, np.ndarray) or hasattr(audio, "__array__")


def to_samples(audio: Any, fs: int = SAMPLE_RATE) -> Samples:
    """One channel of samples as float32 (n,), 16 kHz, with 16 bits: what a file of them would be read as.

    audio: floats in -1..1, or whole numbers of 16 or 32 bits.

    Raises ValueError for what is no such thing.
    """
    array = np.asarray(audio.detach().cpu() if hasattr(audio, "detach") else audio)
    array = array.reshape(-1) if array.size == max(array.shape, default=0) else array
    if array.ndim != 1:
        raise ValueError(f"one channel of samples is expected, not an array of shape {array.shape}")
    if array.dtype.kind == "i" and array.dtype.itemsize > 1:
        samples = (array / 2.0 ** (8 * array.dtype.itemsize - 1)).astype(np.float32)
    elif array.dtype.kind == "f":
        samples = array.astype(np.float32)
    else:
        raise ValueError(f"samples are floats in -1..1 or whole numbers of 16 or 32 bits, not {array.dtype}")
    if not np.isfinite(samples).all():
        raise ValueError("some samples are not numbers")
    if samples.size and np.abs(samples).max() > LOUDEST:
        raise ValueError("samples that are floats lie in -1..1; divide those of 16 bits by 32768")
    if fs != SAMPLE_RATE:
        samples = np.concatenate(list(resample([(fs, samples)])))
    return quantise(samples)  # as in files and in live sessions


def to_items(inputs: Any, fs: int = SAMPLE_RATE) -> list[Item]:
    """The recordings that `generate` is given, each with its key.

    A path of a recording, a folder or a list (see offline/inputs.py), an array, bytes or an open file of a recording,
    or a list of these. What has no name is called sample_0, sample_1, ..., by its place.
    """
    given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    items: list[Item] = []
    for place, audio in enumerate(given):
        key = f"sample_{place}"
        if isinstance(audio, str | PathLike):
            items += expand(audio)
        elif is_array(audio):
            items.append(Item(key, to_samples(audio, fs)))
        elif isinstance(audio, bytes) or hasattr(audio, "read"):
            items.append(Item(key, audio))
        else:
            raise TypeError(f"{key} is no recording but of type {type(audio).__name__}")
    return items


class Cutter:
    """Pieces of audio of any size to chunks of `size` samples."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pcm = SampleReader(AudioFormat())
        self._held = np.zeros(0, np.float32)

    def receive(self, audio: Any) -> Iterator[Samples]:
        """Take samples as to_samples() does, or PCM16 bytes, 16 kHz; yield the chunks that are full."""
        samples = self._pcm.receive_bytes(audio)[0] if isinstance(audio, bytes) else to_samples(audio)
        held = np.concatenate([self._held, samples])
        full = len(held) // self._size * self._size
        self._held = held[full:]
        for start in range(0, full, self._size):
            yield held[start : start + self._size]

    def rest(self) -> Samples:
        """The last chunk, which is shorter or empty."""
        return self._held


def chunks(audio: Iterable[Any], size: int) -> Iterator[tuple[Samples, bool]]:
    """Yield chunks of `size` samples, and whether it is the last one, which is shorter or empty."""
    cutter = Cutter(size)
    for piece in audio:
        for chunk in cutter.receive(piece):
            yield chunk, False
    yield cutter.rest(), True


async def achunks(audio: AsyncIterable[Any], size: int) -> AsyncIterator[tuple[Samples, bool]]:
    """The same for audio that is awaited."""
    cutter = Cutter(size)
    async for piece in audio:
        for chunk in cutter.receive(piece):
            yield chunk, False
    yield cutter.rest(), True

"""Whisper for tests: the weights, jobs, and recordings as float32 at 16 kHz."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from realtime_server import weights
from realtime_server.core.jobs import DecodeJob, DecodeKind, DecodingOptions, Priority, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError
from realtime_server.models.whisper import WhisperTokenizer
from realtime_server.models.whisper_network import WhisperNetwork

PRIORITIES = {"final": Priority.FINAL, "eager": Priority.EAGER, "partial": Priority.REFRESH}
_ids = itertools.count(1)


@cache
def folder(item: str = "whisper-base") -> Path:
    """Where fetched files are; skips the test where they are not."""
    try:
        return weights.find(item)
    except WeightsError as error:
        pytest.skip(str(error))


@cache
def network() -> WhisperNetwork:
    """The network, loaded once for all tests."""
    return WhisperNetwork(folder(), threads=1)


@cache
def tokenizer() -> WhisperTokenizer:
    return WhisperTokenizer(folder() / "tokenizer.json")


@cache
def read(path: Path) -> Samples:
    """A recording: mono, 16 kHz."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono: Samples = soxr.resample(samples.mean(axis=1), rate, SAMPLE_RATE).astype(np.float32)
    mono.flags.writeable = False
    return mono


def reading(start_s: float, end_s: float) -> Samples:
    """A piece of the opening of A Tale of Two Cities, read aloud: 44 s in all."""
    return read(folder("recordings") / "two_cities.wav")[
        round(start_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)
    ]


def clip(name: str) -> Samples:
    """A short clip, such as zh/nihao_shijie."""
    return read(folder("clips") / f"{name}.wav")


def job(
    audio: Samples,
    options: DecodingOptions | None = None,
    *,
    kind: DecodeKind = "final",
    priority: Priority | None = None,
    prefix_text: str = "",
) -> DecodeJob:
    """A job for all of `audio`."""
    return DecodeJob(
        id=next(_ids),
        session="s",
        epoch=1,
        channel=0,
        kind=kind,
        priority=PRIORITIES[kind] if priority is None else priority,
        segment=0,
        start=0,
        end=len(audio),
        audio=audio,
        prefix_text=prefix_text,
        options=options or DecodingOptions(),
    )

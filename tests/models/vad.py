"""FSMN-VAD for tests: the network, recordings, and the way from one to the segments of the other."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile

from realtime_server import weights
from realtime_server.core.endpointing import Endpointer, EndpointingOptions, SpeechEnded
from realtime_server.core.jobs import Probabilities, Samples
from realtime_server.core.segments import FRAME, SAMPLE_RATE, to_ms
from realtime_server.errors import WeightsError
from realtime_server.models.fsmn_vad import FsmnVad


@cache
def weights_folder() -> Path:
    """Where the network's weights are; skips the test where they are not."""
    try:
        return weights.find("fsmn-vad")
    except WeightsError as error:
        pytest.skip(str(error))


@cache
def network() -> FsmnVad:
    """The network, loaded once for all tests."""
    return FsmnVad.load(weights_folder())


def read(path: Path) -> Samples:
    """A recording of 16 kHz as float32, its channels averaged."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    assert rate == SAMPLE_RATE
    mono: Samples = np.ascontiguousarray(samples.mean(axis=1), dtype=np.float32)
    return mono


def score(samples: Samples, packet: int = 10 * FRAME) -> Probabilities:
    """Probabilities of a whole recording that arrives in packets, cut to frames as a track does it."""
    stream, waiting = network().stream(), np.empty(0, np.float32)
    scores = [np.empty(0, np.float32)]
    for at in range(0, len(samples), packet):
        waiting = np.concatenate([waiting, samples[at : at + packet]])
        whole = len(waiting) // FRAME * FRAME
        scores.append(stream.feed(waiting[:whole]))
        waiting = waiting[whole:]
    return np.concatenate([*scores, stream.flush(waiting)])


def segments_ms(options: EndpointingOptions, probabilities: Probabilities, samples: int) -> list[list[int]]:
    """Segments of a whole recording of `samples` samples, as [start, end] in ms."""
    endpointer = Endpointer(options, lambda first, last: last)
    events = endpointer.receive_probabilities(probabilities) + endpointer.receive_end(samples)
    return [[to_ms(e.start), to_ms(e.end)] for e in events if isinstance(e, SpeechEnded)]


def recordings(shared_data: Path) -> Iterator[tuple[str, list[list[int]]]]:
    """Names and reference segments of the shared recordings that are 16 kHz as they are."""
    with (shared_data / "MANIFEST.tsv").open(encoding="utf-8", newline="") as manifest:
        rates = {row["file"]: row["rate"] for row in csv.DictReader(manifest, delimiter="\t")}
    with (shared_data / "FSMN_VAD_REF.tsv").open(encoding="utf-8") as table:
        rows = [line.rstrip("\n").split("\t") for line in table][1:]
    for name, segments in rows:
        if rates[name] == str(SAMPLE_RATE):
            yield name, json.loads(segments)

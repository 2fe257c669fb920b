"""CPU time of the whole voice activity pipeline per 60 ms of audio: features, network, endpointing."""

from __future__ import annotations

import argparse
import time

import numpy as np

from realtime_server import weights
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Watch
from realtime_server.core.endpointing import Endpointer, EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import FRAME, SAMPLE_RATE
from realtime_server.models.fsmn_vad import FsmnVad

REPETITIONS = 5
LIMIT_US = 250


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of audio, five times (default: %(default)g)"
    )


def run(arguments: argparse.Namespace) -> Report:
    """Measure on noise: the network does the same work for any audio."""
    watch = Watch()
    samples = (
        np.random.default_rng(0).normal(0, 0.05, round(arguments.seconds * SAMPLE_RATE)).astype(np.float32)
    )
    model = FsmnVad.load(weights.find("fsmn-vad"))
    whole = microseconds_per_frame(model, samples)
    report = Report("vad", f"{arguments.seconds:g} s of noise, the best of {REPETITIONS} runs")
    report.add("CPU per 60 ms", whole, "us", at_most=LIMIT_US)
    report.add("streams per core", 1e6 * FRAME / SAMPLE_RATE / whole)
    report.conditions = watch.conditions()
    return report


def microseconds_per_frame(model: FsmnVad, samples: Samples) -> float:
    """CPU microseconds per 60 ms frame, features, network and endpointing: the best of five runs."""
    frames = len(samples) // FRAME
    took = []
    for _ in range(REPETITIONS):
        stream, endpointer = model.stream(), Endpointer(EndpointingOptions(), lambda first, last: last)
        start = time.process_time()
        for at in range(0, frames * FRAME, FRAME):
            endpointer.receive_probabilities(stream.feed(samples[at : at + FRAME]))
        took.append(time.process_time() - start)
    return min(took) / frames * 1e6

"""CPU time of voice activity detection per 60 ms: python -m benchmarks.vad [seconds of audio]"""

from __future__ import annotations

import sys
import time

import numpy as np

from realtime_server import weights
from realtime_server.core.endpointing import Endpointer, EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import FRAME, SAMPLE_RATE
from realtime_server.models.fsmn_vad import FsmnVad

REPETITIONS = 5


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


def main() -> None:
    """Measure on noise: the network does the same work for any audio."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    samples = np.random.default_rng(0).normal(0, 0.05, round(seconds * SAMPLE_RATE)).astype(np.float32)
    cost = microseconds_per_frame(FsmnVad.load(weights.find("fsmn-vad")), samples)
    print(f"vad: {cost:.0f} us of CPU per 60 ms, {60_000 / cost:.0f} streams per core")


if __name__ == "__main__":
    main()

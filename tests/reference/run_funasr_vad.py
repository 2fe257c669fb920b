"""Runs FunASR's own streaming VAD; started by test_funasr_vad.py with the interpreter that has funasr.

    python run_funasr_vad.py MODEL_FOLDER RECORDING.npy ...

Recordings are float32, 16 kHz. The last line printed is JSON: funasr's version and, per recording, the segments
in ms at a fixed 800 ms, and those of its wrapper under the schedule that is its default.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import funasr
import numpy as np
import torch
from funasr.models.fsmn_vad_streaming.dynamic_vad import DynamicStreamingVAD

CHUNK = 960


def chunks(samples):
    """Pieces of 60 ms, and whether each is the last."""
    for at in range(0, len(samples), CHUNK):
        yield samples[at : at + CHUNK], at + CHUNK >= len(samples)


def fixed(model, samples):
    """Segments at 800 ms, put together from [start, -1], [-1, end] and [start, end]."""
    cache, segments = {}, []
    for chunk, last in chunks(samples):
        options = {"cache": cache, "is_final": last, "chunk_size": 60, "dynamic_silence": False}
        if not cache:
            options["max_end_silence_time"] = 800
        for start, end in model.generate(input=[chunk], **options)[0]["value"]:
            if start >= 0:
                segments.append([start, None])
            if end >= 0:
                segments[-1][1] = end
    return segments


def dynamic(model, samples):
    """Segments of the wrapper under its own schedule."""
    vad = DynamicStreamingVAD(model)
    return [segment for chunk, last in chunks(samples) for segment in vad.feed(chunk, is_final=last)]


def main(folder, *recordings):
    """Print the segments of the recordings."""
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        model = funasr.AutoModel(model=folder, device="cpu", disable_update=True, disable_pbar=True)
        found = {}
        for path in map(Path, recordings):
            samples = torch.from_numpy(np.load(path))
            found[path.stem] = {"fixed": fixed(model, samples), "dynamic": dynamic(model, samples)}
    print(json.dumps({"version": funasr.__version__, "segments": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])

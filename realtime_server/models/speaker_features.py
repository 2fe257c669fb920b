"""What speaker networks see of a window: Kaldi's log mel filter bank, relative to the window's own mean.

samples (n,) -> fbank (frames, 80), a frame of 25 ms every 10 ms that lies within the samples -> minus its mean
"""

from __future__ import annotations

import kaldi_native_fbank as knf
import numpy as np

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE, SAMPLES_PER_MS
from realtime_server.models.fbank import MEL_BINS, fbank_options
from realtime_server.models.speaker_network import Floats

FULL_SCALE = float(1 << 15)  # the networks were trained on 16-bit sample values
FRAME, SHIFT = 25 * SAMPLES_PER_MS, 10 * SAMPLES_PER_MS


def features(samples: Samples) -> Floats:
    """Features (frames, 80) of a window of float32 samples in -1..1, 16 kHz; raise ValueError below one frame.

    The window is taken as it is: no silence is added, which would count as part of the voice.
    """
    if samples.size < FRAME:
        raise ValueError(f"{samples.size} samples are no frame of {FRAME}")
    fbank = knf.OnlineFbank(fbank_options("povey"))
    fbank.accept_waveform(SAMPLE_RATE, samples * FULL_SCALE)
    fbank.input_finished()
    frames = np.empty((fbank.num_frames_ready, MEL_BINS), np.float32)
    for i in range(len(frames)):
        frames[i] = fbank.get_frame(i)
    frames -= frames.mean(axis=0, dtype=np.float64).astype(np.float32)
    return frames


def samples_of(frames: int) -> int:
    """The fewest samples that hold so many frames."""
    return FRAME + (frames - 1) * SHIFT

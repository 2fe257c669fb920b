"""Kaldi's log mel filter bank, as FunASR's networks were trained on it."""

from __future__ import annotations

from typing import Literal

import kaldi_native_fbank as knf

from realtime_server.core.segments import SAMPLE_RATE

MEL_BINS = 80


def fbank_options(window: Literal["hamming", "povey"]) -> knf.FbankOptions:
    """Frames of 25 ms every 10 ms under this window, 80 bins, nothing random."""
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = SAMPLE_RATE
    options.frame_opts.window_type = window
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = MEL_BINS
    options.energy_floor = 0.0
    return options

"""A client's audio, in the format it declared, to what sessions work on: float32, 16 kHz, one row per channel.

What is heard has 16 bits, whatever the format: a recording is then heard alike as PCM16, as floats, at any rate, and
as a file. The voice activity network would hear the difference. Where speech dies away into silence, what is softer
than a step of 16 bits moves the end of a sentence by 50 ms and more.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from realtime_server.core import messages as m
from realtime_server.core.audio import Channels, SampleReader, quantise
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.setup import AudioFormat

if TYPE_CHECKING:
    import soxr

QUALITY = "HQ"  # soxr's; its filter delays by a few ms, which `receive_end` gives back


def check_resampling(start: m.Start, format: AudioFormat) -> m.Start | m.Invalid:
    """Return the START, or what refuses it if its rate needs a package that is not installed."""
    if format.sample_rate == SAMPLE_RATE or importlib.util.find_spec("soxr"):
        return start
    text = f"sample_rate must be {SAMPLE_RATE} here: the server lacks soxr, of its extra 'files'"
    return m.Invalid(text, field="sample_rate", protocol=2)


class AudioInput:
    """One session's audio. Other rates than 16 kHz are resampled by one filter from START to STOP, without seams."""

    def __init__(self, format: AudioFormat) -> None:
        self._reader = SampleReader(format)
        self._channels = format.channels
        self._resampler = _make_resampler(format) if format.sample_rate != SAMPLE_RATE else None
        self._has_16_bits = self._resampler is None and format.encoding != "pcm_f32le"

    def receive_bytes(self, data: bytes) -> Channels:
        """Return what can be heard by now, float32 (channels, n), 16 kHz."""
        return self._resample(self._reader.receive_bytes(data), last=False)

    def receive_end(self) -> Channels:
        """No more will come: return what the resampler still holds."""
        return self._resample(np.zeros((self._channels, 0), np.float32), last=True)

    def _resample(self, samples: Channels, *, last: bool) -> Channels:
        if self._resampler and (samples.size or last):
            resampled = self._resampler.resample_chunk(np.ascontiguousarray(samples.T), last=last)
            samples = resampled.reshape(-1, self._channels).T
        return samples if self._has_16_bits else quantise(samples)


def _make_resampler(format: AudioFormat) -> soxr.ResampleStream:
    import soxr

    return soxr.ResampleStream(
        format.sample_rate, SAMPLE_RATE, format.channels, dtype="float32", quality=QUALITY
    )

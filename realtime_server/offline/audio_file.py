"""A recording of any kind to float32 samples, mono, 16 kHz, block by block.

What a header says about length is not believed: samples are counted as they are decoded, and the limits apply to
the count. Values that are not numbers become silence, values beyond -1..1 are clipped as a player does, and then
the channels are averaged. Time is the count of samples: gaps in a container's time stamps are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import AudioError
from realtime_server.offline.audio_source import AudioLimits, Source, open_source
from realtime_server.offline.decoders import Block, FileDecoder, need
from realtime_server.offline.recording import Recording, to_pcm16

OnProgress = Callable[[float], None]  # seconds decoded so far

LOWEST_HZ, HIGHEST_HZ = 4_000, 192_000
WORTH_A_NOTE_S = 1.0  # that a header promises more than there is
WORTH_A_NOTE = 0.01  # share of samples that were clipped: lossy codecs overshoot a little


class AudioFile:
    """One recording, decoded once by iterating over blocks(); no more than a block of it is in memory."""

    def __init__(self, file: BinaryIO, limits: AudioLimits, *, channel: int | None = None) -> None:
        """Read a file that open_source() made; one `channel`, counted from 0, or the average of all."""
        self._decoder, self._limits, self._channel = FileDecoder(file), limits, channel
        self._heard_s = 0.0
        self._samples = self._clipped = self._no_numbers = 0  # counts, all channels together

    def blocks(self) -> Iterator[Samples]:
        """Yield float32 (n,), mono, 16 kHz; resampling may overshoot -1..1 a little.

        Raises AudioError, at any block: empty, undecodable, no_channel, too_long; ConfigurationError without the
        libraries. A recording that is damaged after its beginning gives what could be read, and a note.
        """
        some = False
        for block in resample(self._mono(self._decoder.blocks())):
            some = some or block.size > 0
            yield block
        if some:
            return
        if self._decoder.damaged_s is not None:
            raise AudioError(f"the recording cannot be decoded: {self._decoder.damage}", "undecodable")
        raise AudioError("there is no sound in the recording", "empty")

    def notes(self) -> list[str]:
        """Return sentences about what is wrong with the recording, after its last block; most have none."""
        heard_s, promised_s = self._heard_s, self._decoder.promised_s
        found = []
        if self._decoder.damaged_s is not None:
            found.append(
                f"the recording is damaged after {self._decoder.damaged_s:.1f} s, and some of it is missing"
            )
        if heard_s + WORTH_A_NOTE_S < promised_s < self._limits.duration_s:
            found.append(f"the recording should last {promised_s:.1f} s, but only {heard_s:.1f} s are there")
        if self._clipped > WORTH_A_NOTE * self._samples:
            share = self._clipped / self._samples
            found.append(f"{share:.0%} of the values lie beyond the range of -1 to 1 and were clipped")
        if self._no_numbers:
            found.append(f"{self._no_numbers} values are not numbers and were taken for silence")
        return found

    def _mono(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Check each block, and make it one channel, (n,)."""
        for rate, samples in blocks:
            self._check(rate, samples)
            self._repair(samples)
            channels = samples.shape[1]
            if self._channel is None:
                yield rate, samples @ np.full(channels, 1 / channels, np.float32)
            elif 0 <= self._channel < channels:
                yield rate, np.ascontiguousarray(samples[:, self._channel])
            else:
                why = f"the recording has {channels} channels, and there is no channel {self._channel}"
                raise AudioError(f"{why}; they are counted from 0", "no_channel")

    def _check(self, rate: int, samples: Samples) -> None:
        if not LOWEST_HZ <= rate <= HIGHEST_HZ:
            reads = f"recordings of {LOWEST_HZ} to {HIGHEST_HZ} Hz are read here"
            raise AudioError(f"{reads}, and this one claims {rate} Hz", "undecodable")
        self._samples += samples.size
        self._heard_s += len(samples) / rate
        if self._heard_s > self._limits.duration_s:
            raise AudioError(
                f"the recording is longer than {self._limits.duration_s:g} s, the limit", "too_long"
            )
        if self._samples > self._limits.decoded_samples:
            limit = f"{self._limits.decoded_samples} samples, the limit"
            raise AudioError(f"the channels of the recording hold more than {limit}", "too_long")

    def _repair(self, samples: Samples) -> None:
        """Take in place what is no number for silence, and clip to -1..1."""
        if samples.min() >= -1 and samples.max() <= 1:  # false also if there is a value that is no number
            return
        self._no_numbers += int(np.isnan(samples).sum())
        self._clipped += int((np.abs(samples) > 1).sum())
        np.nan_to_num(samples, copy=False, nan=0.0, posinf=1.0, neginf=-1.0)
        np.clip(samples, -1, 1, out=samples)


def resample(blocks: Iterable[Block]) -> Iterator[Samples]:
    """Yield mono blocks, (n,), of any and even changing rates at 16 kHz, without seams between them."""
    soxr = need("soxr")
    now, stream = SAMPLE_RATE, None
    for rate, samples in blocks:
        if rate != now:
            if stream:
                yield stream.resample_chunk(samples[:0], last=True)
            stream = (
                None if rate == SAMPLE_RATE else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
            )
            now = rate
        yield stream.resample_chunk(samples) if stream else samples
    if stream:
        yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def read_recording(
    source: Source,
    limits: AudioLimits | None = None,
    *,
    channel: int | None = None,
    on_progress: OnProgress | None = None,
) -> Recording:
    """Read a recording in this thread and process; beside a running server, AudioReader does it.

    See there for the arguments. Raises AudioError and ConfigurationError.
    """
    limits = limits or AudioLimits()
    recording = Recording()
    with open_source(source, limits) as file:
        audio = AudioFile(file, limits, channel=channel)
        for block in audio.blocks():
            recording.append(to_pcm16(block))
            if on_progress:
                on_progress(recording.seconds)
    recording.notes += audio.notes()
    return recording

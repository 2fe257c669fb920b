"""A whole recording cut into segments: by voice activity as in the live service, or only where it is quiet.

Audio is read by ranges, a few seconds at a time, and nothing of it is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Protocol

import numpy as np

from realtime_server.core.audio import QUIET_WINDOW, AudioBuffer
from realtime_server.core.endpointing import Endpointer, EndpointEvent, SpeechEnded, SpeechStarted
from realtime_server.core.endpointing_options import EndpointingOptions
from realtime_server.core.jobs import Probabilities, Samples, ScoreJob
from realtime_server.core.segments import FRAME, Segment, to_samples
from realtime_server.core.speakers import Voices
from realtime_server.engines.base import Scorer
from realtime_server.offline.calls import Deadlines, Observer, answer, nobody
from realtime_server.offline.places import Places

PIECE = 100 * FRAME  # samples of one ScoreJob: 6 s


class Audio(Protocol):
    """Samples that can be read by ranges; a Recording is one."""

    def __len__(self) -> int:
        """Samples, 16 kHz."""

    def read(self, start: int, end: int) -> Samples:
        """Samples [start, end), float32."""


class ArrayAudio:
    """Samples in memory as Audio."""

    def __init__(self, samples: Samples) -> None:
        """Take float32 (n,), 16 kHz, every value finite; raise ValueError for anything else."""
        if samples.ndim != 1 or samples.dtype != np.float32 or not np.isfinite(samples).all():
            raise ValueError("samples must be finite float32 numbers in one dimension: mono, 16 kHz")
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, start: int, end: int) -> Samples:
        """Samples [start, end)."""
        return self._samples[start:end]


class Segmenter:
    """The core's Endpointer on one recording, whose end is known."""

    def __init__(self, options: EndpointingOptions, audio: Audio, voices: Voices | None = None) -> None:
        """voices: is told of everything that it needs to know, in order."""
        self._audio, self._voices = audio, voices
        self._endpointer = Endpointer(options, lambda first, last: quietest(audio, first, last))
        self._indices = itertools.count()

    def receive_probabilities(self, probabilities: Probabilities) -> list[Segment]:
        """The next frames' probabilities of speech; return the segments that ended."""
        if self._voices:
            self._voices.receive_probabilities(probabilities)
        return list(self._take(self._endpointer.receive_probabilities(probabilities)))

    def receive_end(self) -> list[Segment]:
        """There are no more; return the segment that was open."""
        return list(self._take(self._endpointer.receive_end(len(self._audio))))

    def _take(self, events: list[EndpointEvent]) -> Iterator[Segment]:
        for event in events:
            if isinstance(event, SpeechStarted):
                self._open(event.start)
            elif isinstance(event, SpeechEnded):
                yield self._close(event)

    def _open(self, start: int) -> None:
        self._index = next(self._indices)
        if self._voices:
            self._voices.receive_open(self._index, start)

    def _close(self, ended: SpeechEnded) -> Segment:
        segment = Segment(self._index, 0, ended.start, ended.end)
        if self._voices:
            self._voices.receive_close(segment)
        return segment


def quietest(audio: Audio, first: int, last: int) -> int:
    """The quietest place in [first, last], as AudioBuffer finds it."""
    around = AudioBuffer()
    around.start = max(0, first - QUIET_WINDOW // 2)
    around.append(audio.read(around.start, min(len(audio), last + QUIET_WINDOW // 2)))
    return around.quietest(first, last)


def quiet_cuts(audio: Audio, longest: int) -> Iterator[Segment]:
    """All of the audio in segments of at most `longest` samples, cut in the quietest place of their last third."""
    start = 0
    for index in itertools.count():
        if start == len(audio):
            return
        end = len(audio)
        if end - start > longest:
            end = quietest(audio, start + longest * 2 // 3, start + longest)
        yield Segment(index, 0, start, end)
        start = end


async def find_segments(
    audio: Audio, scores: AsyncIterator[Probabilities], endpointing: EndpointingOptions,
    voices: Voices | None = None,
) -> AsyncIterator[Segment]:  # fmt: skip
    """Segments by voice activity; `voices` is told of each before it is yielded."""
    segmenter = Segmenter(endpointing, audio, voices)
    async for probabilities in scores:
        for segment in segmenter.receive_probabilities(probabilities):
            yield segment
    for segment in segmenter.receive_end():
        yield segment


async def find_clips(
    audio: Audio, scores: AsyncIterator[Probabilities], endpointing: EndpointingOptions,
    voices: Voices | None = None,
) -> AsyncIterator[Segment]:  # fmt: skip
    """Segments cut where it is quiet; speech is looked for only if voices are to be told apart."""
    if voices:
        async for probabilities in scores:
            voices.receive_probabilities(probabilities)
    for segment in quiet_cuts(audio, to_samples(endpointing.max_segment_ms)):
        if voices:
            voices.receive_open(segment.index, segment.start)
            voices.receive_close(segment)
        yield segment


class Listener:
    """Probabilities of speech of all recordings, through one scorer."""

    def __init__(
        self, scorer: Scorer, *, places: Places, deadlines: Deadlines, observe: Observer = nobody
    ) -> None:
        self._scorer, self._places, self._deadlines, self._observe = scorer, places, deadlines, observe

    async def scores(self, audio: Audio, recording: str) -> AsyncIterator[Probabilities]:
        """Probabilities from beginning to end, a piece at a time. Raises EngineError."""
        for number, start in enumerate(range(0, len(audio), PIECE)):
            end = min(start + PIECE, len(audio))
            job = ScoreJob(
                id=number, session=recording, epoch=1, channel=0, samples=audio.read(start, end),
                first=not start, last=end == len(audio),
            )  # fmt: skip
            async with self._places.hold(recording, end - start):
                scored = await answer(
                    self._scorer.score(job), self._deadlines.base_s, self._deadlines,
                    tell=partial(self._observe, job),
                )  # fmt: skip
            yield scored

    def forget(self, recording: str) -> None:
        """The recording is done with."""
        self._scorer.forget(recording)

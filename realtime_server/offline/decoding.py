"""One segment of a recording decoded: the core's Recognition, so that a final is what it is in the live service.

Retry, cleaning and flags are Recognition's. Its audio is read when the engine has a place for it, so recordings that
wait hold none.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, DecodingOptions, Priority
from realtime_server.core.partials import PartialPlanner
from realtime_server.core.recognition import Recognition
from realtime_server.core.segments import SAMPLE_RATE, Segment
from realtime_server.core.settings import Pace
from realtime_server.core.transcript import Settled
from realtime_server.engines.base import Engine
from realtime_server.errors import EngineError
from realtime_server.offline.calls import Countdown, Deadlines, answer
from realtime_server.offline.places import Places
from realtime_server.offline.segmentation import Audio

logger = logging.getLogger(__name__)

MOST_SAMPLES = 3600 * SAMPLE_RATE  # of all jobs in the engine at once: 230 MB


@dataclass(frozen=True, slots=True)
class Wish:
    """A recording, and what every segment of it is decoded with.

    recording: its name in jobs and in the log.  notes: what was asked for and is not among the options.
    """

    recording: str
    audio: Audio
    options: DecodingOptions
    notes: tuple[str, ...] = ()


class Decoder:
    """Decodes segments of all recordings, as many at once as the engine works on."""

    def __init__(self, engine: Engine, deadlines: Deadlines, live: Callable[[], bool]) -> None:
        self._engine, self._deadlines, self._live = engine, deadlines, live
        self.places = Places(self._count, MOST_SAMPLES)
        self._ids = itertools.count(1)
        self._countdowns: dict[int, Countdown] = {}  # by the ids of the jobs in the engine

    async def settle(self, segment: Segment, wish: Wish) -> Settled:
        """Return the segment's text, when there was a place for it. Raises EngineError if the engine is dead."""
        async with self.places.hold(wish.recording, segment.end - segment.start):
            settled = await self._recognise(segment, wish)
        if settled.error:
            span = f"{segment.start_ms / 1000:.1f} to {segment.end_ms / 1000:.1f} s"
            logger.warning(
                "recording %s: %s could not be recognised: %s", wish.recording, span, settled.error
            )
        return settled

    async def _recognise(self, segment: Segment, wish: Wish) -> Settled:
        jobs: list[DecodeJob] = []

        def submit(kind: DecodeKind, _priority: Priority, start: int, end: int, prefix: str) -> DecodeJob:
            jobs.append(DecodeJob(
                id=next(self._ids), session=wish.recording, epoch=1, channel=segment.channel, kind=kind,
                priority=Priority.FILE, segment=segment.index, start=start, end=end,
                audio=wish.audio.read(start, end), prefix_text=prefix, options=wish.options,
            ))  # fmt: skip
            return jobs[-1]

        # Nobody reads partials of a file, so none is planned.
        planner = PartialPlanner(segment.start, pace=Pace(), window_s=1.0, find_quiet=max)
        recognition = Recognition(
            segment.index, segment.channel, segment.start, planner=planner, submit=submit, cancel=jobs.remove
        )
        recognition.receive_close(segment.start, segment.end, heard_until=segment.end)
        while jobs:
            await self._run(jobs.pop(), recognition)
        assert recognition.settled
        return recognition.settled

    async def _run(self, job: DecodeJob, recognition: Recognition) -> None:
        """Decode, and tell what came of it, unless the engine is dead."""
        try:
            decoded = await self._answer(job)
        except EngineError as error:
            if not self._engine.healthy:
                raise
            recognition.receive_failure(job, error)
        else:
            recognition.receive_decoded(job, decoded)

    async def _answer(self, job: DecodeJob) -> Decoded:
        countdown = Countdown(self._deadlines.for_samples(len(job.audio)))
        self._countdowns[job.id] = countdown
        try:
            decoded = await answer(
                self._engine.transcribe(job), countdown, self._deadlines,
                alive=lambda: self._engine.healthy, busy=self._live,
            )  # fmt: skip
        finally:
            del self._countdowns[job.id]
        for number, later in self._countdowns.items():
            if number > job.id:
                later.restart()
        return decoded

    def _count(self) -> int:
        """Places that files may take now: one is left to live sessions while there are any."""
        return max(1, self._engine.capabilities.concurrency - self._live())

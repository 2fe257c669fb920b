"""The live session without a clock: audio goes in by chunks, and each is waited for until nothing more comes of it.

It is the same SessionProtocol that the server runs, so segments, partials, finals and what is done when one fails are
the same. What comes out depends on the samples alone, and the cost of a chunk on the open segment, not on what was
heard before it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace

from realtime_server.core import messages as m
from realtime_server.core.jobs import Decoded, DecodeJob, Job, Result, Samples, ScoreJob
from realtime_server.core.protocol import SessionProtocol
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.base import Engine, Scorer
from realtime_server.errors import EngineError
from realtime_server.offline.calls import Deadlines, answer

logger = logging.getLogger(__name__)

DEADLINES = Deadlines(base_s=120.0)  # many streams of one program may wait for each other
Answer = Result | EngineError


class SteppedSession:
    """One stream; each call returns the events that it led to, in order, and raises EngineError if it is over.

    live: the audio comes as it is spoken, so that a slow machine must be asked for fewer partials.
    """

    def __init__(self, engine: Engine, scorer: Scorer, settings: SessionSettings, *, live: bool) -> None:
        self._id = f"stream-{uuid.uuid4().hex[:12]}"
        self._engine, self._scorer, self._live = engine, scorer, live
        self._protocol = SessionProtocol(self._id, settings, engine.capabilities)
        self._protocol.receive_command(m.Start())

    async def feed(self, samples: Samples) -> list[m.Event]:
        """Take more audio, float32 (n,), 16 kHz."""
        if samples.size:
            self._protocol.receive_audio(samples[None])
        return await self._settle()

    async def stop(self) -> list[m.Event]:
        """Take no more: everything that was heard is decoded and locked."""
        self._protocol.receive_command(m.Stop())
        return await self._settle()

    def forget(self) -> None:
        """Free what the scorer holds; nothing else is kept."""
        self._scorer.forget(self._id)

    async def _settle(self) -> list[m.Event]:
        """Run jobs until none is left."""
        events: list[m.Event] = []
        running: dict[asyncio.Task[Answer], Job] = {}
        dropped: list[asyncio.Task[Answer]] = []
        try:
            while True:
                running |= {asyncio.create_task(self._run(job)): job for job in self._protocol.jobs_to_run()}
                self._protocol.jobs_to_hasten()  # none stands in a line
                unwanted = set(self._protocol.jobs_to_cancel())
                for task in [task for task, job in running.items() if job.id in unwanted]:
                    task.cancel()
                    dropped.append(task)
                    del running[task]
                events += self._protocol.events_to_send()
                if not running:
                    return events
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                task = min(done, key=lambda task: running[task].id)
                self._receive(running.pop(task), task.result())
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, *dropped, return_exceptions=True)

    def _receive(self, job: Job, result: Answer) -> None:
        if not isinstance(result, EngineError):
            self._protocol.receive_result(job, result)
        elif self._engine.healthy:
            self._protocol.receive_failure(job, result)
        else:
            raise result

    async def _run(self, job: Job) -> Answer:
        """The job's result, or what went wrong."""
        assert isinstance(job, ScoreJob | DecodeJob), "speakers are not told apart in a stream"
        try:
            return await (self._decode(job) if isinstance(job, DecodeJob) else self._score(job))
        except EngineError as error:
            return error

    async def _score(self, job: ScoreJob) -> Result:
        return await answer(self._scorer.score(job), DEADLINES.base_s, DEADLINES)

    async def _decode(self, job: DecodeJob) -> Decoded:
        clock = asyncio.get_running_loop().time
        began_s, deadline_s = clock(), DEADLINES.for_samples(job.audio.size)
        decoded = await answer(
            self._engine.transcribe(job), deadline_s, DEADLINES, alive=lambda: self._engine.healthy
        )
        return replace(decoded, took_ms=1000 * (clock() - began_s) if self._live else 0.0)

"""RealtimeASRSession: runs a SessionProtocol's jobs and clocks; the entry point for services of your own.

Usage, inside a coroutine:

    async with RealtimeASRSession(engine, scorer) as session:
        session.feed("START")
        session.feed(pcm_bytes)          # as they arrive from anywhere
        session.feed("STOP")
        session.end()
        async for message in session.messages():
            print(message)               # protocol 1 JSON

Wall-clock time lives here: deadlines of jobs, how long they took, and a client that falls silent.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from realtime_server.core import messages as m
from realtime_server.core.audio import Pcm16Reader
from realtime_server.core.jobs import Decoded, DecodeJob, Job, Probabilities
from realtime_server.core.protocol import SessionProtocol, State
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings, require_positive
from realtime_server.engines.base import Engine, Scorer
from realtime_server.errors import EngineError, EngineTimeoutError
from realtime_server.realtime.hub import EventLog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall-clock limits, in seconds."""

    stall_s: float = 5.0  # without audio for so long, the open segment is closed
    deadline_s: float = 10.0  # of a job, plus deadline_factor times its audio
    deadline_factor: float = 2.0

    def __post_init__(self) -> None:
        require_positive(self, ("stall_s", "deadline_s", "deadline_factor"))


class RealtimeASRSession:
    """One client's sessions on one engine and one scorer, which any number of others share.

    Neither method below waits: `feed` takes a frame as from a socket, `end` says that no more will come, and
    `messages` yields what the client is to be sent, until everything heard has been told.
    """

    def __init__(
        self,
        engine: Engine,
        scorer: Scorer,
        settings: SessionSettings | None = None,
        *,
        session_id: str | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        self.id = session_id or uuid.uuid4().hex[:12]
        self.log = EventLog()
        self.closing: m.Closing | None = None  # how the connection is to be closed, once known
        self._engine, self._scorer = engine, scorer
        self._clocks = clocks or Clocks()
        self._protocol = SessionProtocol(self.id, settings or SessionSettings(), engine.capabilities)
        self._wire: m.Wire = m.WireV1()
        self._pcm = Pcm16Reader()
        self._ended = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stall: asyncio.TimerHandle | None = None
        self._last_audio_s = 0.0

    @property
    def summary(self) -> str:
        """What happened so far, as counts."""
        return str(self._protocol.counts)

    def feed(self, frame: str | bytes) -> None:
        """Take one frame from the client: a text command or PCM16 audio, 16 kHz, mono."""
        for item in self._wire.decode(frame):
            if not isinstance(item, bytes):
                if isinstance(item, m.Start):
                    self._pcm = Pcm16Reader()
                self._protocol.receive_command(item)
                continue
            samples = self._pcm.receive_bytes(item)
            if len(samples):
                self._note_audio()
                self._protocol.receive_audio(samples[None])
        self._turn()

    def end(self) -> None:
        """No more will come: what was heard is decoded and told, then `messages` ends."""
        self._protocol.receive_end()
        self._turn()

    async def messages(self) -> AsyncGenerator[str, None]:
        """Messages for the client, in order, as they become due. Raises ReaderTooSlowError."""
        with self.log.reader() as reader:
            while events := await reader.take():
                for message in self._wire.encode(events):
                    yield message

    async def wait_ended(self) -> None:
        """Wait until everything heard before `end` has been decoded, whether or not anybody reads."""
        await self._ended.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Abort whatever still runs and free what the session holds."""
        if self._stall:
            self._stall.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._scorer.forget(self.id)
        self.log.close()

    # --- inside -------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Do what the protocol wants done next."""
        for job in self._protocol.jobs_to_run():
            task = asyncio.create_task(self._run(job))
            task.add_done_callback(self._check_task)
            self._tasks[job.id] = task
        for job_id in self._protocol.jobs_to_cancel():
            if job_id in self._tasks:
                self._tasks.pop(job_id).cancel()
        events = self._protocol.events_to_send()
        for event in events:
            if isinstance(event, m.Closing):
                self.closing = event
            elif isinstance(event, m.Warned | m.Failed):
                logger.info("session %s: %s", self.id, event.message)
        self.log.append(events)
        if self._protocol.state is State.ENDED:
            self.log.close()
            self._ended.set()

    async def _run(self, job: Job) -> None:
        """Compute one job and tell the protocol; a cancelled one tells nothing."""
        clock = asyncio.get_running_loop().time
        started_s = clock()
        deadline_s = self._deadline_s(job)
        failure: EngineError
        try:
            async with asyncio.timeout(deadline_s):
                result = await self._compute(job)
        except TimeoutError:
            failure = EngineTimeoutError(f"no answer within {deadline_s:.0f} s")
        except EngineError as error:
            failure = error
        except Exception:
            logger.exception("session %s: a job failed in a way that its engine does not declare", self.id)
            failure = EngineError("internal error")
        else:
            if isinstance(result, Decoded):
                result = replace(result, took_ms=1000 * (clock() - started_s))
            self._tasks.pop(job.id, None)
            self._protocol.receive_result(job, result)
            self._turn()
            return
        self._tasks.pop(job.id, None)
        self._protocol.receive_failure(job, failure)
        self._turn()

    def _check_task(self, task: asyncio.Task[None]) -> None:
        """A fault of our own ends the session visibly instead of leaving it waiting for ever."""
        if not task.cancelled() and (error := task.exception()):
            logger.error("session %s: internal error", self.id, exc_info=error)
            self.closing = m.Closing(upto=0, close_code=1011, reason="internal error")
            self.log.close()
            self._ended.set()

    async def _compute(self, job: Job) -> Decoded | Probabilities:
        if isinstance(job, DecodeJob):
            return await self._engine.transcribe(job)
        return await self._scorer.score(job)

    def _deadline_s(self, job: Job) -> float:
        seconds = len(job.audio if isinstance(job, DecodeJob) else job.samples) / SAMPLE_RATE
        return self._clocks.deadline_s + self._clocks.deadline_factor * seconds

    def _note_audio(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_audio_s = loop.time()
        if self._stall is None:
            self._stall = loop.call_later(self._clocks.stall_s, self._check_stall)

    def _check_stall(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._last_audio_s + self._clocks.stall_s - loop.time()
        if left_s > 0:
            self._stall = loop.call_later(left_s, self._check_stall)
            return
        self._stall = None
        self._protocol.receive_stall()
        self._turn()

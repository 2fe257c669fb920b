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

A decode's deadline counts from when it was asked for or from the last answer to an earlier decode of the session,
whichever is later: a client that sends a long recording at once waits for its own backlog, which is no failure.
Of such a backlog the engine is given as many finals as it works on at once. The rest waits here, so that jobs of
other sessions come in between.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from realtime_server.core import messages as m
from realtime_server.core.audio import Pcm16Reader
from realtime_server.core.jobs import (
    ClusterJob,
    Decoded,
    DecodeJob,
    EmbedJob,
    Job,
    Result,
    ScoreJob,
    WaitJob,
)
from realtime_server.core.protocol import SessionProtocol, State
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings, require_positive
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.errors import ConfigurationError, EngineError, EngineTimeoutError
from realtime_server.realtime.hub import EventLog

logger = logging.getLogger(__name__)

Observer = Callable[[Job, EngineError | None], None]


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall-clock limits, in seconds."""

    stall_s: float = 5.0  # without audio for so long, the open segment is closed
    deadline_s: float = 10.0  # of a job; a decode has deadline_factor times its audio on top
    deadline_factor: float = 2.0

    def __post_init__(self) -> None:
        require_positive(self, ("stall_s", "deadline_s"))


class RealtimeASRSession:
    """One client's sessions on one engine and one scorer, which any number of others share.

    `feed`, `end` and `give_up` never wait: `feed` takes a frame as from a socket, `end` says that no more will
    come, and `messages` yields what the client is to be sent, until everything heard has been told.
    observe: called with every job that was answered, and its error if it failed.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer, settings: SessionSettings | None = None, *,
        embedder: Embedder | None = None,
        session_id: str | None = None, clocks: Clocks | None = None, observe: Observer | None = None,
    ) -> None:  # fmt: skip
        settings = settings or SessionSettings()
        if settings.speakers and embedder is None:
            raise ConfigurationError("a session that tells speakers apart needs an embedder")
        self.id = session_id or uuid.uuid4().hex[:12]
        self.log = EventLog()
        self._reader = self.log.add_reader()
        self.closing: m.Closing | None = None  # how the connection is to be closed, once known
        self._engine, self._scorer, self._embedder, self._observe = engine, scorer, embedder, observe
        self._clocks = clocks or Clocks()
        self._protocol = SessionProtocol(self.id, settings, engine.capabilities)
        self._wire: m.Wire = m.WireV1()
        self._pcm = Pcm16Reader()
        self._ended = asyncio.Event()
        self._running: dict[int, tuple[Job, asyncio.Task[None]]] = {}  # jobs whose answer is wanted
        self._tasks: set[asyncio.Task[None]] = (
            set()
        )  # theirs, and those that were told to stop and have not yet
        self._finals = asyncio.Semaphore(max(1, engine.capabilities.concurrency))
        self._deadlines: dict[int, tuple[asyncio.Timeout, float]] = {}  # of decodes; oldest first
        self._stall: asyncio.TimerHandle | None = None
        self._last_audio_s = 0.0

    @property
    def summary(self) -> str:
        """What happened so far, as counts."""
        return str(self._protocol.counts)

    @property
    def unread(self) -> int:
        """How many events have not been taken by the reader of `messages` yet."""
        return self._reader.behind

    def feed(self, frame: str | bytes) -> None:
        """Take one frame from the client: a text command or PCM16 audio, 16 kHz, mono. After `end`, do nothing."""
        if self._ended.is_set():
            return
        with self._guarded():
            for item in self._wire.decode(frame):
                self._feed_item(item)
            self._turn()

    def end(self) -> None:
        """No more will come: what was heard is decoded and told, then `messages` ends."""
        if self._ended.is_set():
            return
        with self._guarded():
            self._protocol.receive_end()
            self._turn()

    def give_up(self, why: str) -> None:
        """Take every job that still runs for failed: after `end`, the client is told what is known by now."""
        while self._running:
            job, task = self._running.pop(next(iter(self._running)))
            task.cancel()
            with self._guarded():
                self._protocol.receive_failure(job, EngineTimeoutError(why))
                self._turn()

    async def messages(self) -> AsyncGenerator[str, None]:
        """Messages for the client, in order, as they become due; to be read once. Raises ReaderTooSlowError."""
        try:
            while events := await self._reader.take():
                for message in self._wire.encode(events):
                    yield message
        finally:
            self._reader.close()

    async def wait_read(self, at_most: int) -> None:
        """Wait until at most so many events wait to be read from `messages`, or nobody will read them."""
        await self._reader.wait_behind(at_most)

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
        """Abort whatever still runs and free what the session holds; it takes nothing more."""
        self._over()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._scorer.forget(self.id)

    # --- inside -------------------------------------------------------------------------------------------

    def _feed_item(self, item: m.Command | bytes) -> None:
        if not isinstance(item, bytes):
            if isinstance(item, m.Start):
                self._pcm = Pcm16Reader()
            self._protocol.receive_command(item)
            return
        samples = self._pcm.receive_bytes(item)
        if len(samples):
            self._note_audio()
            self._protocol.receive_audio(samples[None])

    def _turn(self) -> None:
        """Do what the protocol wants done next."""
        for job in self._protocol.jobs_to_run():
            task = asyncio.create_task(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._running[job.id] = job, task
        for job_id in self._protocol.jobs_to_cancel():
            if job_id in self._running:
                self._running.pop(job_id)[1].cancel()
        events = self._protocol.events_to_send()
        for event in events:
            self._note_event(event)
        self.log.append(events)
        if self._protocol.state is State.ENDED:
            self._over()

    def _note_event(self, event: m.Event) -> None:
        """Log what an operator should know; what a client said, and what was heard, appears at debug only."""
        match event:
            case m.Closing():
                self.closing = event
            case m.Warned():
                logger.info("session %s: %s", self.id, event.message)
            case m.Failed():
                level = logging.DEBUG if event.code == "bad_request" else logging.WARNING
                logger.log(level, "session %s: %s", self.id, event.message)
            case m.SegmentLocked():
                logger.debug("session %s: %s", self.id, " ".join(sent.text for sent in event.sentences))

    def _over(self) -> None:
        """Nothing more is taken or told."""
        if self._stall:
            self._stall.cancel()
            self._stall = None
        self._ended.set()
        self.log.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A fault of our own ends the session visibly instead of leaving it waiting for ever."""
        try:
            yield
        except Exception:
            logger.exception("session %s: internal error", self.id)
            self.closing = m.Closing(upto=0, close_code=1011, reason="internal error")
            self._over()

    # --- jobs ---------------------------------------------------------------------------------------------

    async def _run(self, job: Job) -> None:
        """Compute one job and tell the protocol; a cancelled one tells nothing."""
        answer = await self._answer(job)
        if self._running.pop(job.id, None) is None or self._ended.is_set():
            return
        failure = answer if isinstance(answer, EngineError) else None
        with self._guarded():
            if self._observe:
                self._observe(job, failure)
            if isinstance(answer, EngineError):
                self._protocol.receive_failure(job, answer)
            else:
                self._protocol.receive_result(job, answer)
            self._turn()

    async def _answer(self, job: Job) -> Result | EngineError:
        """The job's result, or what went wrong, within its deadline."""
        clock = asyncio.get_running_loop().time
        started_s = clock()
        deadline_s = self._deadline_s(job)
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                if not isinstance(job, DecodeJob):
                    return await self._compute(job)
                self._deadlines[job.id] = deadline, deadline_s
                decoded = await self._decode(job)
            self._extend_deadlines(job)
            return replace(decoded, took_ms=1000 * (clock() - started_s))
        except EngineError as error:
            return error
        except asyncio.CancelledError:
            if self._is_cancelling():
                raise
            return EngineError("the engine dropped the job")
        except Exception as error:
            if deadline.expired():
                return EngineTimeoutError(f"no answer within {deadline_s:.1f} s")
            logger.exception("session %s: a job failed in a way that its engine does not declare", self.id)
            return EngineError(f"internal error ({type(error).__name__})")
        finally:
            self._deadlines.pop(job.id, None)

    async def _compute(self, job: ScoreJob | EmbedJob | ClusterJob | WaitJob) -> Result:
        if isinstance(job, ScoreJob):
            return await self._scorer.score(job)
        if isinstance(job, WaitJob):
            return await asyncio.sleep(job.wait_ms / 1000, None)
        assert self._embedder is not None
        return await (self._embedder.embed(job) if isinstance(job, EmbedJob) else self._embedder.cluster(job))

    async def _decode(self, job: DecodeJob) -> Decoded:
        async with nullcontext() if job.kind == "partial" else self._finals:
            return await self._engine.transcribe(job)

    def _extend_deadlines(self, answered: DecodeJob) -> None:
        """The engine works: later jobs of this session have waited for this one, not for an engine that hangs."""
        now_s = asyncio.get_running_loop().time()
        for job_id, (deadline, seconds) in self._deadlines.items():
            if job_id > answered.id and not deadline.expired():
                deadline.reschedule(now_s + seconds)

    def _deadline_s(self, job: Job) -> float:
        samples = len(job.audio) if isinstance(job, DecodeJob) else 0
        return self._clocks.deadline_s + self._clocks.deadline_factor * samples / SAMPLE_RATE

    @staticmethod
    def _is_cancelling() -> bool:
        """Whether this task was told to stop, and not only something that it awaits."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    # --- a client that falls silent -----------------------------------------------------------------------

    def _note_audio(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_audio_s = loop.time()
        if self._stall is None:
            self._stall = loop.call_later(self._clocks.stall_s, self._check_stall)

    def _check_stall(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._last_audio_s + self._clocks.stall_s - loop.time()
        if self._protocol.state in (State.COMMITTING, State.STOPPING):
            # What was heard meanwhile belongs to the next utterance, which nobody has begun: look again.
            left_s = self._clocks.stall_s
        if left_s > 0:
            self._stall = loop.call_later(left_s, self._check_stall)
            return
        self._stall = None
        with self._guarded():
            self._protocol.receive_stall()
            self._turn()

"""RealtimeASRSession: runs a SessionProtocol's jobs and clocks; the entry point for services of your own.

Usage, inside a coroutine:

    async with RealtimeASRSession(engine, scorer) as session:
        session.feed("START")
        session.feed(pcm_bytes)          # as they arrive from anywhere
        session.feed("STOP")
        session.end()
        async for message in session.messages():
            print(message)               # protocol 1 JSON

Sessions that share an engine should be given one Dispatcher over it in its place: dispatch.py has the order in which
decodes are served, and their deadlines. Wall-clock time lives here: how long jobs took, deadlines of those that are no
decodes (the embedder's in patience.py), how old a text was when it was told, and a client that falls silent.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

from realtime_server.core import messages as m
from realtime_server.core.audio import Channels
from realtime_server.core.counts import SessionCounts
from realtime_server.core.jobs import (
    DecodeJob,
    EmbedJob,
    Job,
    Result,
    ScoreJob,
    WaitJob,
)
from realtime_server.core.protocol import SessionProtocol, State
from realtime_server.core.record import Record
from realtime_server.core.settings import SessionSettings
from realtime_server.core.setup import AudioFormat
from realtime_server.core.wire_v2 import Wires
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.errors import ConfigurationError, EngineError, EngineTimeoutError
from realtime_server.metrics import Metrics
from realtime_server.realtime.audio_input import AudioInput, check_resampling
from realtime_server.realtime.dispatch import Dispatcher, Ticket
from realtime_server.realtime.event_log import EventLog
from realtime_server.realtime.lags import Lags
from realtime_server.realtime.lateness import TEXT
from realtime_server.realtime.options import Clocks
from realtime_server.realtime.patience import Progressing, answer_in_time, answer_in_turn
from realtime_server.realtime.receipts import Receipts

__all__ = ["Clocks", "RealtimeASRSession"]

logger = logging.getLogger(__name__)

Observer = Callable[[Job, EngineError | None], None]


@dataclass(frozen=True, slots=True)
class Run:
    """A job whose answer is wanted, the task that gets it, and for a decode its place on the way to the engine."""

    job: Job
    task: asyncio.Task[None]
    ticket: Ticket | None


class RealtimeASRSession:
    """One client's sessions on one engine (or a Dispatcher) and one scorer, which any number of others share.

    `feed`, `end` and `give_up` never wait: `feed` takes a frame as from a socket, `end` says that no more will
    come, and `messages` yields what the client is to be sent, until everything heard has been told.
    observe: called with every job that was answered, and its error if it failed.  metrics: told of texts and errors.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer, settings: SessionSettings | None = None, *,
        embedder: Embedder | None = None,
        session_id: str | None = None, clocks: Clocks | None = None, observe: Observer | None = None,
        metrics: Metrics | None = None,
    ) -> None:  # fmt: skip
        settings = settings or SessionSettings()
        if settings.speakers and embedder is None:
            raise ConfigurationError("a session that tells speakers apart needs an embedder")
        self.id = session_id or uuid.uuid4().hex[:12]
        self.log = EventLog()
        self.record = Record()
        self._reader = self.log.add_reader()
        self.closing: m.Closing | None = None  # how the connection is to be closed, once known
        self._clocks = clocks or Clocks()
        self._dispatcher = engine if isinstance(engine, Dispatcher) else Dispatcher(engine, clocks, metrics)
        self._scorer, self._embedder, self._observe, self._metrics = scorer, embedder, observe, metrics
        self._protocol = SessionProtocol(self.id, settings, engine.capabilities)
        self._wire: m.Wire = Wires(self.id)
        self._input = AudioInput(AudioFormat())
        self._receipts, self._lags = Receipts(), Lags()
        self._ended = asyncio.Event()
        self._takes = True  # until `end`, which takes the last out of the resampler
        self._running: dict[int, Run] = {}  # by the job's id
        self._tasks: set[asyncio.Task[None]] = set()  # theirs, and those told to stop that have not yet
        self._stall: asyncio.TimerHandle | None = None
        self._last_audio_s = 0.0

    @property
    def counts(self) -> SessionCounts:
        """What happened so far."""
        return self._protocol.counts

    @property
    def summary(self) -> str:
        """What happened so far, as counts."""
        return str(self._protocol.counts)

    @property
    def unread(self) -> int:
        """How many events have not been taken by the reader of `messages` yet."""
        return self._reader.behind

    def feed(self, frame: str | bytes) -> None:
        """Take one frame from the client: a text command, or audio in the format of the latest START.

        After `end`, do nothing.
        """
        if self._ended.is_set() or not self._takes:
            return
        with self._guarded():
            for item in self._wire.decode(frame):
                self._feed_item(item)
            self._turn()

    def end(self) -> None:
        """No more will come: what was heard is decoded and told, then `messages` ends."""
        if self._ended.is_set() or not self._takes:
            return
        self._takes = False
        with self._guarded():
            self._feed_audio(self._input.receive_end())
            self._receipts.receive_close(asyncio.get_running_loop().time())
            self._protocol.receive_end()
            self._turn()

    def give_up(self, why: str) -> None:
        """Take every job that still runs for failed: after `end`, the client is told what is known by now."""
        while self._running:
            run = self._running.pop(next(iter(self._running)))
            run.task.cancel()
            with self._guarded():
                self._protocol.receive_failure(run.job, EngineTimeoutError(why))
                self._turn()

    async def messages(self) -> AsyncGenerator[str, None]:
        """Messages for the client, in order, as they become due; to be read once. Raises ReaderTooSlowError."""
        try:
            while events := await self._reader.take():
                for message in self._wire.encode(events):
                    yield message
                if self._metrics:
                    self._metrics.count_partials(*count_partials(events))
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
        if isinstance(item, bytes):
            self._feed_audio(self._input.receive_bytes(item))
            return
        command = self._protocol.prepare(item)
        if isinstance(command, m.Start) and command.setup:
            command = check_resampling(command, command.setup.audio)
        if isinstance(command, m.Start):
            self._input = AudioInput(command.setup.audio if command.setup else AudioFormat())
            self._receipts.receive_start()
        elif isinstance(command, m.Stop):
            self._feed_audio(self._input.receive_end())
            self._input = AudioInput(AudioFormat())  # what follows belongs to no session
        if isinstance(command, m.Stop | m.Commit):
            self._receipts.receive_close(asyncio.get_running_loop().time())
        self._protocol.receive_command(command)

    def _feed_audio(self, samples: Channels) -> None:
        if samples.size:
            self._note_audio(samples.shape[1])
            self._protocol.receive_audio(samples)

    def _turn(self) -> None:
        """Do what the protocol wants done next."""
        for job in self._protocol.jobs_to_run():
            ticket = Ticket(job) if isinstance(job, DecodeJob) else None
            task = asyncio.create_task(self._run(job, ticket))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._running[job.id] = Run(job, task, ticket)
        for job_id in self._protocol.jobs_to_hasten():
            if (run := self._running.get(job_id)) and run.ticket:
                self._dispatcher.hasten(run.ticket)
        for job_id in self._protocol.jobs_to_cancel():
            if run := self._running.pop(job_id, None):
                run.task.cancel()
        self._tell(self._protocol.events_to_send())
        if self._protocol.state is State.IDLE:
            self._receipts.forget_all()
        elif self._protocol.state is State.ENDED:
            self._over()

    def _tell(self, events: list[m.Event]) -> None:
        now_s = asyncio.get_running_loop().time()
        for event in events:
            self._note_event(event)
        stamped = [self._stamp(event, now_s) for event in events]
        self.record.receive(stamped)
        self.log.append(stamped)

    def _stamp(self, event: m.Event, now_s: float) -> m.Event:
        """Measure how old a text is, and say so in events that have a place for it."""
        match event:
            case m.Started():
                self._receipts.begin()
                self._lags = Lags()
            case m.PartialChanged():
                age_s = self._receipts.age_s(event.end, now_s)
                if event.text:
                    self._observe_text("partial", event.end, now_s, age_s)
                event = replace(event, lag_ms=self._note_lag(age_s))
            case m.Progress():
                event = replace(event, lag_ms=self._note_lag(self._receipts.age_s(event.upto, now_s)))
            case m.SegmentLocked() if any(s.text for s in event.sentences):
                age_s = self._receipts.final_age_s(event.noticed, now_s)
                self._observe_text("eager" if event.eager else "final", event.noticed, now_s, age_s)
            case m.Stopped():
                p50, p95 = self._lags.quantile(0.5), self._lags.quantile(0.95)
                event = replace(event, totals=replace(event.totals, lag_p50_ms=p50, lag_p95_ms=p95))
        self._receipts.forget(event.upto)
        return event

    def _observe_text(self, kind: str, sample: int, now_s: float, age_s: float) -> None:
        """A text of this age is told, whose newest sound is this sample."""
        self._dispatcher.lateness.receive_wait(TEXT, self._receipts.late_s(sample, now_s))
        if self._metrics:
            self._metrics.observe_lag(kind, age_s)

    def _note_lag(self, age_s: float) -> int:
        self._lags.add(1000 * age_s)
        return round(1000 * age_s)

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
                if self._metrics:
                    self._metrics.count_error(event.code)
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

    async def _run(self, job: Job, ticket: Ticket | None) -> None:
        """Compute one job and tell the protocol; a cancelled one tells nothing."""
        answer = await self._answer(job, ticket)
        job = ticket.job if ticket else job  # it may have grown while it waited
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

    async def _answer(self, job: Job, ticket: Ticket | None) -> Result | EngineError:
        """The job's result, or what went wrong, within its deadline."""
        clock = asyncio.get_running_loop().time
        started_s = clock()
        try:
            if ticket:
                decoded = await self._dispatcher.run(ticket, renew=self._protocol.receive_turn)
                return replace(decoded, took_ms=1000 * (clock() - started_s))
            return await self._compute_in_time(job)
        except EngineError as error:
            return error
        except asyncio.CancelledError:
            if self._is_cancelling():
                raise
            return EngineError("the engine dropped the job")
        except Exception as error:
            logger.exception("session %s: a job failed in a way that its engine does not declare", self.id)
            return EngineError(f"internal error ({type(error).__name__})")

    async def _compute_in_time(self, job: Job) -> Result:
        """The result of a job that is no decode. Raises EngineTimeoutError after the deadline of all of them."""
        deadline_s, embedder = self._clocks.deadline_s, self._embedder
        match job:
            case WaitJob():
                return await asyncio.sleep(job.wait_ms / 1000, None)
            case ScoreJob():
                return await answer_in_time(self._scorer.score(job), deadline_s)
        assert embedder
        assert not isinstance(job, DecodeJob)
        work = embedder.embed(job) if isinstance(job, EmbedJob) else embedder.cluster(job)
        if isinstance(embedder, Progressing):
            return await answer_in_turn(work, deadline_s, partial(embedder.answered_s, job))
        return await answer_in_time(work, deadline_s)

    @staticmethod
    def _is_cancelling() -> bool:
        """Whether this task was told to stop, and not only something that it awaits."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    # --- a client that falls silent -----------------------------------------------------------------------

    def _note_audio(self, samples: int) -> None:
        loop = asyncio.get_running_loop()
        self._last_audio_s = loop.time()
        self._receipts.receive_audio(samples, self._last_audio_s)
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
        self._receipts.receive_close(loop.time())
        with self._guarded():
            self._protocol.receive_stall()
            self._turn()


def count_partials(events: Sequence[m.Event]) -> tuple[int, int]:
    """How many partials are sent with events that are told together, and how many a newer text stands in for."""
    shown: set[tuple[int, int]] = set()  # channel and segment
    superseded = 0
    for event in events:
        if isinstance(event, m.PartialChanged | m.SegmentLocked):
            place = (event.channel, event.segment)
            superseded += place in shown
            shown.discard(place)
            if isinstance(event, m.PartialChanged) and event.text:
                shown.add(place)
    return len(shown), superseded

"""The embedded recognizer: Whisper on the CPU, one worker thread per core.

Jobs wait in one queue, by priority, then by arrival. Two rules keep finals early while partials are many:

- Partials and file work never hold the last free worker, if there is more than one. (Files may, while nobody
  has spoken for a while.) A final therefore waits for other finals at most; under load the partials thin out.
- Partials that wait together are decoded together, which costs less; finals are always decoded alone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import threading
import time
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from realtime_server.core.jobs import Decoded, DecodeJob, DecodingOptions, Priority
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.base import Capabilities, refuse_unsupported
from realtime_server.errors import EngineError

logger = logging.getLogger(__name__)

LONGEST_S = 30.0
PARTIAL_WINDOW_S = 8.0
BATCH = 4  # partials decoded together at most
QUIET_S = 5.0  # after so long without live work, files may use every worker
BATCHABLE = int(PARTIAL_WINDOW_S * SAMPLE_RATE)  # samples of the longest audio that joins a batch
CLOSED = "the recognizer has been shut down"


class Recognizer(Protocol):
    """What the workers run; several threads call it at the same time."""

    @property
    def languages(self) -> frozenset[str]:
        """Codes of the languages it can be told."""

    @property
    def retried(self) -> int:
        """Decodes repeated so far."""

    def recognise(
        self, jobs: Sequence[DecodeJob], wanted: Callable[[DecodeJob], bool]
    ) -> list[Decoded | None]:
        """Texts of `jobs` in their order; None for those no longer `wanted`."""


def whisper(folder: Path, threads: int) -> Recognizer:
    """The real recognizer; its libraries are imported here."""
    from realtime_server.models.whisper_network import WhisperNetwork

    return WhisperNetwork(folder, threads)


@dataclass(slots=True, order=True)
class Ticket:
    """A job in the queue, and where its answer goes."""

    priority: int
    arrival: int
    job: DecodeJob = field(compare=False)
    loop: asyncio.AbstractEventLoop = field(compare=False)
    answer: asyncio.Future[Decoded] = field(compare=False)
    dropped: bool = field(default=False, compare=False)

    @property
    def live(self) -> bool:
        """Whether somebody is speaking or waiting to read."""
        return self.priority < Priority.FILE

    @property
    def urgent(self) -> bool:
        """Whether it may take the last free worker."""
        return self.priority <= Priority.EAGER

    @property
    def batchable(self) -> bool:
        """Whether it may be decoded together with others: partials over short windows."""
        return self.live and not self.urgent and len(self.job.audio) <= BATCHABLE

    def settle(self, result: Decoded | Exception) -> None:
        """Deliver the result; callable from any thread, harmless when nobody waits any more."""
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(self._deliver, result)

    def _deliver(self, result: Decoded | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class JobQueue:
    """Tickets that wait for `workers` threads, under the rules above; any thread may call any method."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._unhurried = max(1, workers - 1)  # workers that may do other than urgent work at the same time
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[Ticket] = []  # in the order of service
        self._taken: dict[int, list[Ticket]] = {}  # by the arrival number of its first
        self._live_at = -math.inf
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    def put(self, ticket: Ticket) -> None:
        """Let a ticket wait; EngineError once closed."""
        with self._changed:
            if self._closed:
                raise EngineError(CLOSED)
            insort(self._waiting, ticket)
            if ticket.live:
                self._live_at = self._clock()
            self._changed.notify_all()

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket that nobody waits for any more, also while it is worked on."""
        with self._changed:
            ticket.dropped = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def take(self) -> list[Ticket]:
        """Wait for work and return what to do next; empty once closed. `done` must follow."""
        with self._changed:
            while not self._closed:
                batch = self.poll()
                if batch:
                    return batch
                self._changed.wait(QUIET_S if self._waiting else None)
            return []

    def poll(self) -> list[Ticket]:
        """What a free worker should do now; empty if it should wait. `done` must follow."""
        with self._changed:
            unhurried = sum(not batch[0].urgent for batch in self._taken.values())
            quiet = self._clock() - self._live_at >= QUIET_S
            for ticket in self._waiting:
                allowed = self._workers if quiet and not ticket.live else self._unhurried
                if ticket.urgent or unhurried < allowed:
                    batch = self._company(ticket, allowed - unhurried)
                    self._waiting = [other for other in self._waiting if other not in batch]
                    self._taken[batch[0].arrival] = batch
                    return batch
            return []

    def done(self, batch: Sequence[Ticket]) -> None:
        """The batch is finished; its worker is free."""
        with self._changed:
            del self._taken[batch[0].arrival]
            self._changed.notify_all()

    def close(self) -> list[Ticket]:
        """Hand out no more work and wake every worker; return the tickets that will not be answered."""
        with self._changed:
            self._closed = True
            left = [*self._waiting, *itertools.chain.from_iterable(self._taken.values())]
            self._waiting.clear()
            for ticket in left:
                ticket.dropped = True
            self._changed.notify_all()
            return left

    def _company(self, ticket: Ticket, free: int) -> list[Ticket]:
        """The ticket, and its share of the others when more wait than there are workers free for them."""
        if not ticket.batchable:
            return [ticket]
        together = [other for other in self._waiting if other.batchable]
        return together[: min(BATCH, math.ceil(len(together) / free))]


def _cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class EmbeddedEngine:
    """An `Engine`: whisper-base, int8, on the CPU.

    folder: model.bin, config.json, tokenizer.json, vocabulary.txt.  workers: threads, each of one core; None: one
    per core.  load: makes the recognizer. The constructor loads the model, which takes half a second: build the
    engine before the event loop runs, or with asyncio.to_thread. Raises WeightsError.
    """

    def __init__(
        self, folder: Path, *, workers: int | None = None, load: Callable[[Path, int], Recognizer] = whisper
    ) -> None:
        count = workers or _cores()
        self._recognizer = load(folder, count)
        self._queue = JobQueue(count)
        self._arrivals = itertools.count()
        self._capabilities = Capabilities(
            languages=self._recognizer.languages,
            hotwords="soft",
            words=True,
            logprobs=True,
            prefix=False,
            translate=True,
            longest_s=LONGEST_S,
            partial_window_s=PARTIAL_WINDOW_S,
            concurrency=count,
            batch=BATCH,
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"whisper-{n}", daemon=True) for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def retried(self) -> int:
        """Decodes repeated with a longer context so far, because the decoder ran away."""
        return self._recognizer.retried

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self._capabilities

    @property
    def healthy(self) -> bool:
        """Whether a worker is left to answer; they outlive whatever the model raises, and end when it is closed."""
        return not self._queue.closed and any(thread.is_alive() for thread in self._threads)

    async def warmup(self) -> None:
        """Decode a moment of noise in each context; EngineError if that fails."""
        noise = np.random.default_rng(0).normal(0.0, 0.01, 30 * SAMPLE_RATE).astype(np.float32)
        lengths = (SAMPLE_RATE, 12 * SAMPLE_RATE, 30 * SAMPLE_RATE)
        options = DecodingOptions(language="en", words=True, max_new_tokens=4)
        jobs = [
            DecodeJob(n, "", 0, 0, "final", Priority.FILE, 0, 0, length, noise[:length], "", options)
            for n, length in enumerate(lengths)
        ]
        await asyncio.gather(*map(self.transcribe, jobs))

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Recognise one job; `on_text` is not called, the text comes at once.

        Raises UnsupportedError for what the capabilities exclude, EngineError when the model fails or was closed.
        """
        refuse_unsupported(job, self._capabilities)
        loop = asyncio.get_running_loop()
        ticket = Ticket(job.priority, next(self._arrivals), job, loop, loop.create_future())
        self._queue.put(ticket)
        try:
            return await ticket.answer
        finally:
            self._queue.drop(ticket)

    async def aclose(self) -> None:
        """End the workers; unanswered jobs get EngineError at once."""
        for ticket in self._queue.close():
            ticket.settle(EngineError(CLOSED))
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _work(self) -> None:
        """A worker thread."""
        while batch := self._queue.take():
            try:
                self._decode(batch)
            finally:
                self._queue.done(batch)

    def _decode(self, batch: Sequence[Ticket]) -> None:
        wanted = {id(ticket.job): ticket for ticket in batch}
        try:
            answers = self._recognizer.recognise(
                [ticket.job for ticket in batch], lambda job: not wanted[id(job)].dropped
            )
        except Exception as error:  # foreign: the model may raise anything, and the worker must live on
            if len(batch) > 1:
                for ticket in batch:
                    self._decode([ticket])
                return
            logger.exception(
                "the recognizer failed on %.1f s of audio", len(batch[0].job.audio) / SAMPLE_RATE
            )
            failure = EngineError(f"the recognizer failed: {error}")
            failure.__cause__ = error
            batch[0].settle(failure)
            return
        for ticket, answer in zip(batch, answers, strict=True):
            if answer is not None:
                ticket.settle(answer)

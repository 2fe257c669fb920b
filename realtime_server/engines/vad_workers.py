"""The FSMN-VAD in processes of its own, for a server whose event loop has more to do than one core can.

A stream stays in one worker, which keeps its state; jobs are grouped only to cross the process boundary: what is asked
for in one turn of the event loop is written at once, and answers come together when they are ready together.

The network's memory is finite: what was scored more than MEMORY ago has no influence on a stream, to the last bit. So
the last MEMORY of each stream's samples is kept here, and when a worker dies, or hangs, its streams go on in another
from those samples, and nobody hears of it but the log. A job that brings down two workers is not tried a third time.

Bounds: a stream has one job at a time, so what waits for a worker is at most a job per stream.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from realtime_server.core.jobs import Probabilities, Samples, ScoreJob
from realtime_server.core.segments import FRAME
from realtime_server.engines.base import Scorer
from realtime_server.engines.vad_wire import Kind, Told, pack_job, split_messages
from realtime_server.errors import EngineError, WeightsError

logger = logging.getLogger(__name__)

PROGRAM = (
    "realtime_server.engines.vad_worker"  # not imported here: it would bring the network's libraries along
)
MEMORY = (
    14 * FRAME
)  # samples: four layers that remember 19 frames of 10 ms each, and two on either side of each
LOAD_S = 60.0  # for a worker to load the network
HANG_S = 4.0  # a worker with jobs that answers none for so long hangs; a session waits longer than that
RETRY_S = 1.0  # before a worker that could not be started is started again
CLOSE_S = 2.0  # for a worker to end by itself
POLL_S = 0.005  # between two looks at whether a process has ended
TRIES = 2  # of a job: a worker may die of anything once

Key = tuple[str, int]  # session, channel: the first job of a new epoch replaces the stream of the last


@dataclass(slots=True, eq=False)
class Stream:
    """A channel's audio, in whichever worker."""

    number: int
    worker: Worker | None = None
    heard: deque[Samples] = field(default_factory=deque)  # scored lately: at least MEMORY, or everything
    job: ScoreJob | None = None
    answer: asyncio.Future[Probabilities] | None = None  # of the job
    tries: int = 0

    def keep(self, samples: Samples) -> None:
        """These were scored: remember as much as another worker would need."""
        self.heard.append(samples[-MEMORY:])
        kept = sum(map(len, self.heard))
        while kept - len(self.heard[0]) >= MEMORY:
            kept -= len(self.heard.popleft())


class WorkerScorer(Scorer):
    """Voice activity streams, spread over worker processes.

    restarts: workers that died or hung and were replaced.
    """

    def __init__(self, folder: Path, workers: int, hang_s: float = HANG_S) -> None:
        """Start the processes and wait until each has loaded the network. Raises WeightsError, EngineError."""
        self.restarts = 0
        self.hang_s = hang_s
        self._folder = folder
        self._streams: dict[str, dict[int, Stream]] = {}  # by session and channel
        self._homeless: dict[int, Stream] = {}  # with a job, and no worker to send it to, by number
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = self._attached = False
        self._workers = [Worker(self, folder) for _ in range(workers)]
        try:
            for worker in self._workers:
                worker.await_loaded(LOAD_S)
        except BaseException:
            for worker in self._workers:
                worker.kill()
            raise

    @property
    def up(self) -> int:
        """Workers that take jobs."""
        return sum(worker.up for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [worker.pid for worker in self._workers]

    async def score(self, job: ScoreJob) -> Probabilities:
        """See Scorer; raises EngineError if the stream is unknown, broken, or scoring another job."""
        if self._closed:
            raise EngineError("the scorer is closed")
        self._attach()
        stream = self._begin(job) if job.first else self._find(job)
        stream.job, stream.tries = job, 0
        stream.answer = asyncio.get_running_loop().create_future()
        self._place(stream)
        try:
            scores = await stream.answer
        except BaseException:
            self._drop(job.session, job.channel, stream)  # it has missed this audio
            raise
        stream.job = stream.answer = None
        if job.last:
            self._drop(job.session, job.channel, stream)
        else:
            stream.keep(job.samples)
        return scores

    def forget(self, session: str) -> None:
        """See Scorer; a job in progress ends with EngineError."""
        for channel, stream in list(self._streams.get(session, {}).items()):
            self._drop(session, channel, stream)
            if stream.answer and not stream.answer.done():
                stream.answer.set_exception(EngineError("its session has ended"))

    async def aclose(self) -> None:
        """End the processes; jobs in progress end with EngineError."""
        self._closed = True
        for session in list(self._streams):
            self.forget(session)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(worker.aclose() for worker in self._workers))

    # --- streams ------------------------------------------------------------------------------------------

    def _begin(self, job: ScoreJob) -> Stream:
        channels = self._streams.setdefault(job.session, {})
        if old := channels.get(job.channel):
            self._drop(job.session, job.channel, old)
        stream = Stream(next(self._numbers))
        self._streams.setdefault(job.session, {})[job.channel] = stream
        return stream

    def _find(self, job: ScoreJob) -> Stream:
        stream = self._streams.get(job.session, {}).get(job.channel)
        if stream and not stream.job:
            return stream
        state = "scoring another job" if stream else "unknown, or broken"
        raise EngineError(f"voice activity stream {(job.session, job.channel)} is {state}")

    def _drop(self, session: str, channel: int, stream: Stream) -> None:
        """Forget a stream, here and in its worker, unless another has taken its place."""
        self._homeless.pop(stream.number, None)
        if stream.worker:
            stream.worker.remove(stream)
        channels = self._streams.get(session, {})
        if channels.get(channel) is stream:
            del channels[channel]
            if not channels:
                del self._streams[session]

    def _place(self, stream: Stream) -> None:
        """Send a stream's job to its worker, or to the one that has the fewest; or let it wait for one."""
        worker = stream.worker or min(
            (worker for worker in self._workers if worker.up), key=lambda each: each.load, default=None
        )
        if worker:
            worker.add(stream)
        else:
            self._homeless[stream.number] = stream

    # --- workers ------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        """The workers were started before there was an event loop; from now on it listens to them."""
        if not self._attached:
            self._attached = True
            for worker in self._workers:
                self._hold(worker.connect())

    def receive_up(self) -> None:
        """A worker takes jobs now: those that have none are sent there."""
        waiting, self._homeless = self._homeless, {}
        for stream in waiting.values():
            self._place(stream)

    def receive_lost(self, worker: Worker, streams: Iterable[Stream]) -> None:
        """A worker is gone: another is started, and its streams go on elsewhere."""
        if self._closed:
            return
        self._hold(self._replace(worker))
        for stream in streams:
            stream.worker = None
            if not stream.answer or stream.answer.done():
                continue
            stream.tries += 1
            if stream.tries < TRIES:
                self._place(stream)
            else:
                stream.answer.set_exception(EngineError("its audio brought two voice activity workers down"))

    async def _replace(self, worker: Worker) -> None:
        status, was_up = await worker.aclose(), worker.was_up
        logger.warning("a voice activity worker ended, exit status %s; another is started", status)
        self.restarts += 1
        if not was_up:
            await asyncio.sleep(RETRY_S)
        successor = await self._start_another()
        self._workers[self._workers.index(worker)] = successor
        await successor.connect()

    async def _start_another(self) -> Worker:
        while True:
            try:
                return Worker(self, self._folder)
            except OSError as error:
                logger.error("no voice activity worker can be started: %s", error)
            await asyncio.sleep(RETRY_S)

    def _hold(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Worker(asyncio.Protocol):
    """A process, the socket to it, and the streams in it."""

    def __init__(self, owner: WorkerScorer, folder: Path) -> None:
        """Start the process."""
        self.up = self.was_up = False
        self._owner = owner
        self._streams: dict[int, Stream] = {}
        self._busy: set[int] = set()  # streams whose job is not answered
        self._unsent: list[bytes] = []
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._progress_s = 0.0
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = _spawn(theirs.fileno(), folder)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def load(self) -> int:
        """Streams in it."""
        return len(self._streams)

    def await_loaded(self, within_s: float) -> None:
        """Block until the network is loaded. Raises WeightsError if it cannot be, EngineError if the process fails."""
        readable, _, _ = select.select([self._socket], [], [], within_s)
        seen = bytearray(self._socket.recv(1 << 16, socket.MSG_PEEK) if readable else b"")
        kind, _, content = next(split_messages(seen), (None, 0, b""))
        if kind is Told.UNUSABLE:
            raise WeightsError(content.decode())
        if kind is not Told.READY:
            raise EngineError("a voice activity worker does not start; its log is above")

    async def connect(self) -> None:
        """Let the running event loop listen."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._socket)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    async def aclose(self) -> int:
        """Let the process end, or end it; return its exit status."""
        self.up = False
        if self._watch:
            self._watch.cancel()
        if self._transport:
            self._transport.close()
        else:
            self._socket.close()
        end_s = time.monotonic() + CLOSE_S
        # No thread waits for it: at the end of a program none can be had.
        while (status := self._process.poll()) is None:
            if time.monotonic() > end_s:
                self._process.kill()
            await asyncio.sleep(POLL_S)
        return status

    # --- streams ------------------------------------------------------------------------------------------

    def add(self, stream: Stream) -> None:
        """Send a stream's job; a stream that is new here brings along what it needs to go on."""
        assert stream.job
        kind, known = Kind.LAST if stream.job.last else Kind.SCORE, np.empty(0, np.float32)
        if stream.worker is not self:
            kind |= Kind.NEW
            known = np.concatenate([known, *stream.heard])
            stream.worker = self
            self._streams[stream.number] = stream
        if not self._busy:
            self._progress_s = time.monotonic()
        if not self._watch:
            self._look_again(self._owner.hang_s)
        self._busy.add(stream.number)
        self._send(pack_job(kind, stream.number, known, stream.job.samples))

    def remove(self, stream: Stream) -> None:
        """Forget a stream."""
        stream.worker = None
        self._busy.discard(stream.number)
        if self._streams.pop(stream.number, None) and self.up:
            empty = np.empty(0, np.float32)
            self._send(pack_job(Kind.DROP, stream.number, empty, empty))

    def _send(self, data: bytes) -> None:
        """Write what is sent in one turn of the event loop together."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport and self.up:
            self._transport.write(b"".join(unsent))

    # --- what the event loop tells ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._progress_s = time.monotonic()
        self._received += data
        for kind, number, content in split_messages(self._received):
            match kind:
                case Told.READY:
                    self.up = self.was_up = True
                    self._owner.receive_up()
                case Told.UNUSABLE:
                    logger.error("a voice activity worker cannot load the network: %s", content.decode())
                case Told.SCORES | Told.FAILED:
                    self._answer(kind, number, content)

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.up = False
        if self._watch:
            self._watch.cancel()
        streams, self._streams = self._streams, {}
        self._busy.clear()
        self._owner.receive_lost(self, streams.values())

    def _answer(self, kind: Told, number: int, content: bytes) -> None:
        self._busy.discard(number)
        stream = self._streams.get(number)
        if stream is None or stream.answer is None or stream.answer.done():
            return  # it was dropped meanwhile
        if kind is Told.SCORES:
            stream.answer.set_result(np.frombuffer(content, np.float32))
        else:
            stream.answer.set_exception(EngineError(f"voice activity stream failed: {content.decode()}"))

    def _look_again(self, in_s: float) -> None:
        self._watch = asyncio.get_running_loop().call_later(in_s, self._check)

    def _check(self) -> None:
        """A process that has work and does none is ended; its end is noticed as any other."""
        self._watch = None
        if not self._busy:
            return
        left_s = self._progress_s + self._owner.hang_s - time.monotonic()
        if left_s > 0:
            self._look_again(left_s)
            return
        logger.warning(
            "a voice activity worker has answered nothing for %g s: it is ended", self._owner.hang_s
        )
        self._process.kill()


def _spawn(descriptor: int, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", PROGRAM, str(descriptor), str(folder)]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=os.environ | environment, pass_fds=(descriptor,), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, start_new_session=True,  # Ctrl-C is not meant for it
    )  # fmt: skip

"""The FSMN-VAD in processes of its own, for a server whose event loop has more to do than one core can.

A stream stays in one worker, which keeps its state; jobs are grouped only to cross the process boundary: what is asked
for in one turn of the event loop is written at once, and answers come together when they are ready together.

The network's memory is finite: what was scored more than MEMORY ago has no influence on a stream, to the last bit. So
the last MEMORY of each stream's samples is kept, and when a worker dies, or hangs, its streams go on in another
from those samples, and nobody hears of it but the log. Any of the jobs that it had may have brought it down. So jobs
that two workers died with are tried in the next one alone, and a job that was alone when the last of them died is given
up.

Bounds: a stream has one job at a time, so what waits for a worker is at most a job per stream.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Sequence
from pathlib import Path

from realtime_server.core.jobs import Probabilities, ScoreJob
from realtime_server.engines.base import Scorer
from realtime_server.engines.vad_processes import Stream, Worker
from realtime_server.errors import EngineError

logger = logging.getLogger(__name__)

LOAD_S = 60.0  # for a worker to load the network; one that takes longer hangs
HANG_S = 4.0  # a worker with jobs that answers none for so long hangs; a session waits longer than that
RESTART_S = 1.0  # before a worker that could not be started is started again
TRIES = 2  # of a job beside others: a worker may die of anything once


class WorkerScorer(Scorer):
    """Voice activity streams, spread over worker processes.

    restarts: workers that died or hung and were replaced.
    """

    def __init__(self, folder: Path, workers: int, hang_s: float = HANG_S, load_s: float = LOAD_S) -> None:
        """Start the processes and wait until each has loaded the network. Raises WeightsError, EngineError."""
        self.restarts = 0
        self.hang_s, self.load_s = hang_s, load_s
        self._folder = folder
        self._streams: dict[str, dict[int, Stream]] = {}  # by session and channel
        self._homeless: dict[int, Stream] = {}  # with a job, and no worker to send it to, by number
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = self._attached = False
        self._workers = [Worker(self, folder) for _ in range(workers)]
        try:
            for worker in self._workers:
                worker.await_loaded(load_s)
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
        self.attach()
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
            (worker for worker in self._workers if worker.takes), key=lambda each: each.load, default=None
        )
        if worker and worker.takes:
            worker.add(stream)
        else:
            self._homeless[stream.number] = stream

    # --- workers ------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """See Staffed: the workers were started before there was an event loop; the first job does it, too."""
        if not self._attached:
            self._attached = True
            for worker in self._workers:
                self._hold(worker.connect())

    def receive_up(self) -> None:
        """See Owner: streams without a worker are sent there."""
        waiting, self._homeless = self._homeless, {}
        for stream in waiting.values():
            self._place(stream)

    def receive_lost(self, worker: Worker, in_flight: Sequence[Stream]) -> None:
        """See Owner: another is started, and the jobs that it had go on elsewhere."""
        if self._closed:
            return
        suspects = list(worker.suspects)
        for stream in in_flight:
            assert stream.answer
            stream.tries += 1
            if stream.tries < TRIES:
                self._place(stream)
            elif len(in_flight) > 1:
                suspects.append(stream)
            else:
                stream.answer.set_exception(EngineError("its audio brought voice activity workers down"))
        self._hold(self._replace(worker, suspects))

    async def _replace(self, worker: Worker, suspects: list[Stream]) -> None:
        status, was_up = await worker.aclose(), worker.was_up
        logger.warning("a voice activity worker ended, exit status %s; another is started", status)
        self.restarts += 1
        if not was_up:
            await asyncio.sleep(RESTART_S)
        successor = await self._start_another()
        successor.suspects.extend(suspects)
        self._workers[self._workers.index(worker)] = successor
        await successor.connect()

    async def _start_another(self) -> Worker:
        while True:
            try:
                return Worker(self, self._folder)
            except OSError as error:
                logger.error("no voice activity worker can be started: %s", error)
            await asyncio.sleep(RESTART_S)

    def _hold(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

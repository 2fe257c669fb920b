"""Processes that run the FSMN-VAD, each with the streams in it; see vad_workers.py."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from realtime_server.core.jobs import Probabilities, Samples, ScoreJob
from realtime_server.core.segments import FRAME
from realtime_server.engines.vad_wire import Kind, Told, pack_job, split_messages
from realtime_server.errors import EngineError, WeightsError

logger = logging.getLogger(__name__)

PROGRAM = (
    "realtime_server.engines.vad_worker"  # not imported here: it would bring the network's libraries along
)
MEMORY = (
    14 * FRAME
)  # samples: four layers that remember 19 frames of 10 ms each, and two on either side of each
CLOSE_S = 2.0  # for a worker to end by itself
POLL_S = 0.005  # between two looks at whether a process has ended


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


class Owner(Protocol):
    """Whose workers they are.

    hang_s: a worker with jobs that answers none for so long hangs.  load_s: and so does one that loads for longer.
    """

    hang_s: float
    load_s: float

    def receive_up(self) -> None:
        """A worker takes jobs now."""

    def receive_lost(self, worker: Worker, in_flight: Sequence[Stream]) -> None:
        """A worker is gone, with these streams' jobs."""


class Worker(asyncio.Protocol):
    """A process, the socket to it, and the streams in it.

    suspects: streams whose jobs may bring a worker down, and which are tried here one by one before others come.
    """

    def __init__(self, owner: Owner, folder: Path) -> None:
        """Start the process."""
        self.up = self.was_up = False
        self.suspects = deque[Stream]()
        self._tried: Stream | None = None  # alone
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

    @property
    def takes(self) -> bool:
        """Whether any stream may come."""
        return self.up and not (self.suspects or self._tried)

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
        """Let the running event loop listen; a process that does not load the network in time is ended."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._owner.load_s, self._give_up_loading)
        await loop.create_unix_connection(lambda: self, sock=self._socket)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    async def aclose(self) -> int:
        """Let the process end, or end it; return its exit status."""
        self.up = False
        self._stop_watching()
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
            self._end_trial(stream)

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
                    self._stop_watching()
                    self._try_next()
                case Told.UNUSABLE:
                    logger.error("a voice activity worker cannot load the network: %s", content.decode())
                case Told.SCORES | Told.FAILED:
                    self._answer(kind, number, content)

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.up, self._tried = False, None
        self._stop_watching()
        streams, self._streams = self._streams, {}
        busy, self._busy = self._busy, set()
        for stream in streams.values():
            stream.worker = None
        in_flight = [streams[number] for number in busy]
        self._owner.receive_lost(self, [each for each in in_flight if each.answer and not each.answer.done()])

    def _answer(self, kind: Told, number: int, content: bytes) -> None:
        self._busy.discard(number)
        stream = self._streams.get(number)
        if stream is None or stream.answer is None or stream.answer.done():
            return  # it was dropped meanwhile
        if kind is Told.SCORES:
            stream.answer.set_result(np.frombuffer(content, np.float32))
        else:
            stream.answer.set_exception(EngineError(f"voice activity stream failed: {content.decode()}"))
        self._end_trial(stream)

    def _end_trial(self, stream: Stream) -> None:
        """A job was answered, or is not wanted any more: if it was tried alone, others may come."""
        if stream is self._tried:
            self._tried = None
            self._try_next()

    def _try_next(self) -> None:
        """Try the next suspect; without one, all may come."""
        while self.suspects and not self._tried:
            stream = self.suspects.popleft()
            if stream.answer and not stream.answer.done():  # it is still wanted
                self._tried = stream
                self.add(stream)
        if self.takes:
            self._owner.receive_up()

    def _stop_watching(self) -> None:
        if self._watch:
            self._watch.cancel()
        self._watch = None

    def _give_up_loading(self) -> None:
        self._watch = None
        logger.warning(
            "a voice activity worker has not loaded the network in %g s: it is ended", self._owner.load_s
        )
        self._process.kill()

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

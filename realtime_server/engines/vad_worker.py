"""The process in which voice activity streams live: `python -m realtime_server.engines.vad_worker DESCRIPTOR FOLDER`.

It loads the network of FOLDER and nothing of the server, and ends when the socket DESCRIPTOR is closed; vad_wire.py
has what goes over it. Jobs take turns of a SLICE, so a recording's long one does not keep a live stream waiting.
"""

from __future__ import annotations

import socket
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from realtime_server.core.jobs import Probabilities, Samples
from realtime_server.core.segments import FRAME
from realtime_server.engines.vad_wire import Kind, Told, pack_message, take_job
from realtime_server.errors import WeightsError
from realtime_server.models.fsmn_vad import FsmnStream, FsmnVad

SLICE = 10 * FRAME  # samples
ANSWER_AFTER = 16 * FRAME  # samples scored before answers go out, if more work waits: about 3 ms
READ_AT_ONCE = 1 << 20  # bytes


@dataclass(slots=True)
class Work:
    """A job that waits or is being done."""

    number: int  # of its stream
    pieces: deque[Samples]  # at most a SLICE each
    silent: int  # pieces at the beginning that are not answered
    rest: Samples | None  # to be flushed, of a LAST job
    scores: list[Probabilities] = field(default_factory=list)


class Desk:
    """The streams of this process and their jobs: bytes in, bytes out."""

    def __init__(self, model: FsmnVad) -> None:
        self._model = model
        self._streams: dict[int, FsmnStream] = {}
        self._work: deque[Work] = deque()
        self._unread = bytearray()

    @property
    def idle(self) -> bool:
        """Whether no job waits."""
        return not self._work

    def receive(self, data: bytes) -> None:
        """Bytes of jobs came, in whatever pieces."""
        self._unread += data
        while job := take_job(self._unread):
            self._take(*job)

    def work(self) -> tuple[bytes, int]:
        """Do a slice of the oldest job; return the message if that was its end, and how many samples were scored."""
        work = self._work.popleft()
        try:
            return self._do(work)
        except Exception as error:  # whatever a stream may run into, others go on
            self._streams.pop(work.number, None)
            return pack_message(Told.FAILED, work.number, str(error).encode()), 0

    def _take(self, kind: Kind, number: int, known: Samples, samples: Samples) -> None:
        if kind & Kind.DROP:
            self._streams.pop(number, None)
            self._work = deque(work for work in self._work if work.number != number)
            return
        if kind & Kind.NEW:
            self._streams[number] = self._model.stream()
        whole = len(samples) // FRAME * FRAME if kind & Kind.LAST else len(samples)
        silent, pieces = _slices(known), _slices(samples[:whole])
        rest = samples[whole:] if kind & Kind.LAST else None
        self._work.append(Work(number, deque([*silent, *pieces]), len(silent), rest))

    def _do(self, work: Work) -> tuple[bytes, int]:
        stream, scored = self._streams[work.number], 0
        if work.pieces:
            piece = work.pieces.popleft()
            scores, scored = stream.feed(piece), len(piece)
            if not work.silent:
                work.scores.append(scores)
            work.silent = max(0, work.silent - 1)
        if work.pieces:
            self._work.append(work)
            return b"", scored
        if work.rest is not None:
            work.scores.append(stream.flush(work.rest))
            del self._streams[work.number]
        found = b"".join(scores.tobytes() for scores in work.scores)
        return pack_message(Told.SCORES, work.number, found), scored


def _slices(samples: Samples) -> list[Samples]:
    return [samples[at : at + SLICE] for at in range(0, len(samples), SLICE)]


def main(arguments: list[str]) -> None:
    """Work until the socket is closed."""
    with socket.socket(fileno=int(arguments[0])) as connection, suppress(ConnectionError):
        try:
            desk = Desk(FsmnVad.load(Path(arguments[1])))
        except WeightsError as error:
            connection.sendall(pack_message(Told.UNUSABLE, 0, str(error).encode()))
            return
        connection.sendall(pack_message(Told.READY, 0))
        while True:
            if not _read(connection, desk):
                return
            _work_a_while(connection, desk)


def _read(connection: socket.socket, desk: Desk) -> bool:
    """Take what has come, and wait for it only if there is nothing to do; False when the socket is closed."""
    connection.setblocking(desk.idle)
    try:
        data = connection.recv(READ_AT_ONCE)
    except BlockingIOError:
        return True
    desk.receive(data)
    return bool(data)


def _work_a_while(connection: socket.socket, desk: Desk) -> None:
    """Work until the answers should go out."""
    messages, scored = list[bytes](), 0
    while not desk.idle and scored < ANSWER_AFTER:
        message, samples = desk.work()
        messages.append(message)
        scored += samples
    connection.setblocking(True)
    connection.sendall(b"".join(messages))


if __name__ == "__main__":
    main(sys.argv[1:])

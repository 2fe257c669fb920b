"""Recordings decoded beside a running server: a bounded number at once, each in a process of its own.

The processes (see audio_worker.py) are started when first needed and used again for later recordings. One whose
recording was cancelled, took too long or brought it down is killed; the next recording gets a fresh one. So does,
once, a recording whose process died: the system may have killed it for want of memory. The event
loop moves finished samples only, a minute of them in two megabytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from realtime_server.errors import AudioError, BusyError, ConfigurationError
from realtime_server.offline import audio_worker
from realtime_server.offline.audio_file import OnProgress
from realtime_server.offline.audio_source import AudioLimits, Source, open_source, scarcity
from realtime_server.offline.audio_worker import HEADER
from realtime_server.offline.recording import Recording

logger = logging.getLogger(__name__)

RECORDINGS_PER_PROCESS = 200  # then a fresh one: libraries may leak
LARGEST_MESSAGE = 16 << 20  # bytes
POLL_S = 0.005  # between two looks at whether a process that was killed has ended
READ_AHEAD = 1 << 20  # bytes of a process's samples that wait for the event loop


class AudioReader:
    """Decodes recordings; one for the whole server."""

    def __init__(self, limits: AudioLimits | None = None) -> None:
        """Start nothing yet."""
        self._limits = limits or AudioLimits()
        self._slots = asyncio.Semaphore(self._limits.processes)
        self._room = self._limits.processes + self._limits.waiting
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._closed = False

    async def read(
        self, source: Source, *, channel: int | None = None, on_progress: OnProgress | None = None
    ) -> Recording:
        """Read a whole recording; one `channel`, counted from 0, or the average of all.

        `on_progress` is called every few seconds of audio, from the beginning again if a process dies. Cancelling
        ends the work at once. Raises AudioError, BusyError, and ConfigurationError where the extra `files` is not
        installed.
        """
        self._refuse_when_closed()
        if not self._room:
            raise BusyError("too many recordings are waiting already")
        self._room -= 1
        try:
            async with self._slots:
                file = await _open(source, self._limits)
                with file:
                    return await self._decode(file, channel, on_progress)
        finally:
            self._room += 1

    async def aclose(self) -> None:
        """End the processes; recordings that are being read or wait end with BusyError."""
        self._closed = True
        for worker in (*self._idle, *self._busy):
            await worker.stop()
        self._idle.clear()

    async def _decode(self, file: BinaryIO, channel: int | None, on_progress: OnProgress | None) -> Recording:
        try:
            return await self._attempt(await self._take(), file, channel, on_progress)
        except _DecoderDied as first:
            logger.warning("a decoder died, exit status %s; its recording is tried once more", first.status)
        file.seek(0)  # a position that both processes share
        try:
            return await self._attempt(await self._start(), file, channel, on_progress)
        except _DecoderDied as second:
            logger.warning("a recording brought its decoder down, exit status %s", second.status)
            if second.status == -signal.SIGKILL:
                raise BusyError("the decoder was killed; the server may be short of memory") from None
        raise AudioError("the recording cannot be decoded: its decoder broke down", "undecodable")

    async def _attempt(
        self, worker: _Worker, file: BinaryIO, channel: int | None, on_progress: OnProgress | None
    ) -> Recording:
        """Decode in one process. Raises _DecoderDied if it dies, unless it was ended on purpose."""
        try:
            self._refuse_when_closed()  # meanwhile
            async with asyncio.timeout(self._limits.decode_s):
                return await worker.decode(file, channel, on_progress)
        except TimeoutError:
            limit = f"{self._limits.decode_s:g} s, the limit"
            raise AudioError(f"decoding the recording takes longer than {limit}", "too_slow") from None
        except (EOFError, ConnectionError):
            self._refuse_when_closed()
            raise _DecoderDied(await worker.stop()) from None
        finally:
            self._busy.discard(worker)
            if worker.usable and not self._closed:
                self._idle.append(worker)
            else:
                await worker.stop()

    async def _take(self) -> _Worker:
        """Return a process to work with: an idle one, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                self._busy.add(worker)
                return worker
            await worker.stop()
        return await self._start()

    async def _start(self) -> _Worker:
        worker = await _Worker.start(self._limits)
        self._busy.add(worker)
        return worker

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise BusyError("the server is stopping")


class _DecoderDied(Exception):  # noqa: N818 - it is an event, caught where it is raised for
    """A process ended in the middle of a recording."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Worker:
    """A decoder process and the socket to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], connection: socket.socket,
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._process, self._socket, self._reader, self._writer = process, connection, reader, writer
        self._left = RECORDINGS_PER_PROCESS
        self.usable = True  # for another recording: not while it works, and not after a failure of its own

    @classmethod
    async def start(cls, limits: AudioLimits) -> _Worker:
        """Start one; its libraries load while it receives its first recording. Raises BusyError."""
        with scarcity():
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    process = _spawn(theirs.fileno(), limits)
            except BaseException:
                ours.close()
                raise
        try:
            return cls(process, ours, *await asyncio.open_unix_connection(sock=ours, limit=READ_AHEAD))
        except BaseException:
            ours.close()
            process.kill()
            process.wait()
            raise

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    async def decode(self, file: BinaryIO, channel: int | None, on_progress: OnProgress | None) -> Recording:
        """Return a recording; raises what AudioReader.read() does, EOFError or ConnectionError if it dies."""
        self.usable = False
        socket.send_fds(self._socket, [json.dumps({"channel": channel}).encode()], [file.fileno()])
        recording = Recording()
        while (message := await self._receive())[0] == b"S":
            recording.append(np.frombuffer(message[1], "<i2"))
            if on_progress:
                on_progress(recording.seconds)
        self._left -= 1
        self.usable = self._left > 0
        return _conclude(recording, json.loads(message[1]))

    async def stop(self) -> int:
        """End the process; return its exit status."""
        self.usable = False
        self._process.kill()
        self._writer.close()
        # No thread waits for it: at the end of a program none can be had.
        while (status := self._process.poll()) is None:  # noqa: ASYNC110 - a process that ends sets no event
            await asyncio.sleep(POLL_S)
        return status

    async def _receive(self) -> tuple[bytes, bytes]:
        kind, size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if size > LARGEST_MESSAGE:
            raise ConnectionError(f"a decoder process sends {size} bytes at once")
        return kind, await self._reader.readexactly(size)


def _spawn(descriptor: int, limits: AudioLimits) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", audio_worker.__name__, str(descriptor), json.dumps(asdict(limits))]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=os.environ | environment, pass_fds=(descriptor,), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, start_new_session=True,  # Ctrl-C is not meant for it
    )  # fmt: skip


def _conclude(recording: Recording, end: dict[str, Any]) -> Recording:
    """Return the recording, or raise what its end tells of."""
    match end:
        case {"notes": notes}:
            recording.notes += notes
            return recording
        case {"error": text, "code": code}:
            raise AudioError(text, code)
        case {"configuration": text}:
            raise ConfigurationError(text)
    raise RuntimeError(f"a decoder process failed:\n{end['bug']}")


async def _open(source: Source, limits: AudioLimits) -> BinaryIO:
    """Open on a thread, which may have to copy; if cancelled, close when that is done.

    A temporary file is left in peace first: its owner closes it next, and what another thread is just about to write
    it to would stay open.
    """
    opening = asyncio.ensure_future(asyncio.to_thread(open_source, source, limits))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_result)
        if isinstance(source, tempfile.SpooledTemporaryFile):
            await asyncio.wait({opening})
        raise


def _close_result(opening: asyncio.Future[BinaryIO]) -> None:
    if not opening.cancelled() and not opening.exception():
        opening.result().close()

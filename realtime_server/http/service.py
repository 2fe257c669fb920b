"""Requests of all kinds share this: places to run in, recordings in memory, and the end of the server.

Theory. A request takes a place before its first byte is read and keeps it to its end. When all are taken, newcomers
are refused, told to come again. Audio that has been decoded is held in memory until its text is known; another
recording is begun only while what is held is no longer than the longest recording allowed. When there was no room for
`room_s`, recordings that wait are refused. At the end of the server newcomers are refused, connections that wait for
nothing are ended, and requests that run have some time; then they are cancelled, which `admitted` turns into words for
their clients.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from realtime_server.core.jobs import Capabilities
from realtime_server.core.segments import Sentence
from realtime_server.core.settings import SessionSettings
from realtime_server.errors import BusyError, EngineError
from realtime_server.http.errors import stopping
from realtime_server.http.options import HttpOptions
from realtime_server.offline.audio_reader import AudioReader
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recording import Recording
from realtime_server.offline.transcriber import Transcriber
from realtime_server.offline.transcription import Transcription
from realtime_server.realtime.patience import happens

logger = logging.getLogger(__name__)

T = TypeVar("T")
OnSentences = Callable[[tuple[Sentence, ...]], None]


@dataclass(slots=True)
class FileCounts:
    """What became of recordings so far."""

    transcribed: int = 0
    failed: int = 0  # not one segment could be recognised
    cancelled: int = 0  # the client left, or the server ended
    refused: int = 0  # requests for which there was no place
    audio_s: float = 0.0  # of those transcribed


class FileService:
    """Transcribes recordings for requests; one for the server.

    settings: the defaults of the live service's sessions, of which language, hotwords, speakers and limits count here.
    """

    def __init__(
        self, transcriber: Transcriber, reader: AudioReader, capabilities: Capabilities,
        settings: SessionSettings, options: HttpOptions,
    ) -> None:  # fmt: skip
        self.capabilities, self.settings, self.options = capabilities, settings, options
        self.draining = False
        self.counts = FileCounts()
        self.audio = HeldAudio(options.limits.duration_s)
        self._transcriber, self._reader = transcriber, reader
        self._decoders = asyncio.Semaphore(options.limits.processes)
        self._running: set[asyncio.Task[object]] = set()
        self._idle: set[asyncio.Task[object]] = (
            set()
        )  # of those, what the end of the server need not wait for
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def running(self) -> int:
        """Requests, and connections to /ws."""
        return len(self._running)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Give the current task a place for a request. Raises RequestError at the end of the server, or BusyError."""
        if self.draining:
            self.counts.refused += 1
            raise stopping()
        if self.running >= self.options.max_files:
            self.counts.refused += 1
            raise BusyError(f"{self.running} requests are running already")
        task = _current_task()
        self._running.add(task)
        self._empty.clear()
        try:
            yield
        except asyncio.CancelledError:
            if not self.draining:
                raise
            task.uncancel()
            raise stopping() from None
        finally:
            self._running.discard(task)
            if not self._running:
                self._empty.set()

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Let the current task wait for what may never come; the end of the server cancels it."""
        if self.draining:
            raise stopping()
        task = _current_task()
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    async def drain(self, within_s: float, grace_s: float) -> None:
        """Refuse newcomers, wait for those that run; cancel what has not ended `within_s`, and wait `grace_s`."""
        self.draining = True
        for task in list(self._idle):
            task.cancel()
        if await happens(self._empty, within_s):
            return
        logger.warning("%d requests had not finished after %g s", self.running, within_s)
        for task in list(self._running):
            task.cancel()
        if not await happens(self._empty, grace_s):
            logger.warning("%d requests did not end", self.running)

    @asynccontextmanager
    async def recording(self, file: BinaryIO) -> AsyncIterator[Recording]:
        """Decode a recording; it counts as held to the end of the block. Raises AudioError and BusyError."""
        async with self._decoders:  # whoever waits for room will be the next, and nobody passes it meanwhile
            await self.audio.wait_room(self.options.room_s)
            recording = await self._reader.read(file)
            self.audio.add(recording.seconds)
        try:
            yield recording
        finally:
            self.audio.add(-recording.seconds)

    async def transcribe(
        self, recording: Recording, options: FileOptions, on_sentences: OnSentences | None = None
    ) -> Transcription:
        """Transcribe; the notes are also the recording's, and say what failed.

        Raises UnsupportedError, and EngineError also if not one segment could be recognised.
        """
        begun_s = time.monotonic()
        try:
            found = await self._transcriber.transcribe(recording, options, on_sentences=on_sentences)
            failed = _count_failed(recording, found)
        except asyncio.CancelledError:
            self.counts.cancelled += 1
            raise
        except EngineError:
            self.counts.failed += 1
            raise
        self.counts.transcribed += 1
        self.counts.audio_s += recording.seconds
        logger.info(
            "transcribed %.1f s of audio in %.1f s: %d sentences, %d of them failed",
            recording.seconds, time.monotonic() - begun_s, len(found.sentences), failed,
        )  # fmt: skip
        notes = [*recording.notes, *found.notes]
        if failed:
            notes.append(f"{failed} of {len(found.sentences)} sentences could not be recognised")
        return replace(found, notes=tuple(dict.fromkeys(notes)))


class HeldAudio:
    """Seconds of audio in memory, of all requests together."""

    def __init__(self, most_s: float) -> None:
        self.most_s, self.held_s = most_s, 0.0
        self._freed = asyncio.Event()
        self._filled_s = 0.0  # when there was room last

    async def wait_room(self, within_s: float) -> None:
        """Wait until another recording may be begun. Raises BusyError when there was no room for `within_s`.

        Who comes later waits for less: else each of many would wait for `within_s` behind the one before it.
        """
        begun_s = time.monotonic()
        while self.held_s >= self.most_s:
            self._freed.clear()
            left_s = min(begun_s, self._filled_s) + within_s - time.monotonic()
            try:
                async with asyncio.timeout(left_s):
                    await self._freed.wait()
            except TimeoutError:
                raise BusyError("other recordings take all the room that there is") from None

    def add(self, seconds: float) -> None:
        """Count what has come; what is freed is counted down by a negative number."""
        if self.held_s < self.most_s:
            self._filled_s = time.monotonic()
        self.held_s += seconds
        if seconds < 0:
            self._freed.set()


def _count_failed(recording: Recording, found: Transcription) -> int:
    """How many sentences stand for audio without a text. Raises EngineError if all of them do."""
    failed = sum("failed" in sentence.flags for sentence in found.sentences)
    if failed and failed == len(found.sentences):
        raise EngineError(f"every segment of a recording of {recording.seconds:.1f} s failed")
    return failed


async def while_connected(leaving: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a request whose body has been read; if its client leaves, cancel it and raise ClientDisconnect.

    leaving: ends when the client has left.
    """
    tasks = asyncio.create_task(work), asyncio.create_task(leaving)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_left(receive: Receive) -> None:
    """Wait until the client of a request, whose body has been read, has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _current_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task
    return task

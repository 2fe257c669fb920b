"""Everything that turns recordings into transcriptions in a program of its own: for the SDK and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from realtime_server import memory
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.offline.audio_reader import AudioReader
from realtime_server.offline.audio_source import AudioLimits
from realtime_server.offline.inputs import Item
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recording import Recording
from realtime_server.offline.transcriber import Transcriber
from realtime_server.offline.transcription import Transcription

T = TypeVar("T")
# Who runs a program of his own may read what he likes; a day is 2.8 GB of memory.
LIMITS = AudioLimits(
    file_bytes=1 << 50,
    duration_s=24 * 3600.0,
    decoded_samples=1 << 40,
    decode_s=3600.0,
    processes=2,
    waiting=1 << 30,
)
MOST_AT_ONCE = 16  # recordings: they are in memory while they are worked on


@dataclass(frozen=True, slots=True)
class Heard:
    """What a recording says.  seconds: its duration."""

    transcription: Transcription
    seconds: float

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the recording or could not be done, for people; most have none."""
        return self.transcription.notes


class FileRecognizer:
    """An engine, a scorer, and an embedder where speakers are told apart, which it warms up and closes."""

    def __init__(self, engine: Engine, scorer: Scorer, embedder: Embedder | None = None) -> None:
        self.engine, self.scorer, self.embedder = engine, scorer, embedder
        self.reader = AudioReader(LIMITS)
        self._transcriber = Transcriber(engine, scorer, embedder)

    @property
    def at_once(self) -> int:
        """How many recordings to work on at the same time, so that short ones keep the engine busy."""
        return min(max(1, self.engine.capabilities.concurrency), MOST_AT_ONCE)

    async def warmup(self) -> None:
        """Make the first recording as fast as later ones. Raises EngineError or ConfigurationError."""
        await self.engine.warmup()
        if self.embedder:
            await self.embedder.warmup()
        memory.give_back()

    async def use_embedder(self, embedder: Embedder) -> None:
        """Tell speakers apart from now on, with this embedder, which is not warm yet."""
        await embedder.warmup()
        memory.give_back()
        self.embedder = embedder
        self._transcriber = Transcriber(self.engine, self.scorer, embedder)

    async def transcribe(
        self, item: Item, options: FileOptions, *, on_progress: Callable[[float, float], None] | None = None
    ) -> Heard:
        """Read and transcribe a recording; cancelling ends the work at once.

        on_progress: called with the seconds whose text is known, and the recording's seconds.  Raises AudioError,
        UnsupportedError, EngineError, and ConfigurationError where the extra `files` is not installed.
        """
        audio: Recording | Samples
        notes: list[str] = []
        if isinstance(item.source, np.ndarray):
            audio = item.source
        else:
            audio = await self.reader.read(item.source)
            notes = audio.notes
        seconds = len(audio) / SAMPLE_RATE

        def tell(known_s: float) -> None:
            if on_progress:
                on_progress(known_s, seconds)

        tell(0.0)
        transcription = await self._transcriber.transcribe(audio, options, on_progress=tell)
        noted = tuple(dict.fromkeys([*notes, *transcription.notes]))
        return Heard(replace(transcription, notes=noted), seconds)

    @property
    def parts(self) -> dict[str, AudioReader | Engine | Scorer | Embedder]:
        """What is to be closed, by what it is called."""
        parts: dict[str, AudioReader | Engine | Scorer | Embedder] = {
            "decoders": self.reader, "recognizer": self.engine, "voice activity detection": self.scorer,
        }  # fmt: skip
        return {**parts, "speaker network": self.embedder} if self.embedder else parts

    async def aclose(self) -> None:
        """End everything that runs."""
        for part in self.parts.values():
            await part.aclose()


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Await `work` for each item, begun in their order, so many at once; what one raises ends the others."""
    waiting = iter(items)

    async def worker(item: T) -> None:
        await work(item)
        for another in waiting:
            await work(another)

    try:
        async with asyncio.TaskGroup() as group:
            for item in islice(waiting, at_once):
                group.create_task(worker(item))
    except BaseExceptionGroup as group_of_errors:
        raise group_of_errors.exceptions[0] from None

"""From a recording to its transcription: segments, all of them at once through the engine, speakers, sentences.

    recording -> voice activity -> segments -> decodes, as many at once as the engine takes -> sentences, in order
                                           \\-> embeddings of voices -> one clustering at the end -> speakers

One Transcriber serves all recordings of a program. Files come after live sessions: their jobs have the lowest
priority, and while anybody speaks live one of the engine's places is left free.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import numpy as np

from realtime_server import memory
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE, Segment, Sentence
from realtime_server.core.transcript import Settled
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.errors import EngineError
from realtime_server.offline.calls import Deadlines, Observer, never, nobody
from realtime_server.offline.decoding import Decoder, Wish
from realtime_server.offline.options import FileOptions
from realtime_server.offline.places import Places
from realtime_server.offline.segmentation import ArrayAudio, Audio, Listener, find_clips, find_segments
from realtime_server.offline.speakers import Speakers
from realtime_server.offline.transcription import Transcription
from realtime_server.offline.writing import Listeners, SentenceWriter

BESIDE = 4  # jobs of the scorer at once, and of the embedder; one of each while anybody speaks live
TIDY_AFTER = 300 * SAMPLE_RATE  # of a recording: threads would keep 200 MB of what they have freed
AHEAD = 4  # segments found and not decoded, for each place in the engine


class Transcriber:
    """Transcribes recordings with one engine, one scorer and, where speakers are told apart, one embedder.

    live: whether live sessions are served now.  observe: told of every job that was answered, but for decodes.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer, embedder: Embedder | None = None, *,
        live: Callable[[], bool] = never, deadlines: Deadlines | None = None, observe: Observer = nobody,
    ) -> None:  # fmt: skip
        self._engine, self._embedder, self._observe = engine, embedder, observe
        self._deadlines = deadlines or Deadlines()
        self._decoder = Decoder(engine, self._deadlines, live)
        scoring, self._embedding = (Places(lambda: 1 if live() else BESIDE) for _ in range(2))
        self._listener = Listener(scorer, places=scoring, deadlines=self._deadlines, observe=observe)

    async def transcribe(
        self, audio: Audio | Samples, options: FileOptions | None = None, *,
        on_sentences: Callable[[tuple[Sentence, ...]], None] | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> Transcription:  # fmt: skip
        """Return what a recording says. Cancelling aborts all of its jobs.

        audio: a Recording, or what is read like one, or float32 (n,), 16 kHz.  on_sentences: called with sentences in
        order, as soon as they are final; with speakers once, at the end.  on_progress: called with the seconds from
        the beginning whose text is known.

        Raises UnsupportedError for what engine or embedder cannot do, before any work, and EngineError if the engine is
        dead or the scorer fails. A segment that fails twice is a sentence with the flag "failed".
        """
        options = options or FileOptions()
        wish = self._wish(audio, options)
        speakers = self._speakers(wish) if options.speakers else None
        writer = SentenceWriter(options.replacements, speakers, Listeners(on_sentences, on_progress))
        try:
            await self._work(wish, options, speakers, writer)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._listener.forget(wish.recording)
        return await writer.conclude(wish)

    def _wish(self, audio: Audio | Samples, options: FileOptions) -> Wish:
        can = self._engine.capabilities
        decoding = options.decoding_for(can, embedder=self._embedder is not None)
        if not self._engine.healthy:
            raise EngineError("the recognizer has died or was closed")
        source = ArrayAudio(audio) if isinstance(audio, np.ndarray) else audio
        return Wish(f"file-{uuid.uuid4().hex[:12]}", source, decoding, options.notes_for(can))

    def _speakers(self, wish: Wish) -> Speakers:
        assert self._embedder
        return Speakers(
            self._embedder, wish.audio, wish.recording,
            places=self._embedding, deadlines=self._deadlines, observe=self._observe,
        )  # fmt: skip

    async def _work(
        self, wish: Wish, options: FileOptions, speakers: Speakers | None, writer: SentenceWriter
    ) -> None:
        """Find segments, decode them, embed their voices; write what is settled, in order."""
        found: asyncio.Queue[tuple[Segment, asyncio.Task[Settled]] | None] = asyncio.Queue()
        tidy_at = TIDY_AFTER
        room = asyncio.Semaphore(AHEAD * self._engine.capabilities.concurrency)
        async with asyncio.TaskGroup() as group:
            group.create_task(_write(found, writer))
            async for segment in self._find(wish, options, speakers):
                await room.acquire()
                if segment.end > tidy_at:
                    tidy_at = segment.end + TIDY_AFTER
                    await asyncio.to_thread(memory.give_back)
                task = group.create_task(self._decoder.settle(segment, wish))
                task.add_done_callback(lambda _: room.release())
                found.put_nowait((segment, task))
                if speakers:
                    for index, windows in speakers.take_windows():
                        group.create_task(speakers.embed(index, windows))
            found.put_nowait(None)

    def _find(self, wish: Wish, options: FileOptions, speakers: Speakers | None) -> AsyncIterator[Segment]:
        find = find_segments if options.segmentation == "vad" else find_clips
        scores = self._listener.scores(wish.audio, wish.recording)
        endpointing = options.endpointing_for(self._engine.capabilities)
        return find(wish.audio, scores, endpointing, speakers.voices if speakers else None)


async def _write(
    found: asyncio.Queue[tuple[Segment, asyncio.Task[Settled]] | None], writer: SentenceWriter
) -> None:
    """Write segments in the order in which they were found, each as soon as it is settled."""
    while item := await found.get():
        segment, task = item
        writer.receive_settled(segment, await task)


async def process_audio(
    audio: Audio | Samples, *, engine: Engine, scorer: Scorer, embedder: Embedder | None = None,
    options: FileOptions | None = None,
) -> Transcription:  # fmt: skip
    """Transcribe one recording, in a program of your own:

        import asyncio
        import sys

        from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer
        from realtime_server.offline.audio_reader import AudioReader
        from realtime_server.offline.transcriber import process_audio

        async def transcribe(path, engine, scorer):
            reader = AudioReader()
            try:
                await engine.warmup()
                recording = await reader.read(path)
                return await process_audio(recording, engine=engine, scorer=scorer)
            finally:
                await reader.aclose()
                await scorer.aclose()
                await engine.aclose()

        choice = EngineOptions(engine="embedded")
        models = load_engine(choice), load_scorer(choice, "fsmn")
        print(asyncio.run(transcribe(sys.argv[1], *models)).text)

    See Transcriber.transcribe for what it takes and raises. Where several recordings share an engine, use one
    Transcriber for all: it is fair to the short ones.
    """
    return await Transcriber(engine, scorer, embedder).transcribe(audio, options)

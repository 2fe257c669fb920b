"""Text while audio comes in: FunASRNanoStreamingVLLM, by the name of FunASR's guide.

The guide decodes all audio so far again with every chunk, which costs more and more, and calls fixed what may change.
Here the live session runs underneath: a chunk costs a window of at most one segment, and what is fixed stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import suppress
from os import PathLike
from typing import Any, Self, Unpack

from realtime_server.core import messages as m
from realtime_server.core.fixed_text import FixedText
from realtime_server.core.jobs import Samples
from realtime_server.core.partials import join_texts
from realtime_server.core.segments import FRAME, Sentence, to_ms, to_samples
from realtime_server.errors import ConfigurationError, EngineError
from realtime_server.offline.formats import json_record
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recording import Recording
from realtime_server.offline.transcription import Transcription
from realtime_server.sdk.arguments import (
    ModelArguments,
    StreamArguments,
    check_names,
    read_session,
    wants_schedule,
)
from realtime_server.sdk.audio import achunks, chunks, is_array
from realtime_server.sdk.host import Model
from realtime_server.sdk.stepping import SteppedSession

logger = logging.getLogger(__name__)

Result = dict[str, Any]
CHUNK_MS, ROLLBACK_CHARS = 720, 8
FRAME_MS = to_ms(FRAME)
_END = object()


class FunASRNanoStreamingVLLM(Model):
    """A recognizer for audio that is still coming in.

        model = FunASRNanoStreamingVLLM.from_pretrained("FunAudioLLM/Fun-ASR-Nano-2512", chunk_ms=720)
        for result in model.streaming_generate("talk.wav", language="中文"):
            print(result["fixed_text"], "|", result["text"][len(result["fixed_text"]) :])

    Any number of streams may run at the same time, in threads or tasks.
    """

    def __init__(
        self, model: str | PathLike[str] | None = None, *,
        chunk_ms: float = CHUNK_MS, rollback_chars: int = ROLLBACK_CHARS, **arguments: Unpack[ModelArguments],
    ) -> None:  # fmt: skip
        """Load a recognizer, see Model.

        chunk_ms: audio between two results.  rollback_chars: so many characters at the end of an unfinished text, and
        the word that they belong to, are not fixed.
        """
        _check(chunk_ms, rollback_chars)
        super().__init__(model, **arguments)
        self._chunk_ms, self._rollback_chars = chunk_ms, rollback_chars

    @classmethod
    def from_pretrained(
        cls, model: str | PathLike[str] | None = None, *,
        chunk_ms: float = CHUNK_MS, rollback_chars: int = ROLLBACK_CHARS, **arguments: Unpack[ModelArguments],
    ) -> Self:  # fmt: skip
        """The constructor by another name."""
        return cls(model, chunk_ms=chunk_ms, rollback_chars=rollback_chars, **arguments)

    @classmethod
    async def afrom_pretrained(
        cls, model: str | PathLike[str] | None = None, *,
        chunk_ms: float = CHUNK_MS, rollback_chars: int = ROLLBACK_CHARS, **arguments: Unpack[ModelArguments],
    ) -> Self:  # fmt: skip
        """The same, awaited: the event loop goes on while the model is loaded."""
        return await asyncio.to_thread(
            lambda: cls(model, chunk_ms=chunk_ms, rollback_chars=rollback_chars, **arguments)
        )

    def streaming_generate(self, audio: Any, **arguments: Unpack[StreamArguments]) -> Iterator[Result]:
        """Yield a result for each chunk, and one when the audio is over; see StreamArguments for the arguments.

        audio: a path, bytes or an open file of a recording, an array of samples, or an iterator of pieces of any size,
        arrays or PCM16 bytes, 16 kHz; the next one is asked for when the result before it has been taken.

        A result has `text` (all that is known), `fixed_text` (its beginning, which only grows and is all of it at the
        end), `is_final`, `audio_duration_ms` and `chunk_idx`; the last one also `sentences`, as the finals have them.
        Raises AudioError, UnsupportedError, EngineError, ConfigurationError.
        """
        stream = self._open(audio, arguments)
        return self._results(stream, self._pieces(audio, stream.chunk))

    def astreaming_generate(self, audio: Any, **arguments: Unpack[StreamArguments]) -> AsyncIterator[Result]:
        """The same for a running event loop; `audio` may be an async iterator. Others are read in a thread."""
        stream = self._open(audio, arguments)
        return self._aresults(stream, self._apieces(audio, stream.chunk))

    def generate(self, audio: Any, **arguments: Unpack[StreamArguments]) -> list[Result]:
        """All results of `streaming_generate`."""
        return list(self.streaming_generate(audio, **arguments))

    async def agenerate(self, audio: Any, **arguments: Unpack[StreamArguments]) -> list[Result]:
        """All results of `astreaming_generate`."""
        return [result async for result in self.astreaming_generate(audio, **arguments)]

    # --- inside -------------------------------------------------------------------------------------------

    def _open(self, audio: Any, arguments: StreamArguments) -> _Stream:
        check_names("streaming_generate", arguments, StreamArguments)
        chunk_ms = arguments.get("chunk_ms", self._chunk_ms)
        rollback_chars = arguments.get("rollback_chars", self._rollback_chars)
        _check(chunk_ms, rollback_chars)
        can = self.engine.capabilities
        longest_s = min(self._host.max_segment_s, can.longest_s)
        settings = read_session(arguments, chunk_ms, longest_s)
        wish = FileOptions(decoding=settings.options, schedule_wanted=wants_schedule(arguments))
        wish.decoding_for(can, embedder=False)  # or it is refused now
        recognizer = self._host.recognizer
        session = SteppedSession(
            recognizer.engine, recognizer.scorer, settings, live=not (_is_file(audio) or is_array(audio))
        )
        return _Stream(session, to_samples(chunk_ms), rollback_chars)

    def _results(self, stream: _Stream, pieces: Iterator[Any]) -> Iterator[Result]:
        try:
            for chunk, last in chunks(pieces, stream.chunk):
                yield self._host.background.run(stream.take(chunk, last=last))
        finally:
            self._forget(stream)

    async def _aresults(self, stream: _Stream, pieces: AsyncIterator[Any]) -> AsyncIterator[Result]:
        try:
            async for chunk, last in achunks(pieces, stream.chunk):
                yield await self._host.background.arun(stream.take(chunk, last=last))
        finally:
            self._forget(stream)

    def _forget(self, stream: _Stream) -> None:
        with suppress(RuntimeError):  # everything is closed
            self._host.background.post(stream.forget())

    def _pieces(self, audio: Any, size: int) -> Iterator[Any]:
        run = self._host.background.run
        if _is_file(audio):
            yield from _cut(run(self._host.recognizer.reader.read(audio)), size)
        elif is_array(audio):
            yield audio
        elif isinstance(audio, AsyncIterable):
            iterator = aiter(audio)
            while (piece := run(_next(iterator))) is not _END:
                yield piece
        else:
            yield from audio

    async def _apieces(self, audio: Any, size: int) -> AsyncIterator[Any]:
        if _is_file(audio):
            read = self._host.recognizer.reader.read(audio)
            for piece in _cut(await self._host.background.arun(read), size):
                yield piece
        elif is_array(audio):
            yield audio
        elif isinstance(audio, AsyncIterable):
            async for piece in audio:
                yield piece
        else:
            pieces = iter(audio)
            while (piece := await asyncio.to_thread(_take, pieces)) is not _END:
                yield piece


class _Stream:
    """One stream's results.  chunk: samples between two of them."""

    def __init__(self, session: SteppedSession, chunk: int, rollback_chars: int) -> None:
        self.chunk = chunk
        self._session, self._text = session, FixedText(rollback_chars)
        self._count = self._samples = 0
        self._sentences: list[Sentence] = []
        self._problem = "the stream has ended"

    async def take(self, samples: Samples, *, last: bool) -> Result:
        """The result for the next chunk."""
        events = await self._session.feed(samples)
        if last:
            events += await self._session.stop()
        for event in events:
            self._receive(event)
        self._count += 1
        self._samples += samples.size
        duration_ms = to_ms(self._samples)
        result: Result = {
            "text": self._text.text, "fixed_text": self._text.fixed, "is_final": last,
            "audio_duration_ms": duration_ms, "chunk_idx": self._count,
        }  # fmt: skip
        if last:
            whole = Transcription(tuple(self._sentences), duration_ms)
            result["sentences"] = json_record(whole, key="")["sentences"]
        return result

    async def forget(self) -> None:
        """Free what is kept for the stream."""
        self._session.forget()

    def _receive(self, event: m.Event) -> None:
        match event:
            case m.SegmentOpened():
                self._text.receive_open(event.segment)
            case m.PartialChanged():
                self._text.receive_partial(event.segment, event.text, event.end)
            case m.SegmentLocked():
                self._sentences += event.sentences
                self._text.receive_locked(event.segment, join_texts(s.text for s in event.sentences))
            case m.Failed():
                self._problem = event.message
                logger.warning("%s", event.message)
            case m.Closing():
                raise EngineError(self._problem)


def _check(chunk_ms: float, rollback_chars: int) -> None:
    if not chunk_ms >= FRAME_MS:
        raise ConfigurationError(f"chunk_ms must be {FRAME_MS} at least, not {chunk_ms}")
    if rollback_chars < 0:
        raise ConfigurationError(f"rollback_chars must not be negative, not {rollback_chars}")


def _is_file(audio: Any) -> bool:
    """Whether it is a recording, in a file or in memory, and not a stream of pieces."""
    return isinstance(audio, str | PathLike | bytes) or hasattr(audio, "read")


def _cut(recording: Recording, size: int) -> Iterator[Samples]:
    for start in range(0, len(recording), size):
        yield recording.read(start, min(start + size, len(recording)))


def _take(iterator: Iterator[Any]) -> Any:
    return next(iterator, _END)


async def _next(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator, _END)

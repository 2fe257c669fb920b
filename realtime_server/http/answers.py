"""How an endpoint answers: at once as a whole, or sentence by sentence as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from realtime_server.core.partials import join_texts
from realtime_server.core.segments import Sentence
from realtime_server.errors import RealtimeServerError
from realtime_server.http.errors import explain, stopping
from realtime_server.http.service import OnSentences
from realtime_server.offline.formats import Json, openai_diarized_json
from realtime_server.offline.transcription import Transcription, one_line

ALIVE_S = 15.0  # between comments that keep proxies from taking a silent stream for dead
TEXT, VTT, JSON = "text/plain; charset=utf-8", "text/vtt; charset=utf-8", "application/json"
STREAM_HEADERS = {
    "content-type": "text/event-stream", "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx must not collect events
}  # fmt: skip

V = TypeVar("V", str, Json, str | Json)
Transcribe = Callable[[OnSentences], Awaitable[Transcription]]
Work = Callable[[Request, Send], Awaitable[Response | None]]


class Worked(Response):
    """A response that does the request's work when it is sent, so that one block holds places, files and audio.

    work: gets the request; returns the response, or None if it has sent one by itself.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Work and send; errors are raised for the application's handlers as long as they can answer."""
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            response = await self._work(Request(scope, receive), noting)
        except ClientDisconnect:
            return
        except RealtimeServerError:
            if not started:
                raise
            return  # an event has told it
        if response:
            await response(scope, receive, send)


async def render(transcription: Transcription, write: Callable[[], str | Json], media_type: str) -> Response:
    """Write an answer, on a thread: hours of text take a while.

    What is wrong is said in the header X-Notes, and in an object also as `notes`.
    """
    body = await asyncio.to_thread(lambda: _encode(_with_notes(write(), transcription)))
    if media_type == JSON:
        body += b"\n"  # terminals like it
    return Response(body, HTTPStatus.OK, notes_header(transcription), media_type)


def notes_header(transcription: Transcription) -> dict[str, str]:
    """Say what is wrong in the header X-Notes; nothing if nothing is."""
    notes = one_line("; ".join(transcription.notes)).encode("ascii", "replace").decode()
    return {"X-Notes": notes} if notes else {}


async def stream(transcribe: Transcribe, send: Send, *, diarized: bool) -> None:
    """Send OpenAI's events: a delta for each sentence, then `done` with the whole text.

    diarized: a `segment` with the speaker follows each delta; they all come at the end.
    """
    events = _Events(send)
    await events.start()
    try:
        found = await _send_deltas(transcribe, events, quiet=diarized)
        if diarized:
            await _send_segments(found, events)
        text = await asyncio.to_thread(lambda: found.text)
        await events.send(_with_notes({"type": "transcript.text.done", "text": text}, found))
    except asyncio.CancelledError:
        await events.send(stopping().body)  # or the client has left, and reads nothing
        await events.end()
        raise
    except Exception as error:  # the status has been sent: only an event can tell
        await events.send(explain(error).body)
    await events.end()


async def _send_deltas(transcribe: Transcribe, events: _Events, *, quiet: bool) -> Transcription:
    queue: asyncio.Queue[tuple[Sentence, ...] | None] = asyncio.Queue()
    working = asyncio.ensure_future(transcribe(queue.put_nowait))
    working.add_done_callback(lambda _: queue.put_nowait(None))
    last = ""
    try:
        while (sentences := await _next(queue, events)) is not None:
            for text in filter(None, (one_line(sentence.text) for sentence in sentences)):
                delta, last = join_texts((last, text))[len(last) :], text
                if not quiet:
                    await events.send({"type": "transcript.text.delta", "delta": delta})
        return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _send_segments(transcription: Transcription, events: _Events) -> None:
    segments: Any = (await asyncio.to_thread(openai_diarized_json, transcription))["segments"]
    last = ""
    for segment in segments:
        if text := one_line(segment["text"]):
            delta, last = join_texts((last, text))[len(last) :], text
            event = {"type": "transcript.text.delta", "delta": delta, "segment_id": segment["id"]}
            await events.send(event)
        await events.send(segment)


async def _next(
    queue: asyncio.Queue[tuple[Sentence, ...] | None], events: _Events
) -> tuple[Sentence, ...] | None:
    """Return the next sentences, None after the last; keep the stream alive meanwhile."""
    while True:
        try:
            async with asyncio.timeout(ALIVE_S):
                return await queue.get()
        except TimeoutError:
            await events.keep_alive()


class _Events:
    """Server-sent events on their way to one client."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def start(self) -> None:
        headers = [(name.encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(self, event: Json) -> None:
        await self._write(b"data: " + _encode(event))

    async def keep_alive(self) -> None:
        await self._write(b":")

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, line: bytes) -> None:
        await self._send({"type": "http.response.body", "body": line + b"\n\n", "more_body": True})


def _with_notes(value: V, transcription: Transcription) -> V:
    if isinstance(value, dict) and transcription.notes:
        value["notes"] = transcription.notes
    return value


def _encode(value: str | Json) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace")

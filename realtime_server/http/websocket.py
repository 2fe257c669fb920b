"""/ws: whole recordings over a WebSocket, in the commands of the live service.

    START, LANGUAGE:, HOTWORDS:, POSTPROCESS_HOTWORDS:, SPK:true, PCM16 at 16 kHz in any pieces, STOP

STOP is answered with one result and `stopped`; then another session may begin. What comes meanwhile waits, READ_AHEAD
of it here, the rest in the network. A client that leaves takes its work with it; one that has sent more than READ_AHEAD
behind its STOP does not, because its leaving comes behind what nobody reads yet: that work goes on to its end.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import AbstractContextManager, nullcontext, suppress
from http import HTTPStatus

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from realtime_server.core import messages as m
from realtime_server.core.segments import SAMPLE_RATE, Sentence
from realtime_server.core.session_options import SessionOptions
from realtime_server.core.setup import StartRequest
from realtime_server.core.wire_v1 import WireV1
from realtime_server.errors import BusyError
from realtime_server.http.errors import RequestError, explain, stopping
from realtime_server.http.forms import FALSE, TRUE
from realtime_server.http.service import FileService, while_connected
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recording import Recording

READ_AHEAD = 1 << 20  # bytes of frames that wait for the session
FRAME_BYTES = 256  # what a frame counts beside its content
PIECE = 1 << 20  # bytes of one message that are taken before others get their turn
SAMPLE_BYTES = 2
SPEAKERS = re.compile(r"\s*SPK\s*:\s*(\w*)\s*", re.IGNORECASE)
CLOSE_CODES = {"stopping": 1012, "busy": 1013, "too_long": 1008, "timeout": 1008}  # else 1011


async def serve_websocket(websocket: WebSocket, service: FileService) -> None:
    """Serve one connection; one that cannot be admitted is refused by HTTP, any other end has words and a code."""
    try:
        with service.admitted():
            await websocket.accept()
            connection = _Connection(websocket, service)
            try:
                await connection.run()
            finally:
                await connection.aclose()
    except (ClientDisconnect, WebSocketDisconnect):
        return
    except Exception as error:
        told = explain(error)
        if websocket.application_state is WebSocketState.CONNECTING:
            response = told.response
            del response.headers["content-length"]  # uvicorn adds it, and some versions do not look
            await websocket.send_denial_response(response)
            return
        with suppress(WebSocketDisconnect, RuntimeError):  # it may have left meanwhile
            await websocket.send_json({"event": "error", "error": str(told)})
            await websocket.close(CLOSE_CODES.get(told.code or "", 1011), str(told))


class _Connection:
    """Sessions one after the other; reads READ_AHEAD while one works, also to notice that the client leaves."""

    def __init__(self, websocket: WebSocket, service: FileService) -> None:
        self._websocket, self._service = websocket, service
        self._wire, self._options = WireV1(), SessionOptions(service.settings, service.capabilities)
        self._speakers = service.settings.speakers
        self._recording: Recording | None = None  # of the session, None outside of one
        self._odd = b""  # half a sample
        self._held_s = 0.0  # audio that counts as held
        self._frames: deque[str | bytes] = deque()
        self._waiting_bytes = 0  # of the frames
        self._changed, self._left = asyncio.Event(), asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._patient_until_s = 0.0
        self._reading = asyncio.create_task(self._read())

    async def run(self) -> None:
        """Serve until the client closes."""
        while (frame := await self._next_frame()) is not None:
            if isinstance(frame, bytes):
                await self._hear(frame)
            elif found := SPEAKERS.fullmatch(frame):
                await self._set_speakers(found[1].lower())
            else:
                for command in self._wire.decode(frame):
                    await self._obey(command)

    async def aclose(self) -> None:
        """Read no more, let the audio go."""
        self._discard()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    # --- frames -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while True:
                while self._waiting_bytes >= READ_AHEAD:
                    self._changed.clear()
                    await self._changed.wait()
                message = await self._websocket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                frame = message.get("bytes")
                self._frames.append(message["text"] if frame is None else frame)
                self._waiting_bytes += len(self._frames[-1]) + FRAME_BYTES
                self._changed.set()
        finally:
            self._left.set()
            self._changed.set()

    async def _next_frame(self) -> str | bytes | None:
        """Return what comes next, None if the client has left.

        Raises RequestError if nothing comes for long; of a session, which holds memory, only audio counts.
        """
        idle: AbstractContextManager[None] = nullcontext()
        if self._recording is None:
            idle = self._service.idle()
            self._be_patient()
        try:
            with idle:
                async with asyncio.timeout_at(self._patient_until_s):
                    while not self._frames and not self._left.is_set():
                        self._changed.clear()
                        await self._changed.wait()
        except TimeoutError:
            raise self._impatience() from None
        if not self._frames:
            return None
        frame = self._frames.popleft()
        if isinstance(frame, str) and self._clock() > self._patient_until_s:
            raise self._impatience()  # others were there at once, so nobody had to wait
        self._waiting_bytes -= len(frame) + FRAME_BYTES
        self._changed.set()
        return frame

    def _be_patient(self) -> None:
        self._patient_until_s = self._clock() + self._service.options.idle_s

    def _impatience(self) -> RequestError:
        what = "nothing" if self._recording is None else "no audio"
        words = f"{what} came for {self._service.options.idle_s:g} s"
        return RequestError(words, HTTPStatus.REQUEST_TIMEOUT, code="timeout")

    async def _tell(self, *events: m.Event) -> None:
        for message in await asyncio.to_thread(self._wire.encode, events):
            await self._websocket.send_text(message)

    # --- sessions -----------------------------------------------------------------------------------------

    async def _obey(self, command: m.Command | bytes) -> None:
        match command:
            case m.Start():
                await self._begin()
            case m.Stop():
                await self._stop()
            case StartRequest():
                await self._refuse("here START takes no settings; protocol 2 is spoken on the live port")
            case m.Commit():
                await self._refuse("COMMIT is for live sessions; here STOP asks for the text")
            case m.Invalid(message=message):
                await self._refuse(message)
            case m.SetHotwords() | m.SetLanguage() | m.SetReplacements():
                await self._tell(*self._options.receive_command(command, 0))

    async def _refuse(self, why: str) -> None:
        await self._tell(m.Failed(upto=0, code="bad_request", message=why))

    async def _set_speakers(self, value: str) -> None:
        if value not in TRUE + FALSE:
            await self._refuse("SPK: write SPK:true or SPK:false")
        elif value in TRUE and not self._service.settings.speakers:
            await self._refuse("speakers cannot be told apart: this server was started without --speakers")
        else:
            self._speakers = value in TRUE
            await self._websocket.send_json({"event": "spk_set", "spk": self._speakers})

    async def _begin(self) -> None:
        if self._service.draining:
            raise stopping()
        self._discard()
        self._recording = Recording()
        self._be_patient()
        await self._tell(m.Started(upto=0))

    async def _hear(self, frame: bytes) -> None:
        """Keep audio. Raises RequestError if it is too long, BusyError if all requests together hold too much."""
        for start in range(0, len(frame), PIECE):
            if self._recording is None:
                return
            data = self._odd + frame[start : start + PIECE]
            whole = len(data) // SAMPLE_BYTES * SAMPLE_BYTES
            self._odd = data[whole:]
            self._make_room(self._recording, whole // SAMPLE_BYTES / SAMPLE_RATE)
            self._recording.append(np.frombuffer(data[:whole], "<i2"))
            if whole:
                self._be_patient()
            if whole == PIECE:
                await asyncio.sleep(0)

    def _make_room(self, recording: Recording, more_s: float) -> None:
        limit_s, audio = self._service.options.limits.duration_s, self._service.audio
        if recording.seconds + more_s > limit_s:
            words = f"the recording is longer than {limit_s:g} s, the limit"
            raise RequestError(words, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, code="too_long")
        if audio.held_s + more_s > audio.most_s:
            raise BusyError("other recordings take all the room that there is")
        audio.add(more_s)
        self._held_s += more_s

    async def _stop(self) -> None:
        """Answer with the text of everything heard since START; without a session there is none."""
        if self._recording is None:
            await self._tell(m.Stopped(upto=0))
            return
        sentences = await self._transcribe(self._recording) if len(self._recording) else ()
        upto = len(self._recording)
        self._discard()
        events: list[m.Event] = [
            m.SegmentLocked(upto=upto, channel=0, segment=0, sentences=sentences),
            m.Finished(upto=upto),
        ]
        if failed := sum("failed" in sentence.flags for sentence in sentences):
            words = f"{failed} of {len(sentences)} sentences could not be recognised"
            events.append(m.Failed(upto=upto, code="engine", message=words))
        await self._tell(*events, m.Stopped(upto=upto))

    async def _transcribe(self, recording: Recording) -> tuple[Sentence, ...]:
        options = FileOptions(
            decoding=self._options.decoding,
            speakers=self._speakers,
            replacements=self._options.replacements,
        )
        work = self._service.transcribe(recording, options)
        return (await while_connected(self._left.wait(), work)).sentences

    def _discard(self) -> None:
        """End the session; nothing of it stays."""
        self._service.audio.add(-self._held_s)
        self._recording, self._odd, self._held_s = None, b"", 0.0

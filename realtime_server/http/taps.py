"""/twilio: telephone calls as Twilio's Media Streams send them, each track a channel of a live session.

The stream's `start` says who calls and how to listen: its customParameters may hold `session`, `token` and PARAMETERS.
Nothing is sent back. The transcript goes to the session's viewers and, if so configured, into a file and to a webhook.
Whatever ends the connection, what was heard is recognised and told.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from realtime_server.core.call_audio import CallAudio
from realtime_server.core.call_messages import CallStarted, CallStopped, Media, Message, read_call_message
from realtime_server.core.call_start import name_of, start_command
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError, BusyError, FieldError
from realtime_server.http.admission import visitor_of
from realtime_server.http.call_files import CallFile
from realtime_server.http.errors import RequestError, explain, stopping
from realtime_server.http.options import CallOptions
from realtime_server.http.webhooks import Delivery
from realtime_server.realtime.patience import happens
from realtime_server.realtime.reception import Reception
from realtime_server.realtime.session import RealtimeASRSession

logger = logging.getLogger(__name__)

PASSING = frozenset({"partial", "progress"})  # messages that no file keeps
AT_ONCE = 64  # messages of one call before others get their turn
MESSAGE_CHARACTERS = 1 << 16  # 6 s of audio; Twilio sends 20 ms
STOPPED, GONE = (1000, "the call is over"), (1000, "the call has gone")
BROKEN = (1011, "internal error")


class Sessions(Protocol):
    """The live service, as far as it concerns calls."""

    def why_refused(self) -> str | None:
        """Why no session is let in now; None if one is."""

    def holding(self, name: str) -> AbstractContextManager[RealtimeASRSession]:
        """Hold a session of that name. Raises BusyError."""


class Outlet(Protocol):
    """Takes a call's messages at once and passes them on at its own pace."""

    def put(self, message: Mapping[str, Any]) -> None:
        """Take a message."""

    def finish(self) -> None:
        """No more will come."""

    async def run(self) -> None:
        """Pass on, until all is done behind `finish`."""


class Wait:
    """A connection that waits for its call to begin."""

    def __init__(self, taps: Taps) -> None:
        self._taps, self._lasts = taps, True
        taps.waits += 1

    def end(self) -> None:
        """It begins, or has gone; more than once does nothing."""
        self._taps.waits -= self._lasts
        self._lasts = False


class Taps:
    """The calls of a server, and the outlets that have not ended yet. waits: connections whose calls did not begin."""

    def __init__(self, sessions: Sessions, options: CallOptions | None = None) -> None:
        self.sessions, self.options = sessions, options or CallOptions()
        self.waits = 0
        self._running = 0
        self._outlets: set[asyncio.Task[None]] = set()
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def waiting(self) -> Iterator[Wait]:
        """Count a connection, which waits until its call begins. Raises RequestError, BusyError."""
        if self._draining:
            raise stopping()
        if self.waits >= self.options.most_waiting:
            raise BusyError(f"{self.waits} calls have connected and not begun")
        wait = Wait(self)
        self._running += 1
        self._empty.clear()
        try:
            yield wait
        finally:
            wait.end()
            self._running -= 1
            self._note_end()

    def open_outlets(self, about: Mapping[str, Any], session: str) -> list[Outlet]:
        """Make and run what a call's messages go to."""
        folder, webhook = self.options.folder, self.options.webhook
        outlets: list[Outlet] = []
        if folder:
            outlets.append(CallFile(folder, about["name"], session))
            outlets[0].put({"type": "call", "session": session, **about})
        if webhook:
            outlets.append(Delivery(webhook, about))
        for outlet in outlets:
            task = asyncio.create_task(outlet.run())
            self._empty.clear()
            self._outlets.add(task)
            task.add_done_callback(self._note_outlet)
        return outlets

    async def drain(self, within_s: float) -> None:
        """Refuse newcomers; wait for calls, which the live service ends, and outlets; cancel outlets after that."""
        self._draining = True
        if not await happens(self._empty, within_s):
            for task in list(self._outlets):
                task.cancel()
            await asyncio.gather(*self._outlets, return_exceptions=True)

    def _note_outlet(self, task: asyncio.Task[None]) -> None:
        self._outlets.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # Its message may hold what was said.
            logger.error("a call's transcript is not passed on any more: %s", type(error).__name__)
        self._note_end()

    def _note_end(self) -> None:
        if not self._running and not self._outlets:
            self._empty.set()


async def serve_call(websocket: WebSocket, taps: Taps, reception: Reception) -> None:
    """Serve one connection; one that cannot be admitted is refused by HTTP."""
    visitor = visitor_of(websocket)
    try:
        with reception.noting(visitor):
            reception.door.knock(visitor)
        if why := taps.sessions.why_refused():
            raise RequestError(why, 503, code="busy")
        with taps.waiting() as wait:
            await websocket.accept()
            connection = _Connection(websocket, taps, reception, visitor)
            code, reason = await connection.run(wait)
            with suppress(WebSocketDisconnect, RuntimeError):  # it may have left
                await websocket.close(code, reason)
    except (AdmissionError, BusyError, RequestError) as error:
        response = explain(error).response
        del response.headers["content-length"]  # uvicorn adds it, and some versions do not look
        await websocket.send_denial_response(response)


@dataclass
class _Refused:
    """Messages of one call that could not be used: how many, and why the first."""

    count: int = 0
    first: str = ""

    def add(self, error: FieldError) -> None:
        self.first = self.first or str(error)
        self.count += 1


@dataclass
class _Connection:
    """One stream; `run` returns how the connection is to be closed."""

    websocket: WebSocket
    taps: Taps
    reception: Reception
    visitor: Visitor
    refused: _Refused = field(default_factory=_Refused)

    async def run(self, wait: Wait) -> tuple[int, str]:
        """Wait for the start, carry the call. wait: it ends once the call is let in."""
        try:
            async with asyncio.timeout(self.taps.options.start_s):
                while not isinstance(message := await self._receive(begun=False), CallStarted):
                    if message is None or isinstance(message, CallStopped):
                        return STOPPED
        except TimeoutError:
            logger.info("a call connected and did not begin: %s", self.refused.first or "no start came")
            return 1008, self.refused.first or "no start came"
        except FieldError as error:
            return 1008, str(error)
        try:
            with ExitStack() as stack:
                name = name_of(message)
                with self.reception.noting(self.visitor):
                    token = message.parameters.get("token") or self.visitor.token
                    entrant = self.reception.door.recognise(token, "transcribe", name)
                    stack.enter_context(self.reception.door.take_place(entrant))
                wait.end()
                session = stack.enter_context(self.taps.sessions.holding(name))
                return await self._carry(session, message, name)
        except FieldError as error:
            logger.warning("a call is refused: %s", error)
            return 1008, str(error)
        except AdmissionError as error:
            return 1008, str(error)
        except BusyError as error:
            return 1013, str(error)

    async def _carry(self, session: RealtimeASRSession, call: CallStarted, name: str) -> tuple[int, str]:
        """Feed the session, hand on what it says. Raises FieldError if it does not begin."""
        command = start_command(call)
        about = {
            "name": name, "call": call.call, "stream": call.stream, "tracks": list(call.tracks),
            "parameters": {key: value for key, value in call.parameters.items() if key != "token"},
        }  # fmt: skip
        logger.info("session %s: call %s begins", session.id, name)
        audio, outlets = CallAudio(len(call.tracks)), list[Outlet]()
        try:
            async with session, asyncio.TaskGroup() as tasks:
                session.feed(command)
                listening = tasks.create_task(self._listen(session, call, audio))
                refusal = await self._hand_on(session, about, outlets)
                listening.cancel()
        except Exception:
            logger.exception("session %s: internal error", session.id)
            return BROKEN
        finally:
            for outlet in outlets:
                outlet.finish()
            self._tell_end(session, audio)
        if refusal:
            raise refusal
        if session.closing:
            return session.closing.close_code, session.closing.reason
        return (1012, "the server stops") if listening.cancelled() else listening.result()

    async def _hand_on(
        self, session: RealtimeASRSession, about: Mapping[str, Any], outlets: list[Outlet]
    ) -> FieldError | None:
        """Open the outlets when the session begins and pass on what it says to its end; or why it does not begin."""
        begun = False
        async with aclosing(session.messages()) as messages:
            async for text in messages:
                message = json.loads(text)
                if not begun:
                    if message["type"] == "error":
                        return FieldError(message["message"], message["field"])
                    begun = True
                    outlets += self.taps.open_outlets(about, session.id)
                if message["type"] not in PASSING:
                    for outlet in outlets:
                        outlet.put(message)
        await session.wait_ended()
        return None

    async def _listen(
        self, session: RealtimeASRSession, call: CallStarted, audio: CallAudio
    ) -> tuple[int, str]:
        """Feed the session until nothing more comes; return how the connection is to be closed."""
        try:
            ending = await self._hear(session, call, audio)
        except Exception:  # what was heard before is told all the same
            logger.exception("session %s: internal error", session.id)
            ending = BROKEN
        session.feed("STOP")
        session.end()
        return ending

    async def _hear(
        self, session: RealtimeASRSession, call: CallStarted, audio: CallAudio
    ) -> tuple[int, str]:
        """Feed the session what comes; return how the connection is to be closed."""
        options = self.taps.options
        taken, silent_s, ending = 0, 0.0, None
        while ending is None:
            try:
                async with asyncio.timeout(options.pause_s):
                    message = await self._receive()
            except TimeoutError:
                session.feed(audio.rest_to_send())
                silent_s += options.pause_s
                if silent_s >= options.idle_s:
                    ending = (1008, f"nothing came for {options.idle_s:g} s")
                continue
            silent_s = 0.0
            match message:
                case None:
                    ending = GONE
                case CallStopped():
                    ending = STOPPED
                case Media():
                    self._take(session, call, audio, message)
                case CallStarted():
                    self.refused.add(FieldError("start came twice", "start"))
            taken += 1
            if taken % AT_ONCE == 0:
                await asyncio.sleep(0)
        session.feed(audio.rest_to_send())
        return ending

    def _take(self, session: RealtimeASRSession, call: CallStarted, audio: CallAudio, media: Media) -> None:
        if media.track not in call.tracks:
            words = f"media.track is {media.track}, which start.tracks does not list"
            self.refused.add(FieldError(words, "media.track"))
            return
        audio.receive_piece(call.tracks.index(media.track), media.timestamp_ms, media.audio)
        if ready := audio.audio_to_send():
            session.feed(ready)

    async def _receive(self, *, begun: bool = True) -> Message | None:
        """The next message that can be read; None if the connection has ended.

        Raises FieldError for a start that cannot be read, unless the call has begun: no other will come.
        """
        while True:
            received = await self.websocket.receive()
            if received["type"] == "websocket.disconnect":
                return None
            frame = received.get("text")
            try:
                if frame is not None and len(frame) > MESSAGE_CHARACTERS:
                    raise FieldError(f"a message is longer than {MESSAGE_CHARACTERS} characters", None)
                return read_call_message(received["bytes"] if frame is None else frame)
            except FieldError as error:
                if not self.refused.count:
                    logger.warning("a call sends what cannot be used: %s", error)
                self.refused.add(error)
                if not begun and (error.field or "").split(".")[0] == "start":
                    raise

    def _tell_end(self, session: RealtimeASRSession, audio: CallAudio) -> None:
        """Log what a call came to."""
        logger.info(
            "session %s ended: %s; of its call %d messages could not be used, %d ms came too late, %d ms did not come",
            session.id, session.summary, self.refused.count, audio.late_ms, audio.filled_ms,
        )  # fmt: skip

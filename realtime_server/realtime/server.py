"""The WebSocket server: one port for live sessions, the page and the health checks.

A connection counts from the moment its handshake is accepted, so that a burst of handshakes cannot pass the
limit; one that is lost before its session began is noticed at the next handshake. Shutting down has a fixed
order: refuse newcomers, end the sessions, wait for their finals, take what is unfinished for failed, close.

An engine that has died (`Engine.healthy`) does not come back, so neither does `/ready`: newcomers are refused from
then on, and `wait_died` returns, for whoever runs the server to `stop` it and to end the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.protocol import State

from realtime_server import __version__
from realtime_server.core.jobs import Job
from realtime_server.core.settings import SessionSettings
from realtime_server.doors.door import Door, Place
from realtime_server.doors.visitors import Visitor
from realtime_server.engines.base import Embedder, Engine, Scorer, Staffed
from realtime_server.errors import (
    AdmissionError,
    BusyError,
    ConfigurationError,
    EngineError,
    FieldError,
    NoSessionError,
)
from realtime_server.metrics import Metrics, Snapshot
from realtime_server.realtime.addresses import ToView, read_address
from realtime_server.realtime.connection import SessionConnection
from realtime_server.realtime.dispatch import Dispatcher
from realtime_server.realtime.fair_connection import FairConnection
from realtime_server.realtime.health import Health
from realtime_server.realtime.http_answers import (
    HttpAnswers,
    PageTexts,
    as_asked,
    is_handshake,
    refuse,
    respond_refused,
    respond_text,
    visitor_of,
)
from realtime_server.realtime.hub import Hub
from realtime_server.realtime.options import Clocks, ServerOptions
from realtime_server.realtime.reception import Reception
from realtime_server.realtime.session import RealtimeASRSession
from realtime_server.realtime.viewers import Gallery, LiveSocket, Viewing

__all__ = ["RealtimeServer", "ServerOptions"]

logger = logging.getLogger(__name__)

DIED = "the recognizer has died"
LOOK_S = 0.5  # between two looks at the engine
LEFT_S = 1.0  # for connections that never became sessions, such as a browser's spare ones, at shutdown


class RealtimeServer:
    """Serves live sessions on one engine, one scorer and, where speakers are told apart, one embedder.

    `description` is what GET /health tells about the engine and its settings.
    page: of the microphone.
    hub: the sessions.  gallery: who views them.  metrics: what GET /metrics tells.  dispatcher: the engine, as the
    sessions share it.  door: who may come in; unless it is given, everybody whose page may.  tls: encrypts, None for
    a plain port.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer, settings: SessionSettings, options: ServerOptions, *,
        page: Path, description: Mapping[str, str], clocks: Clocks | None = None,
        embedder: Embedder | None = None, door: Door | None = None, tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self.door, self.tls = door or Door(), tls
        self.hub = Hub(options.max_sessions, options.keep_transcripts_s)
        self.gallery = Gallery(self.hub.archive, options)
        self.health = Health()
        self.metrics = Metrics(self._snapshot)
        self.reception = Reception(self.door, self.metrics)
        self.dispatcher = Dispatcher(engine, clocks, self.metrics, options.late_s)
        self._engine, self._scorer, self._embedder = engine, scorer, embedder
        self._settings, self._options = settings, options
        self._description, self._clocks = description, clocks
        self._http = HttpAnswers(
            PageTexts.read(page),
            self.door,
            self.gallery,
            state=self.state,
            why_not_ready=self.why_not_ready,
            metrics=self.metrics.render,
        )
        self._opening: dict[ServerConnection, Place] = {}  # accepted, but not sessions yet
        self._viewers: dict[ServerConnection, Viewing] = {}
        self._server: Server | None = None

    async def start(self) -> int:
        """Listen; return the port. Raises ConfigurationError if the address cannot be had."""
        options = self._options
        # What is worth telling is told here; the library would log a traceback for malformed handshakes.
        quiet = logging.getLogger(f"{__name__}.websockets")
        quiet.setLevel(logging.CRITICAL)
        # The library calls it; that it need be no class is said in its documentation only.
        connect = cast(type[ServerConnection], partial(FairConnection, reception=self.reception))
        try:
            self._server = await serve(
                self._handle, options.host, options.port,
                create_connection=connect, process_request=self._answer_request, process_response=self._admit,
                max_size=options.max_message_bytes, compression=None, close_timeout=options.close_s,
                ping_interval=None, logger=quiet, server_header=None, ssl=self.tls,
            )  # fmt: skip
        except (OSError, OverflowError) as error:
            # The event loop's own text repeats the address; name resolution counts its errors below zero.
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number and number > 0 else error
            raise ConfigurationError(
                f"cannot listen on {options.host}:{options.port}: {why}; choose another --port or --host"
            ) from error
        if isinstance(self._scorer, Staffed):
            self._scorer.attach()
        return int(next(iter(self._server.sockets)).getsockname()[1])

    def state(self) -> dict[str, object]:
        """What GET /health and /ready tell."""
        counts = {"sessions": len(self.hub.sessions), "max_sessions": self.hub.max_sessions}
        return {"version": __version__, **self._description, **counts, "token_needed": self.door.token_needed}

    def why_not_ready(self) -> str | None:
        """None if another session would be let in, else the reason that GET /ready gives."""
        refusal = self._refusal()
        return refusal[1] if refusal else self.dispatcher.problem or self.health.problem

    async def wait_died(self) -> None:
        """Return once the engine has died: `stop` should follow, and the process should end."""
        while self._engine.healthy:  # noqa: ASYNC110 - it may die in silence: vLLM is a process of its own
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Refuse new sessions, let every session send its final and close with 1012, stop listening."""
        assert self._server is not None
        await self.hub.drain(self._options.shutdown_s, self._options.close_s)
        self._server.close()
        try:
            async with asyncio.timeout(LEFT_S):
                await self._server.wait_closed()
        except TimeoutError:
            logger.info("some connections without a session are still open")

    async def _handle(self, connection: ServerConnection) -> None:
        assert connection.request
        wanted = read_address(connection.request.path)
        if isinstance(wanted, ToView):
            await self._show(connection)
            return
        session = self._make_session()
        with self._holding(session, wanted.name), self._opening.pop(connection, nullcontext()):
            carrier = SessionConnection(connection, session, self._options, self.metrics)
            try:
                await carrier.run()
            finally:
                code = carrier.close_code
                logger.info("session %s ended: %s, close code %d", session.id, session.summary, code)

    async def _show(self, connection: ServerConnection) -> None:
        viewing = self._viewers.get(connection)
        if viewing is None:  # it was lost meanwhile
            return
        try:
            await self.gallery.show(viewing, LiveSocket(connection))
        finally:
            self._viewers.pop(connection, None)

    def _make_session(self) -> RealtimeASRSession:
        self.metrics.count_connection()
        return RealtimeASRSession(
            self.dispatcher,
            self._scorer,
            self._settings,
            embedder=self._embedder,
            clocks=self._clocks,
            observe=self.observe,
            metrics=self.metrics,
        )

    # --- speech that comes in elsewhere -------------------------------------------------------------------

    def why_refused(self) -> str | None:
        """Why nobody is let in now, in a sentence; None if somebody would be. A refusal is counted."""
        refusal = self._refusal()
        if refusal is None:
            return None
        reason, why = refusal
        self.metrics.count_refused(reason)
        logger.info("refused a connection: %s", why)
        return why

    @contextmanager
    def holding(self, name: str) -> Iterator[RealtimeASRSession]:
        """Hold another session, to be found by that name, for speech from another port. Raises BusyError."""
        if why := self.why_refused():
            raise BusyError(why)
        self.dispatcher.lateness.receive_newcomer()
        session = self._make_session()
        with self._holding(session, name):
            yield session

    @contextmanager
    def _holding(self, session: RealtimeASRSession, name: str | None) -> Iterator[None]:
        """Count a session while it lives."""
        try:
            with self.hub.holding(session, name):
                yield
        finally:
            self._note_left()

    def _note_left(self) -> None:
        """A session has ended, or a connection was lost before it began one."""
        if self._is_empty:
            self.dispatcher.lateness.receive_empty()

    @property
    def _is_empty(self) -> bool:
        return not self.hub.sessions and not self._opening

    # --- handshakes and plain HTTP ------------------------------------------------------------------------

    def _answer_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP; None lets the library check a WebSocket handshake, before `_admit`."""
        visitor = visitor_of(connection, request)
        assert isinstance(connection, FairConnection)
        if crowded := connection.check_crowd(visitor):
            return as_asked(request, respond_refused(crowded))
        if is_handshake(request):
            return None
        try:
            return self._http.answer(request, visitor)
        except AdmissionError as error:
            return as_asked(request, self._turn_away(visitor, error))
        except Exception:
            logger.exception("could not answer %s", request.path.partition("?")[0])
            return respond_text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")

    def _admit(self, connection: ServerConnection, request: Request, response: Response) -> Response | None:
        """Count a handshake that the library accepts, or refuse it; None leaves the response as it is."""
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return None
        visitor = visitor_of(connection, request)
        try:
            wanted = read_address(request.path)
            if isinstance(wanted, ToView):
                return self._admit_viewer(connection, visitor, wanted)
            entrant = self.door.admit(visitor, "transcribe", wanted.name)
            if why := self.why_refused():
                return refuse(why)
            self._opening[connection] = self.door.take_place(entrant)
            self.dispatcher.lateness.receive_newcomer()
        except AdmissionError as error:
            return self._turn_away(visitor, error)
        except FieldError as error:
            return respond_text(HTTPStatus.BAD_REQUEST, str(error))
        return None

    def _admit_viewer(
        self, connection: ServerConnection, visitor: Visitor, wanted: ToView
    ) -> Response | None:
        """Let a viewer in, or refuse it. Raises AdmissionError."""
        self.door.admit(visitor, "view", wanted.name)
        for lost in [each for each in self._viewers if each.state is State.CLOSED]:
            self._viewers.pop(lost).close()
        try:
            self._viewers[connection] = self.gallery.open(wanted)
        except NoSessionError as error:
            return respond_text(HTTPStatus.NOT_FOUND, str(error))
        except BusyError as error:
            return refuse(f"{error}; try again later")
        return None

    def _turn_away(self, visitor: Visitor, error: AdmissionError) -> Response:
        """Answer somebody who is not let in."""
        self.reception.note_refused(visitor, error)
        return respond_refused(error)

    def _refusal(self) -> tuple[str, str] | None:
        """Why nobody is let in, in a word and in a sentence; None if somebody would be."""
        for connection in [each for each in self._opening if each.state is State.CLOSED]:
            self._opening.pop(connection).release()
            self._note_left()
        if not self._engine.healthy:
            return "died", f"{DIED} and the server is stopping; connect to another or try again later"
        if self.hub.draining:
            return "stopping", "the server is stopping; connect to another or try again later"
        if len(self.hub.sessions) + len(self._opening) >= self.hub.max_sessions:
            return "full", f"the server is full ({self.hub.max_sessions} sessions); try again later"
        if late := self._late():
            return "late", late
        return None

    def _late(self) -> str | None:
        return None if self._is_empty else self.dispatcher.lateness.problem

    # --- what operators are told --------------------------------------------------------------------------

    def observe(self, job: Job, error: EngineError | None) -> None:
        """A job of any service on this engine was answered; see Health and Metrics."""
        self.health.observe(job, error)
        self.metrics.observe_job(job, error)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            about={"version": __version__, **self._description},
            counts=self.hub.counts,
            sessions=len(self.hub.sessions),
            max_sessions=self.hub.max_sessions,
            ready=self.why_not_ready() is None,
            in_line=self.dispatcher.waiting,
            in_engine=self.dispatcher.running,
            engine_up=self._engine.healthy,
            engine_silent_s=self.dispatcher.silent_s,
            late=self._late() is not None,
            vad=self._scorer if isinstance(self._scorer, Staffed) else None,
        )

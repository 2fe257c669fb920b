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
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.protocol import State

from realtime_server import __version__
from realtime_server.core.jobs import Job
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.errors import ConfigurationError, EngineError
from realtime_server.metrics import Metrics, Snapshot
from realtime_server.realtime.connection import SessionConnection
from realtime_server.realtime.dispatch import Dispatcher
from realtime_server.realtime.health import Health
from realtime_server.realtime.http_answers import HttpAnswers, is_handshake, refuse, respond_text
from realtime_server.realtime.hub import Hub
from realtime_server.realtime.options import Clocks, ServerOptions
from realtime_server.realtime.session import RealtimeASRSession

__all__ = ["RealtimeServer", "ServerOptions"]

logger = logging.getLogger(__name__)

DIED = "the recognizer has died"
LOOK_S = 0.5  # between two looks at the engine
LEFT_S = 1.0  # for connections that never became sessions, such as a browser's spare ones, at shutdown


class RealtimeServer:
    """Serves live sessions on one engine, one scorer and, where speakers are told apart, one embedder.

    `description` is what GET /health tells about the engine and its settings.
    hub: the sessions.  metrics: what GET /metrics tells.  dispatcher: the engine, as the sessions share it.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer, settings: SessionSettings, options: ServerOptions, *,
        page: Path, description: Mapping[str, str], clocks: Clocks | None = None,
        embedder: Embedder | None = None,
    ) -> None:  # fmt: skip
        self.hub = Hub(options.max_sessions)
        self.health = Health()
        self.metrics = Metrics(self._snapshot)
        self.dispatcher = Dispatcher(engine, clocks, self.metrics)
        self._engine, self._scorer, self._embedder = engine, scorer, embedder
        self._settings, self._options = settings, options
        self._description, self._clocks = description, clocks
        self._http = HttpAnswers(
            page.read_bytes(),
            state=self.state,
            why_not_ready=self.why_not_ready,
            metrics=self.metrics.render,
        )
        self._opening: set[ServerConnection] = set()  # accepted, but not sessions yet
        self._server: Server | None = None

    async def start(self) -> int:
        """Listen; return the port. Raises ConfigurationError if the address cannot be had."""
        options = self._options
        # What is worth telling is told here; the library would log a traceback for malformed handshakes.
        quiet = logging.getLogger(f"{__name__}.websockets")
        quiet.setLevel(logging.CRITICAL)
        try:
            self._server = await serve(
                self._handle, options.host, options.port,
                process_request=self._answer_request, process_response=self._admit,
                max_size=options.max_message_bytes, compression=None, close_timeout=options.close_s,
                ping_interval=None, logger=quiet, server_header=None,
            )  # fmt: skip
        except (OSError, OverflowError) as error:
            # The event loop's own text repeats the address; name resolution counts its errors below zero.
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number and number > 0 else error
            raise ConfigurationError(
                f"cannot listen on {options.host}:{options.port}: {why}; choose another --port or --host"
            ) from error
        return int(next(iter(self._server.sockets)).getsockname()[1])

    def state(self) -> dict[str, object]:
        """What GET /health and /ready tell."""
        counts = {"sessions": len(self.hub.sessions), "max_sessions": self.hub.max_sessions}
        return {"version": __version__, **self._description, **counts}

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
        session = RealtimeASRSession(
            self.dispatcher,
            self._scorer,
            self._settings,
            embedder=self._embedder,
            clocks=self._clocks,
            observe=self.observe,
            metrics=self.metrics,
        )
        self.metrics.count_connection()
        with self.hub.holding(session):
            self._opening.discard(connection)
            carrier = SessionConnection(connection, session, self._options, self.metrics)
            try:
                await carrier.run()
            finally:
                code = carrier.close_code
                logger.info("session %s ended: %s, close code %d", session.id, session.summary, code)

    # --- handshakes and plain HTTP ------------------------------------------------------------------------

    def _answer_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP; None lets the library check a WebSocket handshake, before `_admit`."""
        if is_handshake(request):
            return None
        try:
            return self._http.answer(request)
        except Exception:
            logger.exception("could not answer %s", request.path)
            return respond_text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")

    def _admit(self, connection: ServerConnection, request: Request, response: Response) -> Response | None:
        """Count a handshake that the library accepts, or refuse it; None leaves the response as it is."""
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return None
        refusal = self._refusal()
        if refusal:
            reason, why = refusal
            self.hub.refused += 1
            self.metrics.count_refused(reason)
            logger.info("refused a connection: %s", why)
            return refuse(why)
        self._opening.add(connection)
        return None

    def _refusal(self) -> tuple[str, str] | None:
        """Why nobody is let in, in a word and in a sentence; None if somebody would be."""
        self._opening = {connection for connection in self._opening if connection.state is not State.CLOSED}
        if not self._engine.healthy:
            return "died", f"{DIED} and the server is stopping; connect to another or try again later"
        if self.hub.draining:
            return "stopping", "the server is stopping; connect to another or try again later"
        if len(self.hub.sessions) + len(self._opening) >= self.hub.max_sessions:
            return "full", f"the server is full ({self.hub.max_sessions} sessions); try again later"
        return None

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
        )

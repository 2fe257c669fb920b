"""The WebSocket server: one port for live sessions, the page and the health checks."""

from __future__ import annotations

import asyncio
import json
import logging
import weakref
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from realtime_server import __version__
from realtime_server.core.settings import SessionSettings, require_positive
from realtime_server.engines.base import Engine, Scorer
from realtime_server.errors import ConfigurationError
from realtime_server.realtime.hub import Hub, ReaderTooSlowError
from realtime_server.realtime.session import Clocks, RealtimeASRSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server listens, and its bounds."""

    host: str = "127.0.0.1"
    port: int = 10095
    max_sessions: int = 100
    max_message_bytes: int = 10 * 1024 * 1024  # 327 s of audio
    ping_s: float = 20.0  # between pings of ours
    ping_timeout_s: float = 60.0  # without an answer for so long, the connection is lost
    send_timeout_s: float = 30.0  # a client that reads nothing for so long is closed
    shutdown_s: float = 20.0  # for the finals of all sessions

    def __post_init__(self) -> None:
        require_positive(self, ("max_sessions", "max_message_bytes", "ping_s", "ping_timeout_s"))
        require_positive(self, ("send_timeout_s", "shutdown_s"))
        if not 0 <= self.port < 65_536:
            raise ConfigurationError(f"port must be 0 to 65535, not {self.port}")


class RealtimeServer:
    """Serves live sessions on one engine and one scorer.

    `description` is what GET /health tells about the engine and its settings.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer, settings: SessionSettings, options: ServerOptions, *,
        page: Path, description: dict[str, str], clocks: Clocks | None = None,
    ) -> None:  # fmt: skip
        self.hub = Hub(options.max_sessions)
        self._engine, self._scorer, self._settings, self._options = engine, scorer, settings, options
        self._page, self._description, self._clocks = page, description, clocks
        # Counted from the handshake on, so that a burst of handshakes cannot pass the limit; a connection
        # whose handshake fails simply vanishes from the set.
        self._admitted: weakref.WeakSet[ServerConnection] = weakref.WeakSet()
        self._server: Server | None = None

    async def start(self) -> int:
        """Listen; return the port. Raises ConfigurationError if the address cannot be had."""
        options = self._options
        # Everything worth telling is logged here; the library would log a traceback per malformed handshake.
        quiet = logging.getLogger("websockets.server")
        quiet.setLevel(logging.CRITICAL)
        try:
            self._server = await serve(
                self._handle, options.host, options.port,
                process_request=self._answer_http, max_size=options.max_message_bytes, compression=None,
                ping_interval=options.ping_s, ping_timeout=options.ping_timeout_s, logger=quiet,
                server_header=None,
            )  # fmt: skip
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {options.host}:{options.port}: {error.strerror or error}; choose another --port or --host"
            ) from error
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def stop(self) -> None:
        """Refuse new sessions, let every session send its final, close with 1012."""
        assert self._server is not None
        try:
            async with asyncio.timeout(self._options.shutdown_s):
                await self.hub.drain()
        except TimeoutError:
            logger.warning("%d sessions had not finished in time", len(self.hub.sessions))
        self._server.close(code=1012, reason="the server stops")
        await self._server.wait_closed()

    # --- one connection -----------------------------------------------------------------------------------

    async def _handle(self, connection: ServerConnection) -> None:
        session = RealtimeASRSession(self._engine, self._scorer, self._settings, clocks=self._clocks)
        with self.hub.holding(session):
            try:
                async with session, asyncio.TaskGroup() as tasks:
                    receiving = tasks.create_task(self._receive(connection, session))
                    await self._send(connection, session)
                    receiving.cancel()
            except Exception:
                logger.exception("session %s: internal error", session.id)
                await connection.close(1011, "internal error")
            finally:
                self._admitted.discard(connection)
                code = connection.close_code
                logger.info("session %s ended: %s, close code %s", session.id, session.summary, code)

    async def _receive(self, connection: ServerConnection, session: RealtimeASRSession) -> None:
        """Feed the session until the client is gone. Reading never waits for recognition."""
        with suppress(ConnectionClosed):
            async for frame in connection:
                session.feed(frame)
        session.end()

    async def _send(self, connection: ServerConnection, session: RealtimeASRSession) -> None:
        """Send until the session has ended; a client that is gone or does not read no longer gets anything."""
        try:
            async with aclosing(session.messages()) as messages:
                async for message in messages:
                    async with asyncio.timeout(self._options.send_timeout_s):
                        await connection.send(message)
        except ConnectionClosed:
            await session.wait_ended()
        except (TimeoutError, ReaderTooSlowError):
            logger.info("session %s: the client does not read its messages", session.id)
            connection.transport.abort()
            session.end()
            await session.wait_ended()
        else:
            closing = session.closing
            code, reason = (closing.close_code, closing.reason) if closing else (1012, "the server stops")
            await connection.close(code, reason)

    # --- HTTP ---------------------------------------------------------------------------------------------

    def _answer_http(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a plain GET; None lets a WebSocket handshake through."""
        path = request.path.partition("?")[0]
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return self._admit(connection)
        match path:
            case "/":
                return _respond(HTTPStatus.OK, "text/html; charset=utf-8", self._page.read_bytes())
            case "/health":
                return _respond_json(HTTPStatus.OK, {"status": "ok"} | self._state())
            case "/ready":
                why = self._why_not_ready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
                return _respond_json(status, {"ready": not why, "reason": why} | self._state())
        return _respond(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"not found; the page is at /\n")

    def _admit(self, connection: ServerConnection) -> Response | None:
        why = self._why_not_ready()
        if why:
            self.hub.refused += 1
            logger.info("refused a connection: %s", why)
            response = _respond(
                HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{why}\n".encode()
            )
            response.headers["Retry-After"] = "5"
            return response
        self._admitted.add(connection)
        return None

    def _why_not_ready(self) -> str | None:
        if self.hub.draining:
            return "the server is stopping; connect to another or try again later"
        if len(self._admitted) >= self.hub.max_sessions:
            return f"the server is full ({self.hub.max_sessions} sessions); try again later"
        return None

    def _state(self) -> dict[str, object]:
        counts = {"sessions": len(self.hub.sessions), "max_sessions": self.hub.max_sessions}
        return {"version": __version__, **self._description, **counts}


def _respond(status: HTTPStatus, content_type: str, body: bytes) -> Response:
    headers = Headers()
    headers["Content-Type"] = content_type
    headers["Content-Length"] = str(len(body))
    headers["Cache-Control"] = "no-cache"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Connection"] = "close"
    return Response(status.value, status.phrase, headers, body)


def _respond_json(status: HTTPStatus, value: dict[str, object]) -> Response:
    return _respond(status, "application/json", json.dumps(value).encode() + b"\n")

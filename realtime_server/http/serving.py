"""The HTTP server: uvicorn as a task beside the live server, on the same engine and in the same event loop.

Shutting down has a fixed order: refuse newcomers, let those that run finish, cancel what takes too long, close.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from realtime_server.core.settings import SessionSettings
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.errors import ConfigurationError
from realtime_server.http.app import LiveService, make_app
from realtime_server.http.fair_h11 import FairH11
from realtime_server.http.fair_websocket import FairWebSocket
from realtime_server.http.options import HttpOptions
from realtime_server.http.service import FileService
from realtime_server.http.taps import Taps
from realtime_server.http.unread import DropsUnread
from realtime_server.offline.audio_reader import AudioReader
from realtime_server.offline.transcriber import Transcriber
from realtime_server.realtime.reception import Reception

GRACE_S = 2.0  # for requests that were cancelled to tell their clients
LEFT_S = 1  # for connections without a request, at the end
HANDSHAKE_S = 10.0  # of TLS
# A peer that is silent is asked whether it lives; one that acknowledges nothing for a minute is gone, also one that
# never takes its answer.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}


class HttpServer:
    """Serves the application; start() and stop() once each."""

    def __init__(
        self, service: FileService, reader: AudioReader, app: FastAPI, reception: Reception,
        tls: ssl.SSLContext | None = None, taps: Taps | None = None,
    ) -> None:  # fmt: skip
        self._service, self._reader, self._options = service, reader, service.options
        self._taps = taps
        config = uvicorn.Config(
            DropsUnread(app, service), http=FairH11, ws=FairWebSocket, lifespan="off",
            log_config=None, log_level="error", access_log=False, server_header=False,
            timeout_graceful_shutdown=LEFT_S, ws_max_size=self._options.message_bytes, ws_per_message_deflate=False,
            proxy_headers=False,  # the door reads them, if it is told to
            ws_ping_timeout=None,  # those who send first and read afterwards do not answer meanwhile; see SILENT_S
        )  # fmt: skip
        config.load()
        config.ssl = tls
        self._server = _Server(config, reception)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; return the port. Raises ConfigurationError if the address cannot be had."""
        sockets = listen(self._options.host, self._options.port)
        port = int(sockets[0].getsockname()[1])
        self._serving = asyncio.create_task(self._server.serve(sockets))
        listening = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait({listening, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            listening.cancel()
            self._serving.result()
        return port

    async def stop(self) -> None:
        """Refuse new requests, let those that run finish, stop listening; the engine is not touched.

        Calls are ended by the live service, of which they are sessions.
        """
        assert self._serving
        async with asyncio.TaskGroup() as draining:
            draining.create_task(self._service.drain(self._options.shutdown_s, GRACE_S))
            if self._taps:
                draining.create_task(self._taps.drain(self._options.shutdown_s))
        self._server.should_exit = True
        await self._serving
        await self._reader.aclose()


class _Server(uvicorn.Server):
    """Lets signals be the program's business, and says when it listens."""

    handshake_s = HANDSHAKE_S

    def __init__(self, config: uvicorn.Config, reception: Reception) -> None:
        super().__init__(config)
        self._reception = reception
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, as uvicorn does, but for handshakes of TLS, which it would give a minute."""
        config, loop = self.config, asyncio.get_running_loop()
        handshake_s = self.handshake_s if config.ssl else None

        def connect() -> asyncio.Protocol:
            return FairH11(
                reception=self._reception, config=config, server_state=self.server_state,
                app_state=self.lifespan.state,
            )  # fmt: skip

        self.servers = [
            await loop.create_server(
                connect, sock=each, ssl=config.ssl, backlog=config.backlog,
                ssl_handshake_timeout=handshake_s,
            )
            for each in sockets or ()
        ]  # fmt: skip
        self.started = True
        self.listening.set()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether to log it: clients without a request who do not answer the goodbye of TLS at the end are no error."""
    return not (str(record.msg).startswith("Cancel %s running task") and record.args == (0,))


def build(
    engine: Engine, scorer: Scorer, embedder: Embedder | None, settings: SessionSettings, options: HttpOptions,
    live: LiveService, names: Sequence[str],
) -> HttpServer:  # fmt: skip
    """Assemble the server.

    settings: what live sessions are told at their birth.  names: what the model that runs is called.
    """
    transcriber = Transcriber(
        engine,
        scorer,
        embedder,
        live=live.busy,
        deadlines=options.deadlines,
        observe=live.metrics.observe_job,
    )
    reader = AudioReader(options.limits)
    service = FileService(transcriber, reader, engine.capabilities, settings, options)
    return HttpServer(service, reader, make_app(service, live, names), live.reception, live.tls, live.taps)


def listen(host: str, port: int) -> list[socket.socket]:
    """Bind sockets to every address of a host; for port 0 to the same free one. Raises ConfigurationError."""
    found: list[socket.socket] = []
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        lacking = OSError()
        for family, kind, protocol, _, address in places:
            bound = found[0].getsockname()[1] if found else port
            try:
                found.append(_bind(family, kind, protocol, (address[0], bound, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                lacking = error
        if not found:
            raise lacking
    except (OSError, UnicodeError) as error:
        for opened in found:
            opened.close()
        why = error.strerror if isinstance(error, OSError) else "that is no name of a host"
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {why}; choose another --http-port or --host"
        ) from error
    return found


def _bind(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    """Make a socket whose connections notice that their peer is gone."""
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if option := getattr(socket, name, None):  # Linux has all of them
                bound.setsockopt(socket.IPPROTO_TCP, option, value)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound

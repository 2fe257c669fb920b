"""The application: endpoints, pages, and what is answered when something goes wrong."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.websockets import WebSocket

from realtime_server import __version__
from realtime_server.errors import RealtimeServerError
from realtime_server.http.admission import CALLS, Guard, came_encrypted, visitor_of
from realtime_server.http.asr import AsrApi
from realtime_server.http.collecting import FilesCollector
from realtime_server.http.docs_page import docs_page
from realtime_server.http.errors import answer_bug, answer_error
from realtime_server.http.openai_api import OpenAIApi
from realtime_server.http.service import FileService
from realtime_server.http.sessions_api import SessionsApi
from realtime_server.http.taps import Taps, serve_call
from realtime_server.http.tokens_api import TokensApi
from realtime_server.http.websocket import serve_websocket
from realtime_server.metrics import CONTENT_TYPE as METRICS_TYPE
from realtime_server.metrics import Metrics
from realtime_server.realtime.http_answers import PageTexts, page_policy
from realtime_server.realtime.reception import Reception
from realtime_server.realtime.viewers import Gallery

TITLE = "realtime-server: recordings"
ABOUT = "Recordings in, texts out. Live speech is recognised on another port."
# Spans and exporters are for those who configure them; nothing of a request leaves this process by itself.
NO_TELEMETRY: Any = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip
HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
PUBLIC = {**HEADERS, "Access-Control-Allow-Origin": "*"}  # it holds nothing about anybody


@dataclass(frozen=True, slots=True)
class LiveService:
    """What is known here of the live service beside this one.

    state, why_not_ready: what its own /health and /ready tell.  busy: whether anybody speaks.  metrics: what its
    own /metrics tells; told of the jobs of recordings, too.  gallery: who views its sessions.  reception: who may come
    in, on both ports.  tls: as on its own port.  taps: lets telephone calls in; None: none come.
    """

    port: int
    page: Path
    state: Callable[[], Mapping[str, object]]
    why_not_ready: Callable[[], str | None]
    busy: Callable[[], bool]
    metrics: Metrics
    gallery: Gallery
    reception: Reception
    tls: ssl.SSLContext | None = None
    taps: Taps | None = None


def make_app(service: FileService, live: LiveService, names: Sequence[str]) -> FastAPI:
    """Assemble everything; names: what the model that runs is called."""
    live.metrics.registry.register(FilesCollector(service))
    app = FastAPI(
        title=TITLE, description=ABOUT, version=__version__, docs_url=None, redoc_url=None,
        telemetry=NO_TELEMETRY,
    )  # fmt: skip
    reception = live.reception
    app.add_middleware(Guard, reception=reception)
    if reception.door.origins:
        # Outermost: browsers ask for leave without a token, and their pages may read why one is refused.
        app.add_middleware(
            CORSMiddleware, allow_origins=reception.door.origins, allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"], expose_headers=["X-Notes", "Retry-After"],
        )  # fmt: skip
    app.include_router(TokensApi(reception).router)
    app.include_router(SessionsApi(live.gallery, service).router)
    app.include_router(AsrApi(service).router)
    app.include_router(OpenAIApi(service, names).router)
    _add_pages(app, Pages(app, service, live))

    @app.websocket("/ws")
    async def recordings(websocket: WebSocket) -> None:
        await serve_websocket(websocket, service)

    if taps := live.taps:

        @app.websocket(CALLS)
        async def calls(websocket: WebSocket) -> None:
            await serve_call(websocket, taps, reception)

    for kind in (RealtimeServerError, HTTPException):
        app.add_exception_handler(kind, answer_error)
    app.add_exception_handler(Exception, answer_bug)
    return app


class Pages:
    """What is read rather than asked for."""

    def __init__(self, app: FastAPI, service: FileService, live: LiveService) -> None:
        self._app, self._service, self._live = app, service, live
        texts = PageTexts.read(live.page)
        self._microphone, self._overlay = map(_page, (texts.microphone, texts.overlay))

    async def health(self, request: Request) -> Response:
        """Tell that the process lives, and what runs in it."""
        return JSONResponse({"status": "ok", **self._state()}, headers=PUBLIC)

    async def ready(self, request: Request) -> Response:
        """Tell whether another live session would be let in; 503 and the reason if not.

        Who sends a token, or an empty parameter `token`, is told whether he would be.
        """
        visitor = visitor_of(request)
        if visitor.asks_for_himself:
            self._live.reception.try_place(visitor)
        why = self._live.why_not_ready()
        status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
        return JSONResponse({"ready": not why, "reason": why, **self._state()}, status, PUBLIC)

    async def metrics(self, request: Request) -> Response:
        """Count what happens, for Prometheus."""
        return Response(self._live.metrics.render(), headers=HEADERS, media_type=METRICS_TYPE)

    async def docs(self, request: Request) -> Response:
        """List all of this."""
        return _page(docs_page(self._app.openapi()))

    async def overlay(self, request: Request) -> Response:
        """Show the text of a live session, over a picture: docs/overlay.md."""
        return self._overlay

    async def microphone(self, request: Request) -> Response:
        """Show the page, which talks to the live service: its address is a parameter."""
        if "server" in request.query_params:
            return self._microphone
        scheme = "wss" if came_encrypted(request, self._live.reception.door.proxies) else "ws"
        host = request.url.hostname or "localhost"
        server = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._live.port}/"
        return RedirectResponse(f"/?{urlencode({**request.query_params, 'server': server})}")

    def _state(self) -> dict[str, object]:
        files = {"files": self._service.running, "max_files": self._service.options.max_files}
        return {**self._live.state(), **files}


def _page(text: str) -> HTMLResponse:
    return HTMLResponse(text, headers={**HEADERS, "Content-Security-Policy": page_policy(text)})


def _add_pages(app: FastAPI, pages: Pages) -> None:
    for path, answer, media_type in (
        ("/health", pages.health, JSONResponse),
        ("/ready", pages.ready, JSONResponse),
        ("/metrics", pages.metrics, PlainTextResponse),
        ("/docs", pages.docs, HTMLResponse),
        ("/", pages.microphone, HTMLResponse),
        ("/overlay", pages.overlay, HTMLResponse),
        ("/overlay.html", pages.overlay, HTMLResponse),
    ):
        app.add_api_route(path, answer, methods=["GET"], response_class=media_type, tags=["pages"])
        app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)

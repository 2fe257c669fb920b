"""Plain HTTP on the WebSocket port: the pages, the health checks, and the words for those who are refused."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from realtime_server.doors.door import Door
from realtime_server.doors.session_tokens import Wish
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import RETRY_S, AdmissionError, FieldError, NoSessionError
from realtime_server.metrics import CONTENT_TYPE as METRICS_TYPE
from realtime_server.realtime.addresses import VIEW, ToView, read_address
from realtime_server.realtime.viewers import Gallery
from realtime_server.resources import find_resource, read_page

OVERLAY = "static/overlay.html"


@dataclass(frozen=True, slots=True)
class PageTexts:
    """What people look at: each as its text."""

    microphone: str
    overlay: str

    @classmethod
    def read(cls, microphone: Path) -> PageTexts:
        """Read them. Raises ConfigurationError if this installation lacks the overlay."""
        return cls(read_page(microphone), read_page(find_resource(OVERLAY)))

    def at(self, path: str) -> str | None:
        """The page of a path."""
        return {"/": self.microphone, "/overlay": self.overlay, "/overlay.html": self.overlay}.get(path)


class HttpAnswers:
    """Answers requests that are no WebSocket handshake.

    gallery: the sessions that can be viewed.
    state: what /health tells.  why_not_ready: None, or the reason that /ready gives.  metrics: what /metrics tells.
    """

    def __init__(
        self,
        pages: PageTexts,
        door: Door,
        gallery: Gallery,
        *,
        state: Callable[[], Mapping[str, object]],
        why_not_ready: Callable[[], str | None],
        metrics: Callable[[], str],
    ) -> None:
        self._pages, self._door, self._gallery = pages, door, gallery
        self._state, self._why_not_ready, self._metrics = state, why_not_ready, metrics

    def answer(self, request: Request, visitor: Visitor) -> Response:
        """Return the response to a GET or HEAD; other methods are refused. Raises AdmissionError."""
        method = getattr(request, "method", "GET")  # websockets before 17 refuses others by itself
        if method not in ("GET", "HEAD"):
            return refuse_method(method)
        return as_asked(request, self._answer_get(request.path.partition("?")[0], visitor))

    def _answer_get(self, path: str, visitor: Visitor) -> Response:
        if page := self._pages.at(path):
            response = respond(HTTPStatus.OK, "text/html; charset=utf-8", page.encode())
            response.headers["Content-Security-Policy"] = page_policy(page)
            return response
        if path.startswith(VIEW):
            return self._tell_session(path, visitor)
        match path:
            case "/health":
                return respond_json(HTTPStatus.OK, {"status": "ok", **self._state()})
            case "/ready":
                if visitor.asks_for_himself:
                    self._door.take_place(self._door.admit(visitor, "transcribe", visitor.session)).release()
                why = self._why_not_ready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
                return respond_json(status, {"ready": not why, "reason": why, **self._state()})
            case "/metrics":
                self._door.admit(visitor, "metrics")
                return respond(HTTPStatus.OK, METRICS_TYPE, self._metrics().encode())
            case "/tokens":
                return self._mint(visitor)
        return respond_text(
            HTTPStatus.NOT_FOUND,
            "not found; the page is at /, recordings and transcripts are on the port of --http-port",
        )

    def _tell_session(self, path: str, visitor: Visitor) -> Response:
        """Tell whether a session can be viewed: what a page is not told of a handshake that failed."""
        try:
            wanted = read_address(path)
            assert isinstance(wanted, ToView)
            self._door.admit(visitor, "view", wanted.name)
            return _keep_private(respond_json(HTTPStatus.OK, self._gallery.tell(wanted.name)))
        except FieldError as error:
            return respond_json(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except NoSessionError as error:
            return respond_json(HTTPStatus.NOT_FOUND, {"error": str(error)})

    def _mint(self, visitor: Visitor) -> Response:
        """Make a session token: it changes nothing here, and a GET is all that this port can read."""
        try:
            minted = self._door.mint(self._door.find_maker(visitor), Wish.read_query(visitor.query))
        except FieldError as error:
            return respond_text(HTTPStatus.BAD_REQUEST, str(error))
        return _keep_private(
            respond(HTTPStatus.OK, "application/json", json.dumps(minted.body).encode() + b"\n")
        )


def page_policy(page: str) -> str:
    """Return a Content-Security-Policy under which exactly this page's own styles and scripts run."""

    def hashes(tag: str, *others: str) -> str:
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks)
        sources = [f"'sha256-{digest}'" for digest in digests]
        return " ".join([*sources, *others]) if sources else "'none'"

    return (
        # blob: is the audio worklet, which the page makes itself; the page may be told to use another server.
        f"default-src 'none'; script-src {hashes('script', 'blob:')}; style-src {hashes('style')}; "
        "connect-src *; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def is_handshake(request: Request) -> bool:
    """Whether a request asks for a WebSocket, be it well formed or not."""
    return any("websocket" in value.lower() for value in request.headers.get_all("Upgrade"))


def as_asked(request: Request, response: Response) -> Response:
    """Return the response, without its body if the request is a HEAD."""
    if getattr(request, "method", "GET") == "HEAD":
        response.body = b""
    return response


def visitor_of(connection: ServerConnection, request: Request) -> Visitor:
    """Who sent a request."""
    address = connection.remote_address  # None, or of another kind, for sockets that are not of the internet
    peer = str(address[0]) if isinstance(address, tuple) else ""
    return Visitor.of(peer, request.headers.get_all, request.path.partition("?")[2])


def respond_refused(error: AdmissionError) -> Response:
    """Return the answer to somebody who is not let in, which a page from anywhere may read."""
    response = respond_json(HTTPStatus(error.status), {"error": str(error), "code": error.reason})
    response.headers.update(error.headers)
    return response


def refuse(why: str) -> Response:
    """Return the answer to a handshake that comes at a bad time."""
    response = respond_text(HTTPStatus.SERVICE_UNAVAILABLE, why)
    response.headers["Retry-After"] = str(RETRY_S)
    return response


def respond(status: HTTPStatus, content_type: str, body: bytes) -> Response:
    """Return a response with the headers that all of ours have."""
    headers = Headers()
    headers["Content-Type"] = content_type
    headers["Content-Length"] = str(len(body))
    headers["Cache-Control"] = "no-cache"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Connection"] = "close"
    return Response(status.value, status.phrase, headers, body)


def refuse_method(method: str) -> Response:
    """Return what is said to other methods than GET and HEAD."""
    words = f"{method} is not answered here; use GET. Recordings and tokens are asked for on the port of --http-port"
    response = respond_text(HTTPStatus.METHOD_NOT_ALLOWED, words)
    response.headers["Allow"] = "GET, HEAD"
    return response


def respond_text(status: HTTPStatus, text: str) -> Response:
    """Return a line of plain text."""
    return respond(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def respond_json(status: HTTPStatus, value: Mapping[str, object]) -> Response:
    """Return a JSON object that a page may read wherever it is from, if the door lets it ask."""
    response = respond(status, "application/json", json.dumps(value).encode() + b"\n")
    response.headers["Access-Control-Allow-Origin"] = "*"
    return response


def _keep_private(response: Response) -> Response:
    """Let nobody on the way keep an answer that is about somebody."""
    del response.headers["Cache-Control"]
    response.headers["Cache-Control"] = "no-store"
    return response

"""Plain HTTP on the WebSocket port: the page, the health checks, and the words for those who are refused."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from realtime_server.metrics import CONTENT_TYPE as METRICS_TYPE

RETRY_S = 5  # what a refused client is told to wait


class HttpAnswers:
    """Answers requests that are no WebSocket handshake.

    state: what /health tells.  why_not_ready: None, or the reason that /ready gives.  metrics: what /metrics tells.
    """

    def __init__(
        self,
        page: bytes,
        *,
        state: Callable[[], Mapping[str, object]],
        why_not_ready: Callable[[], str | None],
        metrics: Callable[[], str],
    ) -> None:
        self._page, self._state, self._why_not_ready, self._metrics = page, state, why_not_ready, metrics
        self._page_policy = page_policy(page.decode())

    def answer(self, request: Request) -> Response:
        """Return the response to a GET or HEAD; other methods are refused."""
        method = getattr(request, "method", "GET")  # websockets before 17 refuses others by itself
        if method not in ("GET", "HEAD"):
            response = respond_text(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not answered here; use GET")
            response.headers["Allow"] = "GET, HEAD"
            return response
        response = self._answer_get(request.path.partition("?")[0])
        if method == "HEAD":
            response.body = b""
        return response

    def _answer_get(self, path: str) -> Response:
        match path:
            case "/":
                response = respond(HTTPStatus.OK, "text/html; charset=utf-8", self._page)
                response.headers["Content-Security-Policy"] = self._page_policy
                return response
            case "/health":
                return respond_json(HTTPStatus.OK, {"status": "ok", **self._state()})
            case "/ready":
                why = self._why_not_ready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
                return respond_json(status, {"ready": not why, "reason": why, **self._state()})
            case "/metrics":
                return respond(HTTPStatus.OK, METRICS_TYPE, self._metrics().encode())
        return respond_text(HTTPStatus.NOT_FOUND, "not found; the page is at /")


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


def respond_text(status: HTTPStatus, text: str) -> Response:
    """Return a line of plain text."""
    return respond(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def respond_json(status: HTTPStatus, value: Mapping[str, object]) -> Response:
    """Return a JSON object, which a page from anywhere may read: it holds nothing about anybody."""
    response = respond(status, "application/json", json.dumps(value).encode() + b"\n")
    response.headers["Access-Control-Allow-Origin"] = "*"
    return response

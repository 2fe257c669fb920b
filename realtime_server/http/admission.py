"""The door of the HTTP port: nothing but OPEN is answered to somebody who was not let in, whatever is added here.

Requests with a body and WebSockets count as sessions of their token. Behind proxies everything that is asked for counts
as a connection of who asks, what is open to all, too.
"""

from __future__ import annotations

from contextlib import ExitStack

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from realtime_server.doors.paths import asked_for
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError
from realtime_server.http.errors import explain
from realtime_server.realtime.reception import Reception

# The pages have no secrets, and bring the token; health checks come from machines that have none. /ready and /tokens
# look at the door by themselves.
OPEN = frozenset({"/", "/overlay", "/overlay.html", "/docs", "/openapi.json", "/health", "/ready", "/tokens"})
CALLS = "/twilio"  # a WebSocket that shows its token in its first messages, and looks at the door by itself


class Guard:
    """An application around another."""

    def __init__(self, app: ASGIApp, reception: Reception) -> None:
        self._app, self._reception = app, reception

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve somebody who is let in; tell others why not."""
        is_open = scope["path"] in (OPEN if scope["type"] == "http" else (CALLS,))
        visitor = visitor_of(HTTPConnection(scope))
        with ExitStack() as place:
            try:
                if stay := self._reception.receive_visitor(visitor):
                    place.enter_context(stay)
                    if stay.error:
                        raise stay.error
                if not is_open:
                    self._admit(visitor, scope, place)
            except AdmissionError as error:
                await _refuse(error, scope, receive, send)
                return
            await self._app(scope, receive, send)

    def _admit(self, visitor: Visitor, scope: Scope, place: ExitStack) -> None:
        right, session = asked_for(scope["path"])
        entrant = self._reception.admit(visitor, right, session)
        if right == "transcribe" and scope.get("method") not in ("GET", "HEAD"):
            with self._reception.noting(visitor):
                place.enter_context(self._reception.door.take_place(entrant))


def visitor_of(connection: HTTPConnection) -> Visitor:
    """Who sent a request."""
    peer = connection.client.host if connection.client else ""
    return Visitor.of(peer, connection.headers.getlist, connection.url.query)


def came_encrypted(connection: HTTPConnection, proxies: int) -> bool:
    """Whether the client used TLS, as far as we or a proxy that is believed know."""
    told = connection.headers.get("x-forwarded-proto", "") if proxies else ""
    return connection.url.scheme == "https" or told.strip().lower() == "https"


async def _refuse(error: AdmissionError, scope: Scope, receive: Receive, send: Send) -> None:
    response = explain(error).response
    if scope["type"] == "websocket":
        del response.headers["content-length"]  # uvicorn adds it, and some versions do not look
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)

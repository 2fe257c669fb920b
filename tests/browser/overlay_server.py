"""A server that shows one session to overlays, in whatever words and order a test wants."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from realtime_server.realtime.http_answers import page_policy, respond, respond_json
from realtime_server.resources import find_resource

SESSION = "abcdef"
SETTINGS = {"channels": 1, "language": None}


class OverlayServer:
    """Serves the overlay and one session, named studio; a context manager.

    status: what is answered to who asks for the session.  told: what somebody who comes is told at first.
    """

    def __init__(self, *told: dict[str, Any], status: int = 200, port: int = 0, running: bool = True) -> None:
        self.told, self.status, self.running, self._wanted_port = list(told), status, running, port
        self.asked: list[str] = []  # paths
        self.viewers: list[ServerConnection] = []
        self._came = threading.Condition()

    def __enter__(self) -> Self:
        self._server: Server = serve(
            self._view, "127.0.0.1", self._wanted_port, process_request=self._answer, compression=None
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        for viewer in self.viewers:
            viewer.close_socket()
        self._thread.join(5)

    @property
    def port(self) -> int:
        """The port that was free."""
        return int(self._server.socket.getsockname()[1])

    def url(self, parameters: str = "", fragment: str = "") -> str:
        """Address of the overlay of the session."""
        return (
            f"http://127.0.0.1:{self.port}/overlay?session=studio{parameters and '&' + parameters}{fragment}"
        )

    def wait_viewers(self, count: int) -> None:
        """Wait until so many have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.viewers) >= count, 20)

    def tell(self, *messages: dict[str, Any]) -> None:
        """Send messages to all who view."""
        for viewer in self.viewers:
            send(viewer, messages)

    def _view(self, connection: ServerConnection) -> None:
        send(connection, self.told)
        with self._came:
            self.viewers.append(connection)
            self._came.notify_all()
        try:
            connection.recv()
        except ConnectionClosed:
            self.viewers.remove(connection)

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if "websocket" in request.headers.get("Upgrade", "").lower():
            return None
        if path == "/overlay":
            page = find_resource("static/overlay.html").read_text(encoding="utf-8")
            response = respond(HTTPStatus.OK, "text/html; charset=utf-8", page.encode())
            response.headers["Content-Security-Policy"] = page_policy(page)
            return response
        if path.startswith("/sessions/"):
            self.asked.append(request.path)
            told = {"session": SESSION, "running": self.running}
            if self.status == 200:
                return respond_json(HTTPStatus.OK, told)
            return respond_json(HTTPStatus(self.status), {"error": "words of the server"})
        return respond(HTTPStatus.NOT_FOUND, "text/plain", b"")


def send(viewer: ServerConnection, messages: Any) -> None:
    """Send messages as the server does."""
    for message in messages:
        viewer.send(json.dumps(message, ensure_ascii=False))


def started(session: str = SESSION, **settings: Any) -> dict[str, Any]:
    """A session began."""
    return {"type": "started", "session": session, "seq": 0, "settings": {**SETTINGS, **settings}}


def partial(stable: str, unstable: str = "", *, segment: int = 0, channel: int = 0) -> dict[str, Any]:
    """Something is being said."""
    return {
        "type": "partial", "channel": channel, "segment": segment, "start_ms": 0, "end_ms": 900,
        "stable": stable, "unstable": unstable, "lag_ms": 80,
    }  # fmt: skip


def sentence(
    id: int, text: str, *, segment: int | None = None, channel: int = 0, **fields: Any
) -> dict[str, Any]:
    """It was locked."""
    return {
        "type": "sentence", "id": id, "channel": channel, "segment": id if segment is None else segment,
        "text": text, "start_ms": 1000 * id, "end_ms": 1000 * id + 900, "language": None, "words": None,
        "confidence": None, "speaker": None, "flags": [], **fields,
    }  # fmt: skip

"""A server that plays a scene: the page from disk over HTTP, and one script for each WebSocket that connects.

It speaks protocol 2 by hand, so a test decides every message, close code and refusal. Nothing is recognized here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from realtime_server.realtime.http_answers import page_policy
from realtime_server.resources import read_page

PAGE = Path(__file__).resolve().parents[2] / "static" / "client_mic.html"
SESSION = "0123456789abcdef"
SETTINGS: dict[str, Any] = {
    "protocol": 2, "language": None, "hotwords": [], "replacements": {}, "encoding": "pcm_s16le",
    "sample_rate": 16000, "channels": 1, "partials": True, "words": False, "speakers": False,
    "confidence": False, "events": True, "resume": False,
    "endpointing": {
        "mode": "dynamic", "silence_ms": 600, "schedule": [[None, 600]], "max_segment_ms": 20000, "eager_ms": None,
    },
}  # fmt: skip

Scene = Callable[["Peer"], None]


class Peer:
    """One connection, seen from the script: what came in, and short ways to answer."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.commands: list[str] = []
        self.audio = bytearray()
        self.frame_bytes: list[int] = []
        self.close_code: int | None = None
        self.asked: dict[str, Any] = {}  # with START
        self.speakers: list[int | None] = []  # of the sentences that were told
        self._seq = 0

    def read(self, timeout_s: float | None = 10.0) -> str | bytes:
        """Take the next message and keep it; of START the settings are kept apart."""
        message = self.connection.recv(timeout=timeout_s)
        if isinstance(message, str):
            if message.startswith("START {"):
                self.asked = json.loads(message.removeprefix("START "))
                message = "START"
            self.commands.append(message)
        else:
            self.audio += message
            self.frame_bytes.append(len(message))
        return message

    def read_until(self, command: str, timeout_s: float | None = 20.0) -> None:
        """Read on until `command` has come."""
        while self.read(timeout_s) != command:
            pass

    def read_audio(self, ms: int) -> None:
        """Read on until `ms` more of audio have come."""
        wanted = len(self.audio) + ms * 32
        while len(self.audio) < wanted:
            self.read()

    @property
    def audio_ms(self) -> int:
        """Length of what came in so far."""
        return len(self.audio) // 32

    def tell(self, type: str, **fields: Any) -> None:
        """Send a message."""
        message = {"type": type, "session": SESSION, "seq": self._seq, **fields}
        self._seq += 1
        self.connection.send(json.dumps(message, ensure_ascii=False))

    def begin(self, **settings: Any) -> None:
        """Read START, and answer with what it asks for, but for `settings`."""
        self.read_until("START")
        self.tell("started", settings={**SETTINGS, **self.asked, **settings})

    def partial(
        self, stable: str, unstable: str = "", *, start_ms: int = 0, segment: int | None = None
    ) -> None:
        """Tell what is being said, in the segment after those of the sentences unless given."""
        self.tell(
            "partial", channel=0, segment=len(self.speakers) if segment is None else segment, start_ms=start_ms,
            end_ms=max(start_ms, self.audio_ms), stable=stable, unstable=unstable, lag_ms=80,
        )  # fmt: skip

    def result(self, sentences: list[dict[str, Any]], partial: str = "", *, start_ms: int = 0) -> None:
        """Tell what is new in a transcript that accounts for all audio read so far."""
        told, self.speakers = self.speakers, [each["speaker"] for each in sentences]
        for id, sentence in enumerate(sentences[len(told) :], len(told)):
            self.tell("sentence", **{"segment": id, **sentence, "id": id})
        changes = [
            {"id": id, "from": before, "to": now}
            for id, (before, now) in enumerate(zip(told, self.speakers, strict=False))
            if before != now
        ]
        if changes:
            self.tell("speakers", changes=changes, reason="final")
        if partial:
            self.partial(partial[: len(partial) // 2], partial[len(partial) // 2 :], start_ms=start_ms)
        self.tell("progress", duration_ms=self.audio_ms, decoded_ms=self.audio_ms, lag_ms=80)

    def error(self, message: str, *, code: str = "bad_request", fatal: bool = False, **about: Any) -> None:
        """Tell that something failed."""
        fields = {"field": None, "channel": None, "segment": None, **about}
        self.tell("error", code=code, message=message, fatal=fatal, **fields)

    def fail_segment(self, message: str) -> None:
        """Tell that a segment could not be recognised."""
        self.error(message, code="segment_failed", channel=0, segment=0)

    def final(self, sentences: list[dict[str, Any]]) -> None:
        """Tell what is new, and then the whole transcript."""
        self.result(sentences)
        whole = [{"segment": id, **each, "id": id} for id, each in enumerate(sentences)]
        for each in whole:
            each.pop("words")
        self.tell("final", duration_ms=self.audio_ms, sentences=whole)

    def finish(self, sentences: list[dict[str, Any]]) -> None:
        """Answer STOP, which was read already."""
        self.final(sentences)
        totals = dict.fromkeys(("speech_ms", "segments", "partials_sent", "partials_skipped"), 0)
        lags = {"lag_p50_ms": None, "lag_p95_ms": None}
        self.tell("stopped", audio_ms=self.audio_ms, sentences=len(sentences), **totals, **lags)

    def close(self, code: int, reason: str = "") -> None:
        """Close with this code."""
        self.connection.close(code, reason)

    def drop(self) -> None:
        """Cut the TCP connection without a goodbye."""
        self.connection.close_socket()


def sentence(text: str, start: int, end: int, speaker: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return one locked sentence in the form of the wire, but for its numbers."""
    return {
        "channel": 0, "text": text, "start_ms": start, "end_ms": end, "language": None, "words": None,
        "confidence": None, "speaker": speaker, "flags": [], **fields,
    }  # fmt: skip


class ScriptedServer:
    """Serves the page and plays `scene` for each connection, in threads; a context manager."""

    def __init__(
        self,
        scene: Scene,
        *,
        health: dict[str, Any] | None = None,
        refuse: int | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.scene = scene
        self.health = {"engine": "scripted", "endpointing": "dynamic"} if health is None else health
        self.refuse = refuse
        self.host = host
        self.peers: list[Peer] = []
        self.failures: list[BaseException] = []
        self.page = read_page(PAGE)
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._server = serve(
            self._play,
            self.host,
            0,
            process_request=self._answer,
            compression=None,
            max_size=2**24,
            ping_interval=None,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server
        assert self._thread
        self._server.shutdown()
        for peer in self.peers:
            peer.connection.close_socket()
        self._thread.join(5)

    @property
    def port(self) -> int:
        """The port that was free."""
        assert self._server
        return int(self._server.socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self.host}:{self.port}/"

    def _play(self, connection: ServerConnection) -> None:
        peer = Peer(connection)
        self.peers.append(peer)
        try:
            self.scene(peer)
            while True:
                peer.read(None)
        except ConnectionClosed:
            pass
        except (TimeoutError, AssertionError) as error:
            self.failures.append(error)
        finally:
            peer.close_code = connection.protocol.close_rcvd.code if connection.protocol.close_rcvd else None

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        path = request.path.split("?")[0]
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return connection.respond(self.refuse, "refused\n") if self.refuse else None
        if path == "/":
            headers = {
                "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": page_policy(self.page),
            }
            return _response(200, self.page, headers)
        if path == "/health":
            return _response(200, json.dumps(self.health), {"Content-Type": "application/json"})
        if path == "/ready":
            ready = self.refuse is None
            return _response(
                200 if ready else self.refuse or 503,
                json.dumps({"ready": ready, "reason": None if ready else "full"}),
                {},
            )
        return _response(404, "not found\n", {})


def _response(status: int, body: str, headers: dict[str, str]) -> Response:
    data = body.encode()
    fields = {**headers, "Content-Length": str(len(data)), "Connection": "close", "Cache-Control": "no-store"}
    return Response(status, {200: "OK", 404: "Not Found"}.get(status, "Refused"), Headers(fields), data)

"""Many clients in one process, as cheap as they can be: each speaks its takes at the speed of speech.

A take is one session: START, audio, STOP right behind its last frame. Frames are packed for the socket beforehand,
messages are kept as they come and read when all is over, so that little of what is measured is the client's doing.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import WebSocketURI, parse_uri

from realtime_server.bench.accounting import Heard, read_result
from realtime_server.bench.speech import Recording, Spell
from realtime_server.core.audio import to_steps
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLES_PER_MS
from realtime_server.errors import ConfigurationError, RealtimeServerError

FRAME_MS = 100  # what clients in use send
PING_S = 2.0
PATIENCE_S = 30.0  # for an answer that must come
CLOSE_S = 5.0  # for the end of a connection
RESULT = b'"sentences"'  # is in every result and, as it is quoted, in no text


class ClientError(RealtimeServerError):
    """A client was refused, lost its connection, or got no answer."""


@dataclass(frozen=True, slots=True)
class Take:
    """Frames ready for the socket, and where speech is in them."""

    frames: Sequence[bytes]
    spells: tuple[Spell, ...]


@dataclass(slots=True)
class Log:
    """What happened to one client: a take's time 0 is when its first sample was spoken, by time.monotonic."""

    takes: list[Heard] = field(default_factory=list)
    began_s: list[float] = field(default_factory=list)  # time 0 of each take
    pings_ms: list[float] = field(default_factory=list)  # until each pong
    pings: int = 0
    messages: int = 0
    bytes: int = 0  # received
    errors: list[str] = field(default_factory=list)


def read_url(url: str) -> WebSocketURI:
    """Read ws://HOST:PORT/PATH, or wss. Raises ConfigurationError."""
    try:
        return parse_uri(url)
    except (InvalidURI, ValueError) as error:
        raise ConfigurationError(
            f"{url} is no address of a server; it should look like ws://localhost:10095"
        ) from error


def pack(samples: Samples) -> list[bytes]:
    """Samples as WebSocket frames of PCM16, 100 ms each; the last is filled up with zeros."""
    size = FRAME_MS * SAMPLES_PER_MS
    whole = np.zeros(-(-len(samples) // size) * size, np.float32)
    whole[: len(samples)] = samples
    pcm = to_steps(whole).astype("<i2").reshape(-1, size)
    return [Frame(Opcode.BINARY, row.tobytes()).serialize(mask=True) for row in pcm]


def take(recording: Recording) -> Take:
    """A take of a whole recording."""
    return Take(pack(recording.samples), recording.spells)


class Peer(asyncio.Protocol):
    """A WebSocket client on the library's protocol class, without what a client in use needs besides."""

    def __init__(self, log: Log) -> None:
        self.answers: asyncio.Queue[dict[str, str]] = asyncio.Queue()  # everything but results
        self.results: list[tuple[float, bytes]] = []  # time of receipt, message
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answered = asyncio.Event()  # no ping waits for its pong
        self.answered.set()
        self.writable = asyncio.Event()  # the socket takes what is sent
        self.writable.set()
        self._closed = asyncio.Event()
        self._log = log
        self._pings: dict[bytes, float] = {}  # when each was sent, by its payload

    def connect(self, url: WebSocketURI, token: str | None = None) -> None:
        """Send the handshake; `opened` is its outcome."""
        self._protocol = ClientProtocol(url, max_size=None)
        request = self._protocol.connect()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        self._protocol.send_request(request)
        self._flush()

    def write(self, data: bytes) -> None:
        """Send a packed frame."""
        self._transport.write(data)

    def say(self, command: str) -> None:
        """Send a text frame."""
        self._protocol.send_text(command.encode())
        self._flush()

    def ping(self) -> None:
        """Send a ping, to be answered."""
        self._log.pings += 1
        payload = str(self._log.pings).encode()
        self._pings[payload] = time.monotonic()
        self.answered.clear()
        self._protocol.send_ping(payload)
        self._flush()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is no more."""
        return self._closed.is_set()

    async def close(self) -> None:
        """Close properly, and wait until that is done."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            self._flush()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._closed.wait()
        except TimeoutError:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        now_s = time.monotonic()
        self._log.bytes += len(data)
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._open(event)
            elif isinstance(event, Frame):
                self._receive(event, now_s)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._closed.set()
        self.writable.set()
        reason = self._protocol.close_rcvd
        lost = f"closed with {reason.code} {reason.reason}" if reason else f"lost: {error}"
        self.answers.put_nowait({"event": "lost", "error": f"the connection was {lost}"})
        if not self.opened.done():
            self.opened.set_exception(ClientError("the connection was lost in the handshake"))

    def _open(self, response: Response) -> None:
        error = self._protocol.handshake_exc
        if not self.opened.done() and error:
            self.opened.set_exception(ClientError(f"refused with {response.status_code}: {error}"))
        elif not self.opened.done():
            self.opened.set_result(None)

    def _receive(self, frame: Frame, now_s: float) -> None:
        payload = bytes(frame.data)
        if frame.opcode is Opcode.PONG and payload in self._pings:
            self._log.pings_ms.append(1000 * (now_s - self._pings.pop(payload)))
            if not self._pings:
                self.answered.set()
        elif frame.opcode is Opcode.TEXT:
            self._log.messages += 1
            self.receive_text(payload, now_s)

    def receive_text(self, payload: bytes, now_s: float) -> None:
        """A message came."""
        if RESULT in payload:
            self.results.append((now_s, payload))
        else:
            self.answers.put_nowait(json.loads(payload))

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()


class Client:
    """Speaks its takes one after the other. pace: times the speed of speech; 0: as fast as the server reads.

    token: of a server that wants one.
    """

    def __init__(
        self, url: str, takes: Sequence[Take], *, delay_s: float = 0.0, pace: float = 1.0, token: str | None = None
    ) -> None:  # fmt: skip
        self.log = Log()
        self.delay_s = delay_s
        self.spoken = asyncio.Event()  # all takes, to their finals
        self._url, self._takes, self._pace, self._token = read_url(url), takes, pace, token
        self._raw: list[list[tuple[float, bytes]]] = []

    async def run(self) -> None:
        """Never raises for what the server does: it is in `log.errors`."""
        await asyncio.sleep(self.delay_s)
        loop = asyncio.get_running_loop()
        peer: Peer | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                secure = ssl.create_default_context() if self._url.secure else None
                host, port = self._url.host, self._url.port
                _, peer = await loop.create_connection(lambda: Peer(self.log), host, port, ssl=secure)
                peer.connect(self._url, self._token)
                await peer.opened
            pinging = asyncio.create_task(self._ping(peer))
            try:
                for each in self._takes:
                    await self._speak(peer, each)
                self.spoken.set()
            finally:
                pinging.cancel()
            await self._await_pongs(peer)
        except (OSError, WebSocketException, RealtimeServerError, TimeoutError) as error:
            self.log.errors.append(str(error) or type(error).__name__)
        finally:
            if peer:
                await peer.close()

    def read(self) -> None:
        """Read the messages of all takes, when the clock no longer matters."""
        for heard, began_s, raw in zip(self.log.takes, self.log.began_s, self._raw, strict=True):
            try:
                heard.results = [read_result(self._ms(at_s - began_s), message) for at_s, message in raw]
            except (ValueError, KeyError, TypeError) as error:
                self.log.errors.append(f"a result that is not protocol 1: {error!r}")

    def _ms(self, seconds: float) -> float:
        """Of the take."""
        return 1000 * seconds * (self._pace or 1)

    async def _speak(self, peer: Peer, each: Take) -> None:
        peer.say("START")
        await self._await(peer, "started")
        heard, began_s = Heard(each.spells), time.monotonic()
        peer.results = []
        self.log.takes.append(heard)
        self.log.began_s.append(began_s)
        self._raw.append(peer.results)
        for number, frame in enumerate(each.frames, start=1):
            if self._pace:
                due_s = began_s + number * FRAME_MS / 1000 / self._pace  # its last sample has been spoken
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                heard.late_ms.append(1000 * (time.monotonic() - due_s))
            else:
                await asyncio.sleep(0)  # others want to speak, too
            await peer.writable.wait()
            peer.write(frame)
        peer.say("STOP")
        heard.stop_ms = self._ms(time.monotonic() - began_s)
        await self._await(peer, "stopped")

    async def _await(self, peer: Peer, event: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await peer.answers.get()).get("event") != event:
                    self.log.errors.append(answer.get("error", f"unexpected: {answer}"))
                    if answer.get("event") == "lost":
                        raise ClientError(f"no answer '{event}'")
        except TimeoutError:
            raise ClientError(f"no answer '{event}' within {PATIENCE_S:g} s") from None

    async def _ping(self, peer: Peer) -> None:
        await asyncio.sleep(random.uniform(0, PING_S))
        while True:
            peer.ping()
            await asyncio.sleep(PING_S)

    async def _await_pongs(self, peer: Peer) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await peer.answered.wait()


async def run(clients: Sequence[Client]) -> list[Log]:
    """Let all clients speak at the same time; return what happened to each."""
    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(client.run())
    for client in clients:
        client.read()
    return [client.log for client in clients]

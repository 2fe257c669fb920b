"""A server in this process on loopback, with fake recognizer and scorer, and clients over real sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.settings import SessionSettings
from realtime_server.doors.door import Door
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.fake import FakeEngine, FakeScorer
from realtime_server.realtime.server import RealtimeServer, ServerOptions
from realtime_server.realtime.session import Clocks
from realtime_server.resources import find_resource
from tests.audio import pcm16, speech_pattern

Message = dict[str, Any]

PATIENCE_S = 20.0  # for what takes milliseconds unless it hangs
HANGS_S = 120.0  # after so long a test fails instead of waiting on
FIXED = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600))
BY_CLIENT = SessionSettings(endpointing=EndpointingOptions(mode="client"))
SENTENCE = speech_pattern([(1.0, 1.0)])  # "one two" and the pause that locks it under FIXED


class WatchedScorer(FakeScorer):
    """A FakeScorer that tells how many streams it holds."""

    @property
    def streams(self) -> int:
        return len(self._rest)


@dataclass
class Service:
    """A running server."""

    server: RealtimeServer
    port: int

    @property
    def url(self) -> str:
        return f"{'wss' if self.server.tls else 'ws'}://127.0.0.1:{self.port}/"

    @property
    def sessions(self) -> int:
        return len(self.server.hub.sessions)

    @asynccontextmanager
    async def client(self, path: str = "", **options: Any) -> AsyncIterator[Client]:
        """A connected client; `options` are those of websockets' connect."""
        connection = await connect(self.url + path, **{"compression": None, "ping_interval": None, **options})
        try:
            yield Client(connection)
        finally:
            if connection.state is not State.CLOSED:
                await connection.close()


@asynccontextmanager
async def serving(
    engine: Engine | None = None,
    scorer: Scorer | None = None,
    *,
    settings: SessionSettings = FIXED,
    options: ServerOptions | None = None,
    clocks: Clocks | None = None,
    description: Mapping[str, str] = MappingProxyType({"engine": "fake"}),
    door: Door | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Service]:
    """Serve on a free port; afterwards every session has ended and no task is left."""
    before = asyncio.all_tasks()
    options = replace(options or ServerOptions(shutdown_s=PATIENCE_S), port=0)
    server = RealtimeServer(
        engine or FakeEngine(), scorer or FakeScorer(), settings, options,
        page=find_resource("static/client_mic.html"), description=description, clocks=clocks,
        door=door, tls=tls,
    )  # fmt: skip
    port = await server.start()
    try:
        async with asyncio.timeout(HANGS_S):
            yield Service(server, port)
    finally:
        await server.stop()
        assert not server.hub.sessions
        await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left")


class Client:
    """Speaks protocol 1; every message that it read is in `messages`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.messages: list[Message] = []

    async def say(self, *frames: str | bytes) -> None:
        """Send frames back to back."""
        for frame in frames:
            await self.connection.send(frame)

    async def hear(self, samples: Samples, *, frame_s: float = 0.1, pace: float = 0.0) -> None:
        """Send audio in frames; pace: in times the speed of speech, 0 for as fast as it goes."""
        data, size = pcm16(samples), round(32_000 * frame_s)
        for start in range(0, len(data), size):
            await self.connection.send(data[start : start + size])
            if pace:
                await asyncio.sleep(frame_s / pace)

    async def receive(self, within_s: float = PATIENCE_S) -> Message:
        """The next message."""
        async with asyncio.timeout(within_s):
            frame = await self.connection.recv()
        assert isinstance(frame, str)
        message: Message = json.loads(frame)
        self.messages.append(message)
        return message

    async def until(self, wanted: Callable[[Message], object], within_s: float = PATIENCE_S) -> Message:
        """Read until a message that is wanted."""
        async with asyncio.timeout(within_s):
            while not wanted(message := await self.receive(within_s)):
                pass
        return message

    async def event(self, name: str, within_s: float = PATIENCE_S) -> Message:
        """Read until an event of this name."""
        return await self.until(lambda message: message.get("event") == name, within_s)

    async def final(self, within_s: float = PATIENCE_S) -> Message:
        """Read until the final."""
        return await self.until(lambda message: message.get("is_final"), within_s)

    async def sentences(self, count: int, within_s: float = PATIENCE_S) -> list[str]:
        """Read until so many sentences are locked; return their texts."""
        result = await self.until(lambda message: len(message.get("sentences", ())) >= count, within_s)
        return texts(result)

    async def transcribe(self, samples: Samples, *, frame_s: float = 0.1, pace: float = 0.0) -> Message:
        """START, audio, STOP; return the final, after `stopped`."""
        await self.say("START")
        await self.hear(samples, frame_s=frame_s, pace=pace)
        await self.say("STOP")
        final = await self.final()
        await self.event("stopped")
        return final

    async def closed(self, within_s: float = PATIENCE_S) -> int:
        """Read until the connection is closed; return the close code."""
        with suppress(ConnectionClosed):
            async with asyncio.timeout(within_s):
                while True:
                    await self.receive(within_s)
        assert self.connection.close_code is not None
        return self.connection.close_code

    def abort(self) -> None:
        """Vanish: the TCP connection is reset, without a close frame."""
        self.connection.transport.abort()


def texts(result: Message) -> list[str]:
    """Texts of a result's sentences."""
    return [sentence["text"] for sentence in result["sentences"]]


async def eventually(true: Callable[[], object], what: str = "", within_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    try:
        async with asyncio.timeout(within_s):
            while not true():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what or 'it'} still, after {within_s:g} s") from None

"""One WebSocket connection and its session: reading, writing, and noticing that the client is gone.

Reading never waits for recognition. Commands, each of which is answered by a message of its own, are read no
faster than the client takes the answers; results fold together while they wait.
A frame from the client is a sign of life as good as the answer to a ping: clients that send a recording first
and read afterwards do not answer pings meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from realtime_server.metrics import Metrics
from realtime_server.realtime.event_log import ReaderTooSlowError
from realtime_server.realtime.options import ServerOptions
from realtime_server.realtime.session import RealtimeASRSession

logger = logging.getLogger(__name__)

READ_AT_ONCE = 64 * 1024  # bytes of one client before others are let in: 2 s of audio
FRAME_BYTES = 256  # what a frame counts beside its content: empty ones cost time too
UNREAD = 64  # events that wait for the client; until it reads some, its commands are not read


class SessionConnection:
    """Carries one session over one connection; `run` returns when both have ended."""

    def __init__(
        self,
        connection: ServerConnection,
        session: RealtimeASRSession,
        options: ServerOptions,
        metrics: Metrics,
    ) -> None:
        self._connection, self._session = connection, session
        self._options, self._metrics = options, metrics
        self._clock = asyncio.get_running_loop().time
        self._heard_s = self._clock()
        self._closed: ConnectionClosed | None = None

    @property
    def close_code(self) -> int:
        """The code of whoever closed first; 1006 if the connection was lost."""
        closed = self._closed
        if closed is None:
            return self._connection.close_code or 1006
        close = closed.rcvd if closed.rcvd_then_sent else closed.sent or closed.rcvd
        return close.code if close else 1006

    async def run(self) -> None:
        """Serve until the connection is closed and everything heard has been decoded."""
        try:
            async with self._session, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive())
                watching = tasks.create_task(self._watch())
                await self._send()
                watching.cancel()
        except Exception:
            logger.exception("session %s: internal error", self._session.id)
            await self._close(1011, "internal error")

    async def _receive(self) -> None:
        """Feed the session until the connection is closed."""
        fed_bytes = 0  # since others were let in
        try:
            while True:
                frame = await self._connection.recv()
                self._heard_s = self._clock()
                self._session.feed(frame)
                fed_bytes += len(frame) + FRAME_BYTES
                if isinstance(frame, str):
                    await self._session.wait_read(UNREAD)
                # Frames that came together are read without a pause: one per turn of a busy loop would leave audio,
                # and the pings behind it, to pile up unread. But others must get their turn.
                if fed_bytes >= READ_AT_ONCE:
                    await asyncio.sleep(0)
                    fed_bytes = 0
        except ConnectionClosed as closed:
            self._closed = closed
        self._session.end()

    async def _send(self) -> None:
        """Send until the session has ended, then close; a client that is gone or does not read gets no more."""
        try:
            async with aclosing(self._session.messages()) as messages:
                async for message in messages:
                    if not self._is_open:
                        break
                    data = message.encode()
                    async with asyncio.timeout(self._options.send_timeout_s):
                        await self._connection.send(data, text=True)
                    self._metrics.count_message(len(data))
        except ConnectionClosed:
            pass
        except (TimeoutError, ReaderTooSlowError):
            self._drop("the client does not read its messages")
        closing = self._session.closing
        await self._close(*((closing.close_code, closing.reason) if closing else (1012, "the server stops")))
        await self._session.wait_ended()

    async def _watch(self) -> None:
        """Drop a client that gives no sign of life: neither a frame nor an answer to a ping."""
        options = self._options
        pong: asyncio.Future[float] | None = None
        with suppress(ConnectionClosed):
            while self._is_open:
                if pong is None or pong.done():
                    self._heard_s = self._clock()
                    # Behind what the client does not take, a ping would wait, and this loop with it.
                    if not self._connection.transport.get_write_buffer_size():
                        pong = asyncio.ensure_future(await self._connection.ping())
                await asyncio.sleep(options.ping_s)
                if self._clock() - self._heard_s > options.ping_timeout_s and not (pong and pong.done()):
                    self._drop("the client is gone")
        # Closed, but the TCP connection lives on as long as there are messages that the client does not take.
        try:
            async with asyncio.timeout(options.close_s):
                await self._connection.wait_closed()
        except TimeoutError:
            self._drop("the client hung up without reading its messages")

    async def _close(self, code: int, reason: str) -> None:
        """Close the connection, or see to it that one which is closing does."""
        try:
            async with asyncio.timeout(self._options.close_s):
                if self._is_open:
                    await self._connection.close(code, reason)
                await self._connection.wait_closed()
        except TimeoutError:
            self._drop("the client does not answer the close")

    @property
    def _is_open(self) -> bool:
        """Whether anything may be sent; the library's send, ping and close fail badly when it may not."""
        return self._connection.state is State.OPEN and not self._connection.transport.is_closing()

    def _drop(self, why: str) -> None:
        """End the connection without a close frame, which would wait behind what the client does not read."""
        logger.info("session %s: %s", self._session.id, why)
        with suppress(AttributeError):  # asyncio's transports raise it if they have closed by themselves
            self._connection.transport.abort()

"""One WebSocket connection and its session: reading, writing, and noticing that the client is gone.

Reading never waits for recognition, and a client that does not read cannot hold up more than its own messages.
A frame from the client is a sign of life as good as the answer to a ping: clients that send a recording first
and read afterwards do not answer pings meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from realtime_server.realtime.hub import ReaderTooSlowError
from realtime_server.realtime.options import ServerOptions
from realtime_server.realtime.session import RealtimeASRSession

logger = logging.getLogger(__name__)

REASON_BYTES = 120  # of the reason in a close frame, which holds 123


class SessionConnection:
    """Carries one session over one connection; `run` returns when both have ended."""

    def __init__(
        self, connection: ServerConnection, session: RealtimeASRSession, options: ServerOptions
    ) -> None:
        self._connection, self._session, self._options = connection, session, options
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
        try:
            while True:
                frame = await self._connection.recv()
                self._heard_s = self._clock()
                self._session.feed(frame)
                await asyncio.sleep(0)  # frames that came together are read one by one: let others in between
        except ConnectionClosed as closed:
            self._closed = closed
        self._session.end()

    async def _send(self) -> None:
        """Send until the session has ended, then close; a client that is gone or does not read gets no more."""
        try:
            async with aclosing(self._session.messages()) as messages:
                async for message in messages:
                    async with asyncio.timeout(self._options.send_timeout_s):
                        await self._connection.send(message)
        except ConnectionClosed:
            pass
        except (TimeoutError, ReaderTooSlowError):
            self._drop("the client does not read its messages")
        else:
            closing = self._session.closing
            code, reason = (closing.close_code, closing.reason) if closing else (1012, "the server stops")
            await self._close(code, reason)
        await self._session.wait_ended()

    async def _watch(self) -> None:
        """Drop a client that gives no sign of life: neither a frame nor an answer to a ping."""
        pong: asyncio.Future[float] | None = None
        try:
            while True:
                if pong is None or pong.done():
                    self._heard_s = self._clock()
                    pong = asyncio.ensure_future(await self._connection.ping())
                await asyncio.sleep(self._options.ping_s)
                if self._clock() - self._heard_s > self._options.ping_timeout_s and not pong.done():
                    self._drop("the client is gone")
        except ConnectionClosed:
            pass

    async def _close(self, code: int, reason: str) -> None:
        short = reason.encode()[:REASON_BYTES].decode(errors="ignore")
        try:
            async with asyncio.timeout(self._options.close_s):
                await self._connection.close(code, short)
        except TimeoutError:
            self._drop("the client does not answer the close")

    def _drop(self, why: str) -> None:
        """End the connection without a close frame, which would wait behind what the client does not read."""
        logger.info("session %s: %s", self._session.id, why)
        self._connection.transport.abort()

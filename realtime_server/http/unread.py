"""Requests that are answered before their body has come: what a client still sends is read, up to a limit, and dropped.

Most clients send the whole body before they look at the answer; were the connection closed at once, they would see a
reset in place of it. Who sends more than the limit, or hardly anything, is cut off. The connection is closed in any
case, and the client is told so.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from realtime_server.http.service import FileService

CLOSE = (b"connection", b"close")


@dataclass(frozen=True, slots=True)
class UnreadLimits:
    """How much of a body is dropped after the answer."""

    dropped_bytes: int = 256 << 20
    within_s: float = 30.0
    silent_s: float = 2.0  # without a byte
    ending_s: float = 0.5  # in place of within_s, once the server stops


class DropsUnread:
    """An application around another."""

    def __init__(self, app: ASGIApp, service: FileService, limits: UnreadLimits | None = None) -> None:
        self._app, self._service, self._limits = app, service, limits or UnreadLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        body = _Body(receive)

        async def closing(message: Message) -> None:
            if body.read:
                await send(message)
            elif message["type"] == "http.response.start":
                await send({**message, "headers": [*message.get("headers", ()), CLOSE]})
            elif message.get("more_body", False):
                await send(message)
            else:  # with its last message the connection is closed
                await send({**message, "more_body": True})
                await self._drop(body)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(scope, body, closing)

    async def _drop(self, body: _Body) -> None:
        """Read on; end early when the server stops."""
        service, limits = self._service, self._limits
        try:
            if service.draining:
                await body.drop(limits, limits.ending_s)
                return
            with service.idle():
                await body.drop(limits, limits.within_s)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not service.draining or task is None:
                raise
            task.uncancel()


class _Body:
    """Receives a body, and knows whether all of it has come.  read: it has, or nobody sends any more."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.read = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.read = self.read or message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def drop(self, limits: UnreadLimits, within_s: float) -> None:
        """Read to the end or a limit."""
        left = limits.dropped_bytes
        try:
            async with asyncio.timeout(within_s):
                while left > 0 and not self.read:
                    async with asyncio.timeout(limits.silent_s):
                        left -= len((await self()).get("body", b""))
        except TimeoutError:
            return


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"

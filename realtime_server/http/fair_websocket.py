"""uvicorn's WebSocket protocol, for clients that may do anything; see realtime/fair_connection.py."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from realtime_server.http.fair_h11 import FairH11
from realtime_server.realtime.fair_connection import BoundsPongs, cut_reason

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class FairWebSocket(BoundsPongs, WebSocketsSansIOProtocol):
    """A connection of the HTTP port; it begins as one of FairH11, whose place it takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        before = transport.get_protocol()
        assert isinstance(before, FairH11)
        # Should this one fail at the request, the other is still in its place, and releases it.
        self._stay = before.stay
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stay.release()
        super().connection_lost(exc)

    async def send(self, message: ASGISendEvent) -> None:
        """Send what the application says."""
        if message["type"] == "websocket.close":
            message = {**message, "reason": cut_reason(message.get("reason") or "")}
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # uvicorn does not note that a refusal ends the handshake, and would log an error for each.
            self.handshake_complete = True

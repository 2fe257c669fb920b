"""uvicorn's WebSocket protocol, for clients that may do anything; see realtime/fair_connection.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from realtime_server.realtime.fair_connection import BoundsPongs, cut_reason

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class FairWebSocket(BoundsPongs, WebSocketsSansIOProtocol):
    """A connection of the HTTP port."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send what the application says."""
        if message["type"] == "websocket.close":
            message = {**message, "reason": cut_reason(message.get("reason") or "")}
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # uvicorn does not note that a refusal ends the handshake, and would log an error for each.
            self.handshake_complete = True

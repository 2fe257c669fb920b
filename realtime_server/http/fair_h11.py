"""uvicorn's HTTP protocol, with turns: a body in tiny chunks does not hold up everybody else.

h11 makes an event of each chunk, some 30 µs; one read from a socket may bring forty thousand of them. So what is read
is given to it in pieces, and the event loop serves others between two of them. A body with a length is one event a
read, and passes as it is.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

PIECE = 4096  # bytes


class FairH11(H11Protocol):
    """An HTTP connection; reads no more while it has pieces left."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.flow = self._pausing = _Flow(transport)
        self._pieces = bytearray()

    def data_received(self, data: bytes) -> None:
        """Take what was read, at once or in turns."""
        if not self._pieces and (len(data) <= PIECE or self._has_length()):
            super().data_received(data)
            return
        begins = not self._pieces
        self._pieces += data
        if begins:
            self._pausing.hold()
            self._take_piece()

    def _take_piece(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            self._pieces.clear()
        else:
            piece = bytes(self._pieces[:PIECE])
            del self._pieces[:PIECE]
            super().data_received(piece)
        if self._pieces:
            self.loop.call_soon(self._take_piece)
        else:
            self._pausing.let_go()

    def _has_length(self) -> bool:
        """Whether the rest of a body comes whose length was told."""
        in_body = self.conn.their_state is h11.SEND_BODY
        return in_body and all(name != b"transfer-encoding" for name, _ in self.headers)


class _Flow(FlowControl):
    """Reading goes on only when both the application and the connection want it."""

    _held = False

    def hold(self) -> None:
        self._held = True
        self._transport.pause_reading()

    def let_go(self) -> None:
        self._held = False
        if not self.read_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self._held:
            self.read_paused = False
        else:
            super().resume_reading()

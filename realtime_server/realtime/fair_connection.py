"""A WebSocket connection of the live port, for clients that may do anything; the mixin serves those of other ports.

- A ping is answered at once, whether or not the client takes the answers. What it owes so is bounded, and it is cut off
  beyond that. Its messages are read on meanwhile, so reading cannot simply wait until everything is written: clients
  that send a whole recording first, and read afterwards, would wait for ever.
- It counts from its beginning to its end; where its sender has too many, it has little time to ask, and is told so.
- Who sends a recording to this port is told that it is the wrong one; the library would hang up without a word.
- A close has room for a reason of 123 bytes. Reasons quote clients, so they are cut here, where they are sent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from websockets.asyncio.server import Server, ServerConnection
from websockets.server import ServerProtocol

from realtime_server.doors.crowds import TELLING_S, Stay
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError
from realtime_server.realtime.http_answers import refuse_method
from realtime_server.realtime.reception import Reception

logger = logging.getLogger(__name__)

MOST_UNTAKEN = 1 << 20  # bytes of answers to pings; those of a minute of one ping a second are under 8 kB
WITH_BODY = (b"POST ", b"PUT ", b"PATCH ", b"DELETE ")  # requests as they begin
REASON_BYTES = 123  # RFC 6455, 5.5: a control frame has 125, of which the code takes two


class BoundsPongs(asyncio.Protocol):
    """Mixin, before a protocol that writes in `data_received` nothing but answers to pings."""

    transport: asyncio.Transport
    _untaken = 0  # bytes, at most: of the answers, those that the client has not taken

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        before = self.transport.get_write_buffer_size()
        super().data_received(data)
        grown = self.transport.get_write_buffer_size() - before
        self._untaken = min(self._untaken, before) + max(0, grown)
        if self._untaken > MOST_UNTAKEN and not self.transport.is_closing():
            logger.info("a client pings and does not read the answers: it is cut off")
            self.transport.abort()


class FairConnection(BoundsPongs, ServerConnection):
    """A connection of the live port."""

    def __init__(
        self, protocol: ServerProtocol, server: Server, *, reception: Reception, **options: Any
    ) -> None:  # the rest is the library's, and differs from version to version
        super().__init__(protocol, server, **options)
        self._reception, self._stay = reception, Stay()
        self._ending: asyncio.TimerHandle | None = None
        self._begun = self._refused = self._lost = False

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        if not self._begun and not self._stay.error and data.startswith(WITH_BODY):
            self._refused = True
            self.transport.write(refuse_method(data.partition(b" ")[0].decode()).serialize())
            self._end_soon()  # not at once: what is unread then would take the answer with it
        self._begun = True
        if not self._refused:
            super().data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        self._stay = self._reception.receive_connection(transport)
        if self._stay.cut:
            self.transport.abort()
        elif self._stay.error:
            self._end_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._lost = True
        self._stay.release()
        if self._ending:
            self._ending.cancel()
        super().connection_lost(exc)

    def _end_soon(self) -> None:
        self._ending = asyncio.get_running_loop().call_later(TELLING_S, self.transport.abort)

    def check_crowd(self, visitor: Visitor) -> AdmissionError | None:
        """What to say if this is one too many of that visitor, who sent the request; else None."""
        self._stay = self._reception.receive_visitor(visitor) or self._stay
        if self._lost:  # what it asked is answered all the same
            self._stay.release()
        return self._stay.error

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close, and say why as far as there is room."""
        await super().close(code, cut_reason(reason))


def cut_reason(reason: str) -> str:
    """As much of it as a close takes."""
    return reason.encode()[:REASON_BYTES].decode(errors="ignore")

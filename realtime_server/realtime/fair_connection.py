"""A WebSocket connection of the live port, for clients that may do anything; the mixin serves those of other ports.

- A ping is answered at once, whether or not the client takes the answers. What it owes so is bounded, and it is cut off
  beyond that. Its messages are read on meanwhile, so reading cannot simply wait until everything is written: clients
  that send a whole recording first, and read afterwards, would wait for ever.
- A close has room for a reason of 123 bytes. Reasons quote clients, so they are cut here, where they are sent.
"""

from __future__ import annotations

import asyncio
import logging

from websockets.asyncio.server import ServerConnection

logger = logging.getLogger(__name__)

MOST_UNTAKEN = 1 << 20  # bytes of answers to pings; those of a minute of one ping a second are under 8 kB
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

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close, and say why as far as there is room."""
        await super().close(code, cut_reason(reason))


def cut_reason(reason: str) -> str:
    """As much of it as a close takes."""
    return reason.encode()[:REASON_BYTES].decode(errors="ignore")

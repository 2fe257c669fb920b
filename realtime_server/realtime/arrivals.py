"""Connections as they begin: whether their sender has too many open, on all ports together."""

from __future__ import annotations

import asyncio

from realtime_server.doors.crowds import Stay
from realtime_server.doors.door import Door
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError
from realtime_server.metrics import Metrics


class Arrivals:
    """Counts connections at the door, and those that are too many in the metrics and the log."""

    def __init__(self, door: Door, metrics: Metrics) -> None:
        self._door, self._metrics = door, metrics

    def receive_connection(self, transport: asyncio.BaseTransport) -> Stay:
        """One was accepted: whose it is, its address says, unless proxies stand between."""
        # None, or of another kind, where it is not of the internet.
        peer = transport.get_extra_info("peername")
        visitor = Visitor(str(peer[0]) if isinstance(peer, tuple) else "")
        stay = self._door.arrive_by_address(visitor)
        self._note(visitor, stay.error)
        return stay

    def receive_visitor(self, visitor: Visitor) -> Stay | None:
        """The head of its request was read, in which proxies say whose it is; None without proxies."""
        stay = self._door.arrive_by_headers(visitor)
        self._note(visitor, stay.error if stay else None)
        return stay

    def _note(self, visitor: Visitor, error: AdmissionError | None) -> None:
        if error:
            self._metrics.count_refused(error.reason)
            self._door.tell_refused(visitor, error)

"""The door as all ports have it: who is turned away is counted and told here, on whatever port he came."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from realtime_server.doors.crowds import Stay
from realtime_server.doors.door import Door, Pass
from realtime_server.doors.tokens import Right
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError
from realtime_server.metrics import Metrics


class Reception:
    """The door of all ports, with those who are refused in the metrics and the log; one for the whole server."""

    def __init__(self, door: Door, metrics: Metrics) -> None:
        self.door, self._metrics = door, metrics

    def receive_connection(self, transport: asyncio.BaseTransport) -> Stay:
        """One was accepted: whose it is, its address says, unless proxies stand between."""
        # None, or of another kind, where it is not of the internet.
        peer = transport.get_extra_info("peername")
        visitor = Visitor(str(peer[0]) if isinstance(peer, tuple) else "")
        stay = self.door.arrive_by_address(visitor)
        if stay.error:
            self.note_refused(visitor, stay.error)
        return stay

    def receive_visitor(self, visitor: Visitor) -> Stay | None:
        """The head of its request was read, in which proxies say whose it is; None without proxies."""
        stay = self.door.arrive_by_headers(visitor)
        if stay and stay.error:
            self.note_refused(visitor, stay.error)
        return stay

    def note_refused(self, visitor: Visitor, error: AdmissionError) -> None:
        """Count and log that somebody is not let in."""
        self._metrics.count_refused(error.reason)
        self.door.tell_refused(visitor, error)

    @contextmanager
    def noting(self, visitor: Visitor) -> Iterator[None]:
        """Count and log an AdmissionError that leaves the block."""
        try:
            yield
        except AdmissionError as error:
            self.note_refused(visitor, error)
            raise

    def admit(self, visitor: Visitor, right: Right, session: str | None = None) -> Pass:
        """Let somebody in. Raises AdmissionError."""
        with self.noting(visitor):
            return self.door.admit(visitor, right, session)

    def try_place(self, visitor: Visitor) -> None:
        """Raise AdmissionError if that visitor could not begin a session now."""
        with self.noting(visitor):
            self.door.take_place(self.door.admit(visitor, "transcribe", visitor.session)).release()

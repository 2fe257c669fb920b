"""The events of a session, kept for its readers.

They are numbered by `seq`. The connection is one reader; viewers and a resumed connection are others. A reader that
falls so far behind that its next event is gone has lost text, so it is told rather than given a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from realtime_server.core.messages import Event
from realtime_server.errors import RealtimeServerError

KEPT_EVENTS = 4096  # about an hour of partials and sentences of one speaker


class ReaderTooSlowError(RealtimeServerError):
    """Events that a reader has not read yet had to be dropped."""


class EventLog:
    """The last events of a session, in order; `seq` numbers them from 0."""

    def __init__(self, keep: int = KEPT_EVENTS) -> None:
        self._tail: deque[Event] = deque(maxlen=keep)
        self._readers: set[EventReader] = set()
        self.next_seq = 0
        self.closed = False

    def append(self, events: Iterable[Event]) -> None:
        """Add events and wake the readers."""
        before = self.next_seq
        for event in events:
            self._tail.append(event)
            self.next_seq += 1
        if self.next_seq != before:
            self._wake()

    def close(self) -> None:
        """No event will follow; readers end once they have read everything."""
        self.closed = True
        self._wake()

    def add_reader(self, *, latest: bool = False) -> EventReader:
        """A reader that starts at the oldest event kept, or behind the latest; `close` it when it reads no more."""
        reader = EventReader(self, self.next_seq - (0 if latest else len(self._tail)))
        self._readers.add(reader)
        return reader

    def remove_reader(self, reader: EventReader) -> None:
        """Forget a reader; called by its `close`."""
        self._readers.discard(reader)

    def read(self, seq: int, most: int = KEPT_EVENTS) -> list[Event]:
        """Events from number `seq` on, at most so many. Raises ReaderTooSlowError if that one is gone."""
        missing = self.next_seq - seq
        if missing > len(self._tail):
            raise ReaderTooSlowError(f"{missing - len(self._tail)} events were dropped unread; read faster")
        first = len(self._tail) - missing
        return [self._tail[index] for index in range(first, min(first + most, len(self._tail)))]

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()


class EventReader:
    """One reader's place in an EventLog."""

    def __init__(self, log: EventLog, seq: int) -> None:
        self._log, self._seq = log, seq
        self._news, self._taken = asyncio.Event(), asyncio.Event()
        self._closed = False

    async def take(self, most: int = KEPT_EVENTS) -> list[Event]:
        """Wait for events and return those that are new, at most so many; [] once the log is closed and all read."""
        while self._seq == self._log.next_seq and not self._log.closed:
            self._news.clear()
            await self._news.wait()
        events = self._log.read(self._seq, most)
        self._seq += len(events)
        self._taken.set()
        return events

    @property
    def behind(self) -> int:
        """How many events are new."""
        return self._log.next_seq - self._seq

    async def wait_behind(self, at_most: int) -> None:
        """Wait until at most so many events are new, or nobody will read them."""
        while self.behind > at_most and not self._closed and not self._log.closed:
            self._taken.clear()
            await self._taken.wait()

    def wake(self) -> None:
        """The log has changed."""
        self._news.set()
        if self._log.closed:
            self._taken.set()

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        self._taken.set()
        self._log.remove_reader(self)

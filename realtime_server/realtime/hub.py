"""The sessions of the server, and whether another may come."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from realtime_server.core.counts import SessionCounts
from realtime_server.realtime.archive import Archive, Kept
from realtime_server.realtime.patience import happens

if TYPE_CHECKING:
    from realtime_server.realtime.session import RealtimeASRSession

logger = logging.getLogger(__name__)


class Hub:
    """The sessions of this server, and whether another may come."""

    def __init__(self, max_sessions: int, keep_transcripts_s: float = 0.0) -> None:
        self.max_sessions = max_sessions
        self.archive = Archive(keep_transcripts_s, time.monotonic, _call_later)
        self.draining = False
        self.sessions: dict[str, RealtimeASRSession] = {}
        self._ended = SessionCounts()  # of sessions that are no more
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def counts(self) -> SessionCounts:
        """What happened in all sessions so far."""
        total = SessionCounts()
        for counts in (self._ended, *(session.counts for session in self.sessions.values())):
            total.add(counts)
        return total

    @contextmanager
    def holding(self, session: RealtimeASRSession, name: str | None = None) -> Iterator[None]:
        """Count a session while it lives; one that comes while the hub drains ends at once."""
        self.sessions[session.id] = session
        self.archive.add(Kept(session.id, name, session.record, session.log))
        self._empty.clear()
        if self.draining:
            session.end()
        try:
            yield
        finally:
            del self.sessions[session.id]
            self.archive.end(session.id)
            self._ended.add(session.counts)
            if not self.sessions:
                self._empty.set()

    async def drain(self, within_s: float, grace_s: float) -> None:
        """Refuse new sessions, end those that run, wait until each has sent its final.

        After `within_s` those that remain are told what is known, for which they have `grace_s`.
        """
        self.draining = True
        for session in list(self.sessions.values()):
            session.end()
        if await happens(self._empty, within_s):
            return
        logger.warning("%d sessions had not finished after %g s", len(self.sessions), within_s)
        for session in list(self.sessions.values()):
            session.give_up("the server stops and cannot wait longer")
        if not await happens(self._empty, grace_s):
            logger.warning("%d connections did not close", len(self.sessions))


def _call_later(wait_s: float, do: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(wait_s, do)

"""Transcripts by name: those of running sessions, and for a while those of sessions that have ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from realtime_server.core.record import Record
from realtime_server.realtime.event_log import EventLog

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_ENDED = 256  # records of ended sessions
MOST_SENTENCES = 100_000  # of them together


@dataclass(frozen=True, slots=True)
class Kept:
    """A session's record and event log; name: what its client called it.  ended_s: on the clock, None while it runs."""

    id: str
    name: str | None
    record: Record
    log: EventLog
    ended_s: float | None = None


class Archive:
    """Finds sessions by id, or by the name that their client gave, which the newest with that name has."""

    def __init__(self, keep_s: float, clock: Callable[[], float]) -> None:
        self._keep_s, self._clock = keep_s, clock
        self._kept: dict[str, Kept] = {}  # by id, the longest ended first
        self._named: dict[str, str] = {}  # ids

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept) -> None:
        """A session began."""
        self._kept[kept.id] = kept
        if kept.name:
            self._named[kept.name] = kept.id

    def end(self, id: str) -> None:
        """A session ended; its transcript is kept for a while, if it has one."""
        kept = self._kept.pop(id)
        self._kept[id] = Kept(kept.id, kept.name, kept.record, kept.log, self._clock())
        if not kept.record.sentences or not self._keep_s:
            self._remove(id)
        self._forget_old()

    def find(self, name: str) -> Kept | None:
        """The session with this id or name; None if there is none any more."""
        self._forget_old()
        return self._kept.get(self._named.get(name, name))

    def _forget_old(self) -> None:
        ended = [kept for kept in self._kept.values() if kept.ended_s is not None]
        sentences = sum(len(kept.record.sentences) for kept in ended)
        count, now_s = len(ended), self._clock()
        for kept in ended:
            assert kept.ended_s is not None
            if kept.ended_s + self._keep_s > now_s and count <= MOST_ENDED and sentences <= MOST_SENTENCES:
                return
            count, sentences = count - 1, sentences - len(kept.record.sentences)
            self._remove(kept.id)

    def _remove(self, id: str) -> None:
        kept = self._kept.pop(id)
        if kept.name and self._named.get(kept.name) == id:
            del self._named[kept.name]

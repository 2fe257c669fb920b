"""Transcripts by name: those of running sessions, and for a while those of sessions that have ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from realtime_server.core.record import Record
from realtime_server.realtime.event_log import EventLog

MOST_ENDED = 256  # records of ended sessions
MOST_SENTENCES = 100_000  # of them together
MOST_CHARACTERS = (
    20_000_000  # of their texts together; words and times take several times as much, in proportion
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A session's record and event log; name: what its client called it.  ended_s: on the clock, None while it runs."""

    id: str
    name: str | None
    record: Record
    log: EventLog
    ended_s: float | None = None


class Archive:
    """Finds sessions by id, or by the name that their client gave.

    Of several of a name the newest that runs has it, or else the newest; nobody takes another's id by it.
    call_later: has something done after so many seconds; None: what is old is forgotten when somebody asks.
    """

    def __init__(
        self, keep_s: float, clock: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:  # fmt: skip
        self._keep_s, self._clock, self._call_later = keep_s, clock, call_later
        self._running: dict[str, Kept] = {}  # by id
        self._ended: dict[str, Kept] = {}  # by id, the longest ended first
        self._named: dict[str, list[str]] = {}  # ids of a name, the newest last
        self._sentences = self._characters = 0  # of those that have ended
        self._awaited = False  # whether what is old will be looked for

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    def add(self, kept: Kept) -> None:
        """A session began."""
        self._running[kept.id] = kept
        if kept.name:
            self._named.setdefault(kept.name, []).append(kept.id)

    def end(self, id: str) -> None:
        """A session ended; its transcript is kept for a while, if it has one."""
        kept = self._running.pop(id)
        if not kept.record.sentences or not self._keep_s:
            self._forget_name(kept)
            return
        self._ended[id] = Kept(kept.id, kept.name, kept.record, kept.log, self._clock())
        self._count(kept.record, 1)
        self._forget_old()
        self._await_old()

    def find(self, name: str) -> Kept | None:
        """The session with this id or name; None if there is none any more."""
        self._forget_old()
        if found := self._running.get(name) or self._ended.get(name):
            return found
        ids = self._named.get(name)
        if not ids:
            return None
        running = [self._running[id] for id in ids if id in self._running]
        return running[-1] if running else self._ended[ids[-1]]

    def _forget_old(self) -> None:
        while self._ended:
            kept = next(iter(self._ended.values()))
            short = self._sentences <= MOST_SENTENCES and self._characters <= MOST_CHARACTERS
            if len(self._ended) <= MOST_ENDED and short and self._left_s(kept) > 0:
                return
            del self._ended[kept.id]
            self._count(kept.record, -1)
            self._forget_name(kept)

    def _count(self, record: Record, sign: int) -> None:
        self._sentences += sign * len(record.sentences)
        self._characters += sign * sum(len(sentence.text) for sentence in record.sentences)

    def _await_old(self) -> None:
        """Look for what is old when the longest ended will be, whether or not anybody asks."""
        if self._call_later and self._ended and not self._awaited:
            self._awaited = True
            self._call_later(max(0.0, self._left_s(next(iter(self._ended.values())))), self._look)

    def _look(self) -> None:
        self._awaited = False
        self._forget_old()
        self._await_old()

    def _left_s(self, kept: Kept) -> float:
        assert kept.ended_s is not None
        return kept.ended_s + self._keep_s - self._clock()

    def _forget_name(self, kept: Kept) -> None:
        if kept.name:
            ids = self._named[kept.name]
            ids.remove(kept.id)
            if not ids:
                del self._named[kept.name]

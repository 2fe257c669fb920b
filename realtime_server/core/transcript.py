"""The order in which segments are locked, and the sentences they become; the wire keeps what was told.

Finals may come back in any order; segments are locked in the order they ended within their channel, and a late
one holds those behind it. Sentence ids are given in lock order over all channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from realtime_server.core.segments import Flag, Segment, Sentence, Word
from realtime_server.core.turns import Piece


@dataclass(frozen=True, slots=True)
class Settled:
    """What a segment's final decode came to: "" and no flags if it held no words."""

    text: str
    words: tuple[Word, ...] = ()  # relative to the segment
    language: str | None = None
    confidence: float | None = None
    flags: tuple[Flag, ...] = ()
    error: str | None = None  # why it failed, in words for the client
    eager: bool = False  # it was decoded in the pause that became its end
    noticed: int = 0  # samples judged when the segment's end was noticed


@dataclass(frozen=True, slots=True)
class Lock:
    """A segment that is locked now, with its sentences."""

    segment: Segment
    sentences: tuple[Sentence, ...]
    settled: Settled


@dataclass(slots=True)
class _Queue:
    """One channel's segments that ended but are not locked."""

    segments: list[Segment] = field(default_factory=list)
    settled: dict[int, tuple[Settled, tuple[Piece, ...]]] = field(default_factory=dict)


class Transcript:
    """Orders settled segments into locked sentences."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self.count = 0  # sentences locked so far
        self.characters = 0  # of all texts so far, also of those that wait for others to be locked

    def receive_segment(self, segment: Segment) -> None:
        """A segment ended; its text will follow."""
        self._queues.setdefault(segment.channel, _Queue()).segments.append(segment)

    def receive_settled(self, segment: Segment, settled: Settled, pieces: Iterable[Piece]) -> list[Lock]:
        """A segment's text is known, as `pieces`; return every segment that can be locked now, in order."""
        queue = self._queues[segment.channel]
        queue.settled[segment.index] = settled, tuple(pieces)
        self.characters += sum(len(piece.text) for piece in queue.settled[segment.index][1])
        locks = []
        while queue.segments and queue.segments[0].index in queue.settled:
            first = queue.segments.pop(0)
            text, parts = queue.settled.pop(first.index)
            locks.append(Lock(first, self._sentences(first, text, parts), text))
        return locks

    def _sentences(
        self, segment: Segment, settled: Settled, pieces: tuple[Piece, ...]
    ) -> tuple[Sentence, ...]:
        if not settled.text and not settled.flags:
            return ()
        sentences = tuple(
            Sentence(
                id=self.count + n,
                segment=segment.index,
                channel=segment.channel,
                text=piece.text,
                start_ms=piece.start_ms,
                end_ms=piece.end_ms,
                words=piece.words,
                language=settled.language,
                confidence=settled.confidence,
                speaker=piece.speaker,
                flags=settled.flags,
            )
            for n, piece in enumerate(pieces)
        )
        self.count += len(sentences)
        return sentences

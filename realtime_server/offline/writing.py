"""Settled segments of a recording, in order, to sentences and to its transcription."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from realtime_server.core.postprocess import replace as replace_texts
from realtime_server.core.segments import SAMPLE_RATE, Segment, Sentence, to_ms
from realtime_server.core.transcript import Settled, Transcript
from realtime_server.core.turns import Turn, split_text
from realtime_server.offline.decoding import Wish
from realtime_server.offline.speakers import Speakers
from realtime_server.offline.transcription import Transcription

AT_A_TIME = 8  # segments split by their speakers, a few ms, before others get their turn


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom to tell while a recording is worked on.

    on_sentences: called with sentences in order, as soon as they are final.  on_progress: called with the seconds from
    the beginning whose text is known.
    """

    on_sentences: Callable[[tuple[Sentence, ...]], None] | None = None
    on_progress: Callable[[float], None] | None = None

    def tell(self, sentences: tuple[Sentence, ...]) -> None:
        """Some sentences are final."""
        if sentences and self.on_sentences:
            self.on_sentences(sentences)

    def tell_progress(self, samples: int) -> None:
        """The text of so many samples is known."""
        if self.on_progress:
            self.on_progress(samples / SAMPLE_RATE)


class SentenceWriter:
    """One recording's sentences; where speakers are told apart, nothing is final before the end."""

    def __init__(
        self, replacements: Mapping[str, str], speakers: Speakers | None, listeners: Listeners
    ) -> None:
        self._replacements, self._speakers, self._listeners = replacements, speakers, listeners
        self._transcript = Transcript()
        self._waiting: list[tuple[Segment, Settled]] = []  # for their speakers
        self._sentences: list[Sentence] = []
        self._languages: Counter[str] = Counter()  # of segments with text
        self._numbers: dict[int, int] = {}  # speakers as they are told, by those of the voices

    def receive_settled(self, segment: Segment, settled: Settled) -> None:
        """The next segment's text is known."""
        if settled.text and settled.language:
            self._languages[settled.language] += 1
        if self._speakers:
            self._waiting.append((segment, settled))
        else:
            self._tell(self._write(segment, settled, _whole(segment)))
        self._listeners.tell_progress(segment.end)

    async def conclude(self, wish: Wish) -> Transcription:
        """Every segment was received: find out who speaks, if that is wanted; return everything."""
        notes = list(wish.notes)
        if self._speakers:
            await self._speakers.conclude()
            self._tell(await self._write_waiting(self._speakers))
            notes += filter(None, [self._speakers.problem])
        self._listeners.tell_progress(len(wish.audio))
        common = self._languages.most_common(1)
        return Transcription(
            tuple(self._sentences),
            to_ms(len(wish.audio)),
            language=wish.options.language or (common[0][0] if common else None),
            task=wish.options.task,
            notes=tuple(notes),
        )

    async def _write_waiting(self, speakers: Speakers) -> list[Sentence]:
        sentences: list[Sentence] = []
        for number, (segment, settled) in enumerate(self._waiting, 1):
            sentences += self._write(segment, settled, speakers.turns(segment))
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        return sentences

    def _write(self, segment: Segment, settled: Settled, turns: tuple[Turn, ...]) -> tuple[Sentence, ...]:
        pieces = [
            # Only now: what stands for other words has no places in the text that was decoded.
            replace(
                piece, text=replace_texts(piece.text, self._replacements), speaker=self._number(piece.speaker)
            )
            for piece in split_text(settled.text, settled.words, turns if settled.text else _whole(segment))
        ]
        self._transcript.receive_segment(segment)
        (lock,) = self._transcript.receive_settled(segment, settled, pieces)
        return lock.sentences

    def _number(self, speaker: int | None) -> int | None:
        """Speakers are numbered as they say something: noise has a voice, but no number."""
        return None if speaker is None else self._numbers.setdefault(speaker, len(self._numbers))

    def _tell(self, sentences: Iterable[Sentence]) -> None:
        told = tuple(sentences)
        self._sentences += told
        self._listeners.tell(told)


def _whole(segment: Segment) -> tuple[Turn, ...]:
    """Nobody knows who speaks."""
    return (Turn(segment.start, segment.end, None),)

"""From what a client received, and when, to what a reader of the text notices. All times in ms of the take:
sample n is spoken at n / 16, a result that comes while it is spoken is received at the same time.

Definitions, on the wire's `duration_ms` (the audio that a result accounts for):

    fresh result     one that accounts for more speech than every earlier one
    text lag         of a fresh result within speech: its time of receipt less `duration_ms`. So it says how
                     old the newest sound is that the text includes, at the moment when the text appears
    text age         the same at any moment while somebody speaks: it grows until the next fresh result. What a
                     reader sees lies between the text lag and the text lag plus the interval
    partial interval time between fresh results within one spell of speech
    without text     the longest part of a spell without a fresh result: from its beginning to the first, between
                     two, or from the last to its end
    first partial    from the beginning of an utterance to the first partial that accounts for some of it
    locked           from the end of an utterance to the sentence that covers it
    words changed    of the words that were shown, those that a later result took back or replaced; case
                     and punctuation do not count, and in scripts without spaces a character is a word
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise, takewhile

import numpy as np

from realtime_server.bench.speech import HOP_MS, Spell
from realtime_server.core.stabilization import word_ends

EDGE_MS = 200  # by which the server's idea of an utterance's end may differ from ours
AGE_STEP_MS = 50  # between samples of the text age


@dataclass(frozen=True, slots=True)
class Result:
    """A result message: when it was received, and what it said."""

    at_ms: float
    duration_ms: int
    partial: str
    sentences: tuple[str, ...]  # their texts
    locked_ms: int  # end of the last sentence, 0 if there is none
    final: bool


NOTHING = Result(0.0, 0, "", (), 0, False)  # before the first


@dataclass(slots=True)
class Heard:
    """One take as its client saw it. spells: where speech was."""

    spells: tuple[Spell, ...]
    results: list[Result] = field(default_factory=list)
    stop_ms: float = 0.0  # when STOP was sent
    late_ms: list[float] = field(default_factory=list)  # by which the client sent each frame too late


def read_result(at_ms: float, message: bytes) -> Result:
    """Read a result of protocol 1. Raises ValueError, KeyError or TypeError if it is none."""
    fields = json.loads(message)
    sentences = fields["sentences"]
    locked_ms = sentences[-1]["end"] if sentences else 0
    texts = tuple(sentence["text"] for sentence in sentences)
    return Result(at_ms, fields["duration_ms"], fields["partial"], texts, locked_ms, fields["is_final"])


class Speech:
    """Where speech is in a take, as questions."""

    def __init__(self, spells: Sequence[Spell]) -> None:
        last_ms = spells[-1][1] if spells else 0
        self._speech = np.zeros(last_ms // HOP_MS + 1, np.bool_)
        for start, end in spells:
            self._speech[start // HOP_MS : end // HOP_MS] = True
        self._spoken = np.cumsum(self._speech) * HOP_MS

    def __contains__(self, ms: float) -> bool:
        hop = int(ms) // HOP_MS
        return hop < len(self._speech) and bool(self._speech[hop])

    def spoken_ms(self, ms: float) -> int:
        """Speech before this time."""
        hop = int(ms) // HOP_MS
        return int(self._spoken[min(hop, len(self._spoken)) - 1]) if hop > 0 else 0


def fresh(heard: Heard) -> list[Result]:
    """The results that account for more speech than every earlier one."""
    speech, known_ms, found = Speech(heard.spells), 0, []
    for result in heard.results:
        spoken_ms = speech.spoken_ms(result.duration_ms)
        if spoken_ms > known_ms:
            known_ms = spoken_ms
            found.append(result)
    return found


def text_lags(heard: Heard) -> list[tuple[float, float]]:
    """(time of receipt, text lag) of each fresh result within speech."""
    speech = Speech(heard.spells)
    return [(r.at_ms, r.at_ms - r.duration_ms) for r in fresh(heard) if r.duration_ms in speech]


def text_ages(heard: Heard) -> list[tuple[float, float]]:
    """(time, text age) at equal steps while somebody speaks and, in the same utterance, text is there."""
    ages = []
    found = fresh(heard)
    for start, end in heard.spells:
        within = [r for r in found if r.duration_ms > start and r.at_ms < end]
        for result, following in pairwise([*within, None]):
            assert result is not None
            until = following.at_ms if following else end
            ages += [
                (at, at - result.duration_ms) for at in np.arange(result.at_ms, until, AGE_STEP_MS).tolist()
            ]
    return ages


def intervals(heard: Heard) -> list[tuple[float, float]]:
    """(time, ms since the fresh result before) of every fresh result but the first in each spell."""
    found = []
    times = [result.at_ms for result in fresh(heard)]
    for start, end in heard.spells:
        within = [at for at in times if start < at <= end]
        found += [(later, later - earlier) for earlier, later in pairwise(within)]
    return found


def without_text(heard: Heard) -> list[tuple[float, float]]:
    """(its beginning, ms without a fresh result), the longest of each spell."""
    found = []
    times = [result.at_ms for result in fresh(heard)]
    for start, end in heard.spells:
        marks = [start, *(at for at in times if start < at < end), end]
        found.append(max(((a, b - a) for a, b in pairwise(marks)), key=lambda gap: gap[1]))
    return found


def first_partials(heard: Heard, *, pause_ms: int) -> list[tuple[float, float | None]]:
    """(beginning, ms to the first partial or None) of each utterance that follows a pause of this length.

    None too if the utterance was over, and locked, before any partial.
    """
    found: list[tuple[float, float | None]] = []
    for start in beginnings(heard.spells, pause_ms):
        reached = (r for r in heard.results if r.duration_ms > start and r.at_ms > start)
        first = next((r for r in reached if r.partial or r.locked_ms > start + EDGE_MS), None)
        found.append((start, first.at_ms - start if first and first.partial else None))
    return found


def empty_first_decodes(heard: Heard, *, pause_ms: int) -> list[bool]:
    """Whether the first result that accounts for some of each utterance had no text for it."""
    starts = beginnings(heard.spells, pause_ms)
    firsts = ((start, next((r for r in heard.results if r.duration_ms > start), None)) for start in starts)
    return [not first.partial and first.locked_ms <= start for start, first in firsts if first]


def locks(heard: Heard, *, pause_ms: int) -> list[tuple[float, float | None]]:
    """(end, ms to its sentence or None) of each utterance that is followed by a pause of this length.

    The last one is not: it is followed by STOP.
    """
    found: list[tuple[float, float | None]] = []
    for (_, end), (start, _) in pairwise(heard.spells):
        if start - end >= pause_ms:
            at = next((r.at_ms for r in heard.results if r.locked_ms >= end - EDGE_MS), None)
            found.append((end, None if at is None else at - end))
    return found


def final_ms(heard: Heard) -> float | None:
    """From STOP to the final."""
    return next((r.at_ms - heard.stop_ms for r in heard.results if r.final), None)


def partials(heard: Heard) -> list[tuple[float, str]]:
    """(time of receipt, text) of each fresh result that has a partial."""
    return [(result.at_ms, result.partial) for result in fresh(heard) if result.partial]


def word_changes(heard: Heard) -> tuple[int, int]:
    """Count the words that were shown, and those of them that later changed."""
    shown, changed = 0, 0
    for before, after in pairwise([NOTHING, *heard.results]):
        old, new = _differing_words(before, after)
        same = sum(
            block.size for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        )
        shown += len(new) - same
        changed += len(old) - same
    return shown, changed


def _differing_words(before: Result, after: Result) -> tuple[list[str], list[str]]:
    """The words of two results, without those of the sentences that both begin with."""
    pairs = zip(before.sentences, after.sentences, strict=False)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    texts = ((*each.sentences[same:], each.partial) for each in (before, after))
    old, new = ([word for text in each for word, _ in word_ends(text)] for each in texts)
    return old, new


def beginnings(spells: Sequence[Spell], pause_ms: int) -> Iterable[int]:
    """Beginnings of spells that follow a pause of this length, the first one included."""
    ends = [-pause_ms, *(end for _, end in spells)]
    return [start for (start, _), end in zip(spells, ends, strict=False) if start - end >= pause_ms]

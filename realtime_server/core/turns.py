"""Who speaks when within a segment, and the segment's text split by speaker.

A segment's turns come from the labels of its windows: a moment belongs to the window whose centre is nearest. Turns
too short to be told from an error go to a neighbour. The text is split by word times only: a word belongs to the turn
in which its middle lies. To know where a word stands in the text, the letters and digits of the words must be those
of the text, one after the other; else the text stays whole and is the speaker's who has most of the time from its
first word to its last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from unicodedata import category, normalize

from realtime_server.core.jobs import Window
from realtime_server.core.segments import Word, to_ms, to_samples

SHORTEST_TURN = to_samples(700)
OPENING = ("Ps", "Pi")  # general categories of signs that belong to the word after them


@dataclass(frozen=True, slots=True)
class Turn:
    """Samples [start, end) of a channel in which one speaker is heard; None: not known who."""

    start: int
    end: int
    speaker: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """One speaker's part of a segment's text. Times in ms from START, those of the words too."""

    text: str
    words: tuple[Word, ...]
    start_ms: int
    end_ms: int
    speaker: int | None


def find_turns(
    start: int, end: int, windows: Sequence[Window], speakers: Sequence[int | None]
) -> tuple[Turn, ...]:
    """Turns of the segment [start, end), without a gap, from the speaker of each of its windows, in order of time."""
    if not windows:
        return (Turn(start, end, None),)
    centres = [(window.start + window.end) // 2 for window in windows]
    edges = [start, *((one + other) // 2 for one, other in pairwise(centres)), end]
    cells = [Turn(*edge, speaker) for edge, speaker in zip(pairwise(edges), speakers, strict=True)]
    turns = _joined(cells)
    while len(turns) > 1 and _length(shortest := min(turns, key=_length)) < SHORTEST_TURN:
        at = turns.index(shortest)
        neighbours = turns[max(0, at - 1) : at] + turns[at + 1 : at + 2]
        turns[at] = replace(shortest, speaker=max(neighbours, key=_length).speaker)
        turns = _joined(turns)
    return tuple(turns)


def main_speaker(turns: Iterable[Turn], start: int, end: int) -> int | None:
    """Who speaks for most of [start, end); the earliest of equals, None if none of the turns touches it."""
    heard: dict[int | None, int] = {}
    for turn in turns:
        shared = min(turn.end, end) - max(turn.start, start)
        if shared > 0:
            heard[turn.speaker] = heard.get(turn.speaker, 0) + shared
    return max(heard, key=lambda speaker: heard[speaker], default=None)


def spoken(words: Sequence[Word], start_ms: int, end_ms: int) -> tuple[int, int]:
    """Samples of [start_ms, end_ms) from the first word to the last: a recognizer may leave out what others said."""
    if words:
        first, last = max(start_ms, words[0].start_ms), min(end_ms, words[-1].end_ms)
        if first < last:
            return to_samples(first), to_samples(last)
    return to_samples(start_ms), to_samples(end_ms)


def split_text(text: str, words: Sequence[Word], turns: Sequence[Turn]) -> tuple[Piece, ...]:
    """Split a segment's text into one piece for each turn in which something is said.

    words: times relative to the segment.  turns: the segment's, all of it. Every character of the text is in exactly
    one piece, but for white space at the seams. Punctuation stays with the word before it.
    """
    start, end = turns[0].start, turns[-1].end
    timed = tuple(word.shifted(to_ms(start)) for word in words)
    speaker = main_speaker(turns, *spoken(timed, to_ms(start), to_ms(end)))
    whole = Piece(text, timed, to_ms(start), to_ms(end), speaker)
    places = _places(text, words) if len(turns) > 1 else None
    if not places:
        return (whole,)
    groups = _by_speaker(timed, places, turns)
    texts, times = [0], [whole.start_ms]
    for (_, before), (turn, after) in pairwise(groups):
        texts.append(_seam(text, places[before[-1]][1], places[after[0]][0]))
        times.append(max(timed[before[-1]].end_ms, min(to_ms(turn.start), timed[after[0]].start_ms)))
    texts.append(len(text))
    times.append(whole.end_ms)
    backwards = any(one.start > other.start for (one, _), (other, _) in pairwise(groups))
    if backwards or any(one >= other for one, other in pairwise(times)):
        return (whole,)  # word times that make no sense
    return tuple(
        Piece(text[slice(*span)].strip(), tuple(timed[at] for at in group), *time_ms, turn.speaker)
        for (turn, group), span, time_ms in zip(groups, pairwise(texts), pairwise(times), strict=True)
    )


def _length(turn: Turn) -> int:
    return turn.end - turn.start


def _joined(turns: Iterable[Turn]) -> list[Turn]:
    """The same, with neighbours of one speaker made one."""
    groups = (list(group) for _, group in groupby(turns, key=lambda turn: turn.speaker))
    return [replace(group[0], end=group[-1].end) for group in groups]


def _by_speaker(
    words: Sequence[Word], places: Sequence[tuple[int, int]], turns: Sequence[Turn]
) -> list[tuple[Turn, list[int]]]:
    """Indices of words of one speaker in a row, with the turn in which the first of them lies.

    A word without letters goes where the word before it goes.
    """
    groups: list[tuple[Turn, list[int]]] = []
    waiting: list[int] = []  # words without letters, before any other
    for at, (word, (first, last)) in enumerate(zip(words, places, strict=True)):
        if first == last:
            (groups[-1][1] if groups else waiting).append(at)
            continue
        middle = to_samples((word.start_ms + word.end_ms) / 2)
        turn = turns[max(0, bisect_right(turns, middle, key=lambda turn: turn.start) - 1)]
        if groups and groups[-1][0].speaker == turn.speaker:
            groups[-1][1].append(at)
        else:
            groups.append((turn, [*waiting, at] if not groups else [at]))
    return groups


def _places(text: str, words: Iterable[Word]) -> list[tuple[int, int]] | None:
    """From where to where in the text the letters of each word stand; None unless they are those of the text.

    A word without letters has an empty place, where the word before it ends.
    """
    letters = [(letter, at) for at, sign in enumerate(text) for letter in _letters(sign)]
    places: list[tuple[int, int]] = []
    used, end = 0, 0
    for word in words:
        wanted = _letters(word.text)
        found = letters[used : used + len(wanted)]
        if "".join(letter for letter, _ in found) != wanted or (found and found[0][1] < end):
            return None
        start, end = (found[0][1], found[-1][1] + 1) if found else (end, end)
        used += len(wanted)
        places.append((start, end))
    return places if used == len(letters) > 0 else None


def _letters(text: str) -> str:
    """Letters and digits, without what differs between spellings: case, width, accents, ligatures."""
    return "".join(sign for sign in normalize("NFKD", text).casefold() if category(sign)[0] in "LN")


def _seam(text: str, end: int, start: int) -> int:
    """Where to cut between a word that ends at `end` and the next one, whose letters start at `start`.

    Signs belong to the word before, but to the one after if they touch only that, or open something.
    """
    at = start
    if any(sign.isspace() for sign in text[end:start]):
        while not text[at - 1].isspace():
            at -= 1
    while at > end and (text[at - 1].isspace() or category(text[at - 1]) in OPENING):
        at -= 1
    return at

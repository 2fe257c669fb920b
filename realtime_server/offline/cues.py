"""Cues: what subtitles show, and when.

Limits, after the Netflix Timed Text Style Guides: a cue has at most two lines of 42 letters or 16 ideographs, kana or
Hangul syllables, and is shown for 5/6 s to 7 s. (They allow Japanese 13 a line; 16 is their figure for Chinese and
Korean.)

A sentence that is too much for one cue is cut where that costs least: few cues, of similar size, that end where
a clause ends or the speaker pauses. Lines break at spaces, between ideographs (not before closing or after opening
punctuation), never inside a word that fits in a line. Times are those of the words; where a word's are not
known, the time between its neighbours is shared equally among the characters.

Only one cue is shown at a time. Where sentences overlap, as those of two channels may, the later one waits, for two
seconds at most, so that both can be read in proportion to their length.

Sources: Netflix, "Timed Text Style Guide: General Requirements" and the guides for Chinese, Japanese and Korean;
Unicode Annex 14, "Line Breaking", for what begins or ends no line.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, takewhile

from realtime_server.core.partials import is_unspaced
from realtime_server.core.segments import Sentence, Word
from realtime_server.offline.steps import Steps
from realtime_server.offline.transcription import Transcription, one_line

LEAST_MS = 833  # for which a cue is shown, if the next one can wait
LONGEST_MS = 7000
LATEST_MS = 2000  # what a cue may wait for the one before it
PAUSE_MS = 500  # between two words, a good place to cut

# Widths are in fifths of an ideograph, so that 42 letters or 16 ideographs fill a line.
LINE = 84
LETTER, IDEOGRAPH = 2, 5

SLACK = 20  # characters of the text that may lie between a word and the next, where they differ
SENTENCE_ENDS, CLAUSE_ENDS = tuple(".?!…。？！؟।"), tuple(",;:，、；：،")
QUOTES = "\"'”’」』）)"  # what may follow them
SMALL_KANA = "ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ"
ZERO_WIDTH_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown from start to end: one line or two."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    speaker: int | None


def cues(transcription: Transcription, *, named: bool = False) -> Steps[list[Cue]]:
    """Cues in order of time, none overlapping another; named: leave room for the speaker's name in each line.

    A step cuts one sentence, or places one cue.
    """
    found: list[Cue] = []
    for sentence in transcription.sentences:
        name = (
            f"{transcription.name_of(sentence.speaker)}: " if named and sentence.speaker is not None else ""
        )
        found += _Cutter(sentence, room=LINE - _width(name)).cues()
        yield
    return (yield from _arranged(sorted(found, key=lambda cue: cue.start_ms)))


# --- one after the other ----------------------------------------------------------------------------------


def _arranged(ordered: Sequence[Cue]) -> Steps[list[Cue]]:
    """The cues, moved and cut so that each is shown alone."""
    starts: list[int] = []
    for number, cue in enumerate(ordered):
        starts.append(_start(ordered[number - 1], starts[-1], cue) if starts else cue.start_ms)
        yield
    ends = [_end(cue, start) for cue, start in zip(ordered, starts, strict=True)]
    ends = [*map(min, ends, starts[1:]), *ends[-1:]]
    return [
        replace(cue, start_ms=start, end_ms=end)
        for cue, start, end in zip(ordered, starts, ends, strict=True)
    ]


def _end(cue: Cue, start_ms: int) -> int:
    """Until when a cue that is shown from `start_ms` should be seen."""
    return min(max(cue.end_ms, start_ms + LEAST_MS), start_ms + LONGEST_MS)


def _start(shown: Cue, since_ms: int, cue: Cue) -> int:
    """From when to show `cue`, which takes the place of `shown`, seen since `since_ms`."""
    until_ms = _end(shown, since_ms)
    sizes = [sum(map(_width, lines)) for lines in (shown.lines, cue.lines)]
    share_ms = (max(until_ms, cue.end_ms) - since_ms) * sizes[0] // max(1, sum(sizes))
    fair_ms = min(until_ms, since_ms + max(share_ms, LEAST_MS), cue.start_ms + LATEST_MS)
    return max(cue.start_ms, fair_ms, since_ms + 1)


# --- one sentence -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spoken:
    """Characters [first, last) of a text that are a word, and when it was said."""

    first: int
    last: int
    start_ms: int
    end_ms: int


class _Cutter:
    """Cuts a sentence into cues whose lines are at most `room` wide.

    Pieces are what is never broken, each with the space that follows it, and no wider than a line. The lists have
    a value for each edge of the pieces; where it says how pieces end, the space at an edge does not count.
    """

    def __init__(self, sentence: Sentence, *, room: int) -> None:
        self._room, self._speaker = room, sentence.speaker
        self._text = one_line(sentence.text)
        spoken = list(_find(self._text, sentence.words))
        self._before = [0, *accumulate(map(_width, self._text))]  # width of the text before each character
        self._edges = self._find_edges(spoken)
        times = [(0, 0), *_character_times(len(self._text), sentence, spoken), (0, 0)]
        ends = [self._visible(edge) for edge in self._edges]
        self._left = [self._before[edge] for edge in self._edges]  # widths of the text before a piece,
        self._right = [self._before[end] for end in ends]  # and up to its end
        self._start_ms = [times[edge + 1][0] for edge in self._edges]
        self._end_ms = [times[end][1] for end in ends]
        self._value = [_end_value(self._text[max(0, end - 3) : end]) for end in ends]
        self._full = list(self._fill())

    def cues(self) -> list[Cue]:
        """The sentence's cues in order."""
        return [
            Cue(self._start_ms[first], self._end_ms[last], self._lines(first, last), self._speaker)
            for first, last in pairwise(self._cuts())
        ]

    def _find_edges(self, spoken: Iterable[_Spoken]) -> list[int]:
        """Places in the text at which pieces begin and end."""
        inside = {
            at
            for word in spoken
            if self._before[word.last] - self._before[word.first] <= self._room
            for at in range(word.first + 1, word.last)
        }
        edges = [0]
        for at in range(1, len(self._text) + 1):
            if at == len(self._text) or (at not in inside and _may_break(*self._text[at - 1 : at + 1])):
                edges += self._splits(edges[-1], self._visible(at))
                edges.append(at)
        return edges

    def _splits(self, first: int, last: int) -> Iterator[int]:
        """Where to break characters [first, last) that are too wide for a line and have no place for it."""
        while self._before[last] - self._before[first] > self._room:
            furthest = bisect_right(self._before, self._before[first] + self._room) - 1
            places = range(furthest, first, -1)
            first = next((at for at in places if not _joined(*self._text[at - 1 : at + 1])), furthest)
            yield first

    def _visible(self, edge: int) -> int:
        """The edge, or the one before the space that precedes it: spaces at line ends are not shown."""
        return edge - (self._text[edge - 1 : edge] == " ")

    def _size(self, first: int, last: int) -> int:
        """Width in one line of the pieces between two edges."""
        return self._right[last] - self._left[first]

    def _fill(self) -> Iterator[int]:
        """For each edge, at which one the longest line that begins there ends."""
        last = 0
        for first in range(len(self._edges)):
            while last < len(self._edges) - 1 and self._size(first, last + 1) <= self._room:
                last += 1
            yield last

    def _firsts(self, last: int) -> Iterator[int]:
        """Edges at which a cue that ends at `last` can begin, the nearest first."""
        return takewhile(lambda first: self._fits(first, last), range(last - 1, -1, -1))

    def _fits(self, first: int, last: int) -> bool:
        """Whether the pieces between two edges can be one cue."""
        long = self._end_ms[last] - self._start_ms[first] > LONGEST_MS
        return last == first + 1 or (not long and self._full[self._full[first]] >= last)

    def _cuts(self) -> list[int]:
        """Edges at which cues begin and end: the cheapest ones, by dynamic programming."""
        costs, origins = [0.0], [0]
        for last in range(1, len(self._edges)):
            cost, origin = min(
                (costs[first] + self._cost(first, last), first) for first in self._firsts(last)
            )
            costs.append(cost)
            origins.append(origin)
        cuts = [len(self._edges) - 1]
        while cuts[-1]:
            cuts.append(origins[cuts[-1]])
        return cuts[::-1]

    def _cost(self, first: int, last: int) -> float:
        """One for the cue, up to one for its emptiness, a half if it is short; less for a good end."""
        empty = 1 - self._size(first, last) / (2 * self._room)
        short = self._end_ms[last] - self._start_ms[first] < LEAST_MS
        pause = last < len(self._edges) - 1 and self._start_ms[last] - self._end_ms[last] >= PAUSE_MS
        return 1 + empty * empty + 0.5 * short - max(self._value[last], 0.5 * pause)

    def _lines(self, first: int, last: int) -> tuple[str, ...]:
        """One line if that is enough, else two of similar width."""
        cuts = [first, last]
        if self._full[first] < last:
            middles = range(first + 1, self._full[first] + 1)
            fitting = (middle for middle in middles if self._full[middle] >= last)
            cuts.insert(1, min(fitting, key=lambda middle: self._unevenness(first, middle, last)))
        edges = [self._edges[cut] for cut in cuts]
        return tuple(self._text[start:end].strip() for start, end in pairwise(edges))

    def _unevenness(self, first: int, middle: int, last: int) -> float:
        """How far two lines differ in width, as a share of the room; less for a good end of the first."""
        difference = abs(self._size(first, middle) - self._size(middle, last))
        return difference / self._room - self._value[middle]


def _end_value(end: str) -> float:
    """How good a place is that comes after these characters: a half after a sentence, a quarter after a clause."""
    end = end.rstrip(QUOTES)
    return 0.5 if end.endswith(SENTENCE_ENDS) else 0.25 if end.endswith(CLAUSE_ENDS) else 0.0


def _find(text: str, words: Iterable[Word]) -> Iterator[_Spoken]:
    """The words that are found in the text, in order; those that a replacement changed are not."""
    letters = [at for at, sign in enumerate(text) if sign != " "]
    squeezed = text.replace(" ", "")
    at = reach = 0
    for word in words:
        said = one_line(word.text).replace(" ", "")
        reach += len(said) + SLACK
        found = squeezed.find(said, at, reach) if said else -1
        if found >= 0:
            at = reach = found + len(said)
            yield _Spoken(letters[found], letters[at - 1] + 1, word.start_ms, word.end_ms)


def _character_times(count: int, sentence: Sentence, spoken: Iterable[_Spoken]) -> list[tuple[int, int]]:
    """When each of `count` characters is said; never falling, within the sentence, from 0."""
    now = max(0, sentence.start_ms)
    last_ms = max(now, sentence.end_ms)
    times: list[tuple[int, int]] = []
    for word in [*spoken, _Spoken(count, count, last_ms, last_ms)]:
        start = min(max(now, word.start_ms), last_ms)
        end = min(max(start, word.end_ms), last_ms)
        times += _shares(now, start, word.first - len(times))
        times += _shares(start, end, word.last - word.first)
        now = end
    return times


def _shares(start_ms: int, end_ms: int, count: int) -> Iterable[tuple[int, int]]:
    return pairwise(start_ms + (end_ms - start_ms) * at // max(1, count) for at in range(count + 1))


def _width(text: str) -> int:
    """Width in fifths of an ideograph; combining marks have none."""
    return sum(
        0 if unicodedata.category(sign) in ("Mn", "Me", "Cf")
        else IDEOGRAPH if unicodedata.east_asian_width(sign) in "WF"
        else LETTER
        for sign in text
    )  # fmt: skip


def _may_break(before: str, after: str) -> bool:
    """Whether a line may end between two characters."""
    if before == " " or after == " ":
        return before == " "
    if not (is_unspaced(before) or is_unspaced(after)) or _joined(before, after):
        return False
    opening, category = unicodedata.category(before) in ("Ps", "Pi"), unicodedata.category(after)
    closing = category[0] == "P" and category not in ("Ps", "Pi")
    return not (opening or closing or category in ("Lm", "Sk") or after in SMALL_KANA)


def _joined(before: str, after: str) -> bool:
    """Whether two characters look like one, or the first has no width of its own."""
    return before == ZERO_WIDTH_JOINER or unicodedata.category(after)[0] == "M" or _width(after) == 0

"""What a segment's partials agree on: text to show as stable, and text that a worse final must not take away.

A recognizer decodes an open segment again and again; the beginning settles, the end moves. Two successive
partials *agree* on their common first words (characters where a script has no spaces), compared on letters only:
case, punctuation and white space do not count. The *stable* text is the longest agreed so far; it only grows, and
what later partials say behind its words, however they spell those, follows it. The *proven* text is the one by which
a final is judged; it gives way when two partials in a row say something else.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from realtime_server.core.jobs import Finish

KEPT_PROVEN = 64  # of a segment's proven texts, for segments that are cut before the latest partial's end
LETTERS_PER_DIGIT = 4  # a final may write "four" as "4"
LETTERS_PER_IDEOGRAPH = (
    3  # of a script without spaces: a syllable, as a partial may have written it in Latin letters
)
ZERO_WIDTH_JOINER = "\u200d"
_UNSPACED = re.compile(  # scripts without spaces: Thai to Burmese, Khmer, kana, ideographs
    "[\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)


class StableText:
    """The partials of one segment."""

    def __init__(self) -> None:
        self.latest = ""
        self.latest_end = 0  # sample up to which `latest` covers the audio
        self.stable = ""  # without the punctuation at its end, which moves with the end
        self._words: list[tuple[str, int]] = []  # of `latest`
        self._known: list[str] = []  # the words of `stable`
        self._proven: deque[tuple[int, str]] = deque([(0, "")], maxlen=KEPT_PROVEN)

    def receive_partial(self, text: str, end: int) -> None:
        """Take the next partial, the segment's whole text up to sample `end`; then read the attributes."""
        before, after = self._words, word_ends(text)
        said = [word for word, _ in after]
        common = _count_common([word for word, _ in before], said)
        agreed = text[: after[common - 1][1]] if common else ""
        if agreed.startswith(self.stable):
            self.stable, self._known = agreed, said[:common]
        elif said[:common][: len(self._known)] == self._known:
            self.stable = _continue(self.stable, self._known, agreed, after[:common])
            self._known = said[:common]
        heard = min(self.latest_end, end)  # both partials heard what they agree on
        if 0 < common == len(before) == len(after):
            self._proven.append((heard, text))
        elif not _lost(agreed, self._proven[-1][1]):
            self._proven.append((heard, agreed))
        self.latest, self.latest_end, self._words = text, end, after

    @property
    def unstable(self) -> str:
        """What `latest` has after the stable text, or after the words that stand for it."""
        if self.latest.startswith(self.stable):
            return self.latest[len(self.stable) :]
        return _continue(self.stable, self._known, self.latest, self._words)[len(self.stable) :]

    def proven_until(self, end: int) -> str:
        """The latest proven text that covers no audio after sample `end`.

        A segment cut before the latest partial's end must not be given words of the next one. For a segment that
        ended in silence, pass the sample at which the silence was noticed.
        """
        return next((text for covered, text in reversed(self._proven) if covered <= end), "")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The text to lock; recovered: it is the proven one, because the final would have lost some of it."""

    text: str
    recovered: bool


def recover(final: str, *, finish: Finish, reduced: bool, proven: str) -> Recovered:
    """Keep the proven text if the final is empty, truncated or was repetitive; a different wording is kept.

    Truncated: the final is a beginning of the proven text, or has less than half of its letters, or ran into its
    token limit before it had as many. Repetitive (`reduced`): unless it has more than twice the proven letters.
    Scripts differ in how much a letter says, and partials now and then come in another script than the final.
    """
    said, known = spoken_size(letters(final)), spoken_size(letters(proven))
    cut_short = finish == "length" and said < known
    repetitive = reduced and said <= 2 * known
    if known and (_lost(final, proven) or cut_short or repetitive):
        return Recovered(proven, recovered=True)
    return Recovered(final, recovered=False)


def letters(text: str) -> str:
    """The letters, vowel signs and digits of a text, without case, width, punctuation and white space."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign for sign in plain if sign.isalnum() or _is_mark(sign))


def _lost(text: str, proven: str) -> bool:
    """True if `text` is a proper beginning of `proven`, or has less than half of its letters."""
    said, known = letters(text), letters(proven)
    size = spoken_size(said) + sum(map(str.isdigit, said)) * (LETTERS_PER_DIGIT - 1)
    return said != known and (known.startswith(said) or 2 * size < spoken_size(known))


def spoken_size(spelling: str) -> int:
    """How much is said by letters, in letters of an alphabet."""
    return len(spelling) + len(_UNSPACED.findall(spelling)) * (LETTERS_PER_IDEOGRAPH - 1)


def word_ends(text: str) -> list[tuple[str, int]]:
    """The letters and the end of each word, or of each character in a script without spaces."""
    edges = [position for position in range(len(text) + 1) if is_word_edge(text, position)]
    words = ((letters(text[start:end]), end) for start, end in itertools.pairwise(edges))
    return [word for word in words if word[0]]


def continue_text(known: str, text: str) -> str:
    """Return `known` and what `text`, another version of the same speech, has after those words.

    Which words of `text` those are is found by alignment, so that a word more or less in the beginning neither
    repeats nor loses one behind it.
    """
    if text.startswith(known) and is_word_edge(text, len(known)):
        return text
    return _continue(known, [word for word, _ in word_ends(known)], text, word_ends(text))


def _continue(known: str, words: Sequence[str], text: str, heard: Sequence[tuple[str, int]]) -> str:
    """Do so, where the words of both are known already and `text` does not begin with `known`."""
    count = _words_within(words, [word for word, _ in heard])
    rest = text[heard[count - 1][1] :] if count else ""
    return known + rest if is_word_edge(known + rest, len(known)) else f"{known} {rest}"


def _words_within(known: Sequence[str], heard: Sequence[str]) -> int:
    """How many of the first words heard are versions of the known ones: the fewest edits, then the most words."""
    common = _count_common(known, heard)  # no fewer can be best, and mostly this is all of the known ones
    known, heard = known[common:], heard[common:]
    numbers = {word: number for number, word in enumerate({*known, *heard})}
    words = np.array([numbers[word] for word in heard], np.intp)
    count = np.arange(len(heard) + 1)
    edits = count
    for row, word in enumerate(known, 1):
        replaced_or_left_out = np.minimum(edits[:-1] + (words != numbers[word]), edits[1:] + 1)
        line = np.concatenate(([row], replaced_or_left_out))
        edits = np.minimum.accumulate(line - count) + count  # each word inserted is one edit more
    return int(common + len(heard) - np.argmin(edits[::-1]))


def _count_common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many first words are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((count for count, (word, as_well) in pairs if word != as_well), min(len(one), len(other)))


def is_word_edge(text: str, position: int) -> bool:
    """True unless the position is within a word, or within a character and its marks."""
    if position in (0, len(text)):
        return True
    left, right = text[position - 1], text[position]
    one_sign = _is_mark(right) or ZERO_WIDTH_JOINER in (left, right)
    return not one_sign and not (_is_spelling(left) and _is_spelling(right))


def _is_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character).startswith("M")


def _is_spelling(character: str) -> bool:
    """True within words of scripts that have spaces."""
    return not _UNSPACED.match(character) and (
        character.isalnum() or _is_mark(character) or character in "'’\u200c"
    )

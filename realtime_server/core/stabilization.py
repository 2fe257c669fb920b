"""What a segment's partials agree on: text to show as stable, and text that a worse final must not take away.

A recognizer decodes an open segment again and again; the beginning settles, the end moves. What two successive
partials share, cut back to whole words (whole characters where a script has no spaces), is *agreed*. The *stable*
text is the longest agreed so far, less its last punctuation, which moves with the end; it only grows. The *proven*
text is the agreed one by which a final is judged: it follows the partials when they change their mind twice.
Texts are compared on letters only: case, punctuation and white space do not count.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import deque
from dataclasses import dataclass

from realtime_server.core.jobs import Finish

KEPT_PROVEN = 64  # of a segment's proven texts, for segments that are cut before the latest partial's end
LETTERS_PER_DIGIT = 4  # a final may write "four" as "4"
_UNSPACED = re.compile(  # scripts without spaces: Thai to Burmese, Khmer, kana, ideographs
    "[\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)


class StableText:
    """The partials of one segment."""

    def __init__(self) -> None:
        self.latest = ""
        self.latest_end = 0  # sample up to which `latest` covers the audio
        self.stable = ""
        self._proven: deque[tuple[int, str]] = deque([(0, "")], maxlen=KEPT_PROVEN)

    def receive_partial(self, text: str, end: int) -> None:
        """Take the next partial, the segment's whole text up to sample `end`; then read the properties."""
        agreed = _agreed(self.latest, text)
        shown = agreed.rstrip("".join(filter(_is_loose, set(agreed))))
        if shown.startswith(self.stable):
            self.stable = shown
        twice_the_same = letters(text) == letters(self.latest) != ""
        if twice_the_same or not _lost(agreed, self._proven[-1][1]):
            self._proven.append((self.latest_end, agreed))
        self.latest, self.latest_end = text, end

    @property
    def unstable(self) -> str:
        """What `latest` has after the stable text; where they differ, after as many letters."""
        if self.latest.startswith(self.stable):
            return self.latest[len(self.stable) :]
        known, position = len(letters(self.stable)), 0
        while position < len(self.latest) and len(letters(self.latest[:position])) < known:
            position += 1
        return self.latest[position:]

    def proven_until(self, end: int) -> str:
        """The latest proven text that covers no audio after sample `end`.

        A segment cut before the latest partial's end must not be given words of the next one; for a segment that
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
    token limit before it had as many.  Repetitive (reduced): unless it has more than twice the proven letters.
    """
    said, known = letters(final), letters(proven)
    cut_short = finish == "length" and len(said) < len(known)
    repetitive = reduced and len(said) <= 2 * len(known)
    lost = _lost(final, proven) or cut_short or repetitive
    return Recovered(proven, recovered=True) if known and lost else Recovered(final, recovered=False)


def letters(text: str) -> str:
    """The letters and digits of a text, without case, width, punctuation and white space."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _lost(text: str, proven: str) -> bool:
    """True if `text` is a proper beginning of `proven`, or has less than half of its letters."""
    said, known = letters(text), letters(proven)
    digits = sum(map(str.isdigit, said))
    size = len(said) + digits * (LETTERS_PER_DIGIT - 1)
    return said != known and (known.startswith(said) or 2 * size < len(known))


def _agreed(before: str, after: str) -> str:
    """The common beginning of two texts, cut back to where neither is within a word or a character."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    end = sum(1 for _ in same)
    while not (_is_boundary(before, end) and _is_boundary(after, end)):
        end -= 1
    return after[:end].rstrip()


def _is_boundary(text: str, position: int) -> bool:
    if position in (0, len(text)):
        return True
    left, right = text[position - 1], text[position]
    if _is_mark(right) or left == "\u200d":
        return False
    return not (_is_spelling(left) and _is_spelling(right))


def _is_mark(character: str) -> bool:
    return character in "\u200c\u200d" or unicodedata.category(character).startswith("M")


def _is_spelling(character: str) -> bool:
    """True within words of scripts that have spaces."""
    return not _UNSPACED.match(character) and not (_is_loose(character) and character not in "'’")


def _is_loose(character: str) -> bool:
    return not character.isalnum() and not _is_mark(character)

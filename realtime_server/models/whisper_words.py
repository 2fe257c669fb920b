"""From tokens with times to words with times.

Tokens are pieces of UTF-8: one may hold several characters, or a third of one. A token's time is shared equally
among its bytes; a word runs from its first to its last letter, so that punctuation and spaces take no time.
The alignment gives a pause to the word after it, so that a word's start is moved to where its sound sets in.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import HOP, Word, to_ms

MS_PER_POSITION = 20  # one encoder position is two mel frames
EARLY_MS = 40  # what the alignment is early by: the median against forced alignments of read English
FAINT = 0.01  # power relative to a word's loudest 10 ms, below which the word has not begun: 20 dB
PAUSE = 15  # times 10 ms: no word holds so long a pause, it ends the one before

# Scripts written without spaces between words: there each letter is a word.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x4DBF),  # ideographs, extension A
    (0x4E00, 0x9FFF),  # ideographs
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0x20000, 0x3FFFF),  # further extensions
)


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A token's bytes, when they were said (ms), and how probable they were."""

    raw: bytes
    start_ms: float
    end_ms: float
    probability: float


@dataclass(frozen=True, slots=True)
class Character:
    """A character, when it was said (ms), and the tokens that hold it, first and last."""

    text: str
    start_ms: float
    end_ms: float
    first: int
    last: int


def token_starts(path: Sequence[tuple[int, int]], tokens: int) -> list[float]:
    """When each token begins, ms, and when the last one ends: `tokens` + 1 values that never fall.

    path: steps (token, encoder position) of the alignment, whose last token is the end of text.
    """
    starts: list[float] = []
    for token, position in path:
        if token == len(starts) and token <= tokens:
            starts.append(float(position * MS_PER_POSITION + EARLY_MS))
    end = float(path[-1][1] * MS_PER_POSITION + EARLY_MS) if path else 0.0
    return starts + [end] * (tokens + 1 - len(starts))


def characters(spans: Sequence[TokenSpan]) -> list[Character]:
    """Characters of the spans; bytes that make up no whole character are left out."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
    found: list[Character] = []
    opened: tuple[int, float] | None = None  # token and time of a character's first byte
    for index, span in enumerate(spans):
        for byte, start, end in _timed_bytes(span):
            first, begin = opened = opened or (index, start)
            for sign in decoder.decode(bytes([byte])):
                found.append(Character(sign, begin, end, first, index))
                opened = None
    return found


def words(spans: Sequence[TokenSpan], convert: Callable[[str], str] = str) -> tuple[Word, ...]:
    """Words of the spans; punctuation stays with its word.

    Confidence is the mean of the tokens' probabilities.  convert: changes characters (script, punctuation) but
    not their number.
    """
    signs = characters(spans)
    text = convert("".join(sign.text for sign in signs))
    return tuple(_word(text, signs, group, spans) for group in _groups(text))


def set_in(timed: Sequence[Word], audio: Samples) -> tuple[Word, ...]:
    """The words, each starting where it becomes loud, and none beyond the audio."""
    power = np.square(audio[: len(audio) // HOP * HOP]).reshape(-1, HOP).mean(axis=1)
    return tuple(_set_in(word, power, to_ms(len(audio))) for word in timed)


def _set_in(word: Word, power: NDArray[np.float32], longest_ms: int) -> Word:
    end = min(word.end_ms, longest_ms)
    start = min(word.start_ms, end)
    own = power[start // 10 : end // 10]
    if own.size:
        loud = np.flatnonzero(own >= FAINT * own.max())
        pauses = np.flatnonzero(np.diff(loud) > PAUSE)
        first = int(loud[pauses[-1] + 1] if pauses.size else loud[0])
        start = max(start, start // 10 * 10 + 10 * first)
    return replace(word, start_ms=start, end_ms=end)


def is_unspaced(sign: str) -> bool:
    """Whether the character is of a script that puts no spaces between words."""
    return any(low <= ord(sign) <= high for low, high in UNSPACED)


def _timed_bytes(span: TokenSpan) -> list[tuple[int, float, float]]:
    """Bytes with start and end; the space that leads most tokens takes no time."""
    silent = len(span.raw) - len(span.raw.lstrip(b" "))
    share = (span.end_ms - span.start_ms) / max(1, len(span.raw) - silent)
    edges = [span.start_ms + share * max(0, at - silent) for at in range(len(span.raw) + 1)]
    return [(byte, start, end) for byte, (start, end) in zip(span.raw, pairwise(edges), strict=True)]


def _groups(text: str) -> list[list[int]]:
    """Positions of the characters of each word."""
    groups: list[list[int]] = []
    lettered = ""  # the last letter of the open word, if any
    fresh = True
    for at, sign in enumerate(text):
        if sign.isspace():
            fresh = True
            continue
        opening = unicodedata.category(sign) in ("Ps", "Pi") and bool(lettered)
        apart = sign.isalnum() and bool(lettered) and (is_unspaced(sign) or is_unspaced(lettered))
        if fresh or opening or apart:
            groups.append([])
            lettered, fresh = "", False
        groups[-1].append(at)
        lettered = sign if sign.isalnum() else lettered
    return groups


def _word(text: str, signs: Sequence[Character], group: Sequence[int], spans: Sequence[TokenSpan]) -> Word:
    voiced = [signs[at] for at in group if text[at].isalnum()] or [signs[at] for at in group]
    tokens = spans[voiced[0].first : voiced[-1].last + 1]
    return Word(
        text=text[group[0] : group[-1] + 1],
        start_ms=round(voiced[0].start_ms),
        end_ms=round(voiced[-1].end_ms),
        confidence=sum(token.probability for token in tokens) / len(tokens),
    )

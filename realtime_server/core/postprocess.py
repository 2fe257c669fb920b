"""From a recognizer's raw text to text fit to show: a chain of plain functions.

`clean` removes what is not text and reduces repetition that only the model can have made. `replace` applies
the operator's or client's replacements to finals. `neutralise` goes the other way: it makes text that users
send (hotwords, a language's name, earlier text) harmless in a prompt. All are linear in the text's length.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Finish

# C0 and C1 controls that are not white space; soft hyphen, zero width and direction marks, byte order mark;
# lone surrogates, which UTF-8 cannot carry. The joiners 200C and 200D are spelling in scripts from Hebrew to
# Mongolian.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    "|(?<![\u0590-\u18af])[\u200c\u200d]|[\u200c\u200d](?![\u0590-\u18af])"
)
_TOKEN = re.compile(r"<\|[^<>|\s]{0,64}\|>|</?(?:s|unk|pad|bos|eos|mask|sep)>", re.IGNORECASE)

# The fastest that people speak, in characters per second, about twice a newsreader: Mandarin and Cantonese
# reach 10 syllables, Japanese 11 morae, Korean 9 syllables, one character each; alphabets reach 35 letters
# and spaces (400 words a minute); digits are said one by one, or stand for fewer syllables ("a hundred").
WIDE_PER_S, DIGITS_PER_S, LETTERS_PER_S = 12.0, 15.0, 40.0
LONGEST_REPLACED = 10_000  # characters that replacements may make of a text: ten minutes of speech have fewer
SLACK_S = 1.0  # what a segment's edges may have cut off

CODES = codecs.lookup("utf-32-le").name  # loaded now: a process that is out of descriptors could not later
LONGEST_UNIT = 256  # characters of the longest unit looked for: a long sentence
KEPT_UNITS = 2  # of a reduced repetition: enough to see that there was one, too few to mislead
LOOP_UNITS = 4  # repetitions, in text that does not fit its audio
LOOP_SHARE = (
    0.25  # of the audio's time that a repetition must fill to be the reason why the text does not fit
)
TAIL_UNITS = 3  # repetitions, at the end of a decode that ran into its token limit
TAIL_CHARACTERS = 24  # of such a tail; a spoken number or "no no no" is shorter


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Text fit to show; reduced: repetition was cut, so part of the audio may have no text."""

    text: str
    reduced: bool


def clean(text: str, *, seconds: float, finish: Finish) -> Cleaned:
    """Clean a recognizer's text for `seconds` of audio: no control tokens, single spaces.

    Repetition is the model's if it ends a decode that ran into its token limit, or if the text takes longer
    to say than the audio lasts; two units of it are kept. Digits, spelled letters, spoken repetition survive.
    """
    tidy = normalise_space(strip_tokens(strip_invisible(text)))
    text = normalise_space(reduce_repetition(tidy, seconds=seconds, finish=finish))
    return Cleaned(text, reduced=text != tidy)


def strip_invisible(text: str) -> str:
    """Remove control and zero-width characters; joiners stay inside the scripts that spell with them."""
    return _INVISIBLE.sub("", text)


def strip_tokens(text: str) -> str:
    """Remove control tokens such as <|zh|>, </s>, <unk>."""
    # What a removal joins to a new token is replaced by a space, which joins nothing.
    return _TOKEN.sub(" ", _TOKEN.sub("", text))


def normalise_space(text: str) -> str:
    """Turn each run of white space into one space; none, and no replacement character, at the edges."""
    return " ".join(text.split()).strip("\ufffd ")


def reduce_repetition(text: str, *, seconds: float, finish: Finish) -> str:
    """Cut what only a model repeats down to KEPT_UNITS units; see `clean`."""
    # With a space at the end, the last word of a repetition is as long as the others.
    codes = np.frombuffer(f"{text} ".encode(CODES), dtype="<u4")
    budget_s = max(seconds, 0.0) + SLACK_S
    overflows = _least_s(codes) > budget_s
    if not overflows and finish != "length":
        return text
    for period in range(1, min(LONGEST_UNIT, codes.size // TAIL_UNITS) + 1):
        kept = np.ones(codes.size, dtype=np.bool_)
        for start, end in _repetitions(codes, period):
            units, size = (end - start) // period, end - start
            ends_the_text = finish == "length" and end >= codes.size - 1
            tail = ends_the_text and size >= TAIL_CHARACTERS
            loop = overflows and units >= LOOP_UNITS and _least_s(codes[start:end]) > LOOP_SHARE * budget_s
            if not tail and not loop:
                continue
            cut = start + KEPT_UNITS * period
            if ends_the_text:
                kept[cut + _to_sentence_end(codes[cut - 1 : cut - 1 + period]) : end] = False
            else:  # a last, partial unit is the beginning of what follows
                kept[cut : start + units * period] = False
        codes = codes[kept]
    return codes.tobytes().decode(CODES).removesuffix(" ")


def _repetitions(codes: NDArray[np.uint32], period: int) -> Iterator[tuple[int, int]]:
    """Longest stretches [start, end) that repeat with `period`, at least TAIL_UNITS times."""
    same = np.concatenate([[False], codes[period:] == codes[:-period], [False]])
    starts, ends = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2).T
    long = ends - starts >= (TAIL_UNITS - 1) * period
    for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
        yield start, end + period


def _to_sentence_end(unit: NDArray[np.uint32]) -> int:
    """Characters after the unit's first to keep, so that the text ends with a sentence, else a word."""
    text = unit.tobytes().decode(CODES)
    end = re.search("[.。!！?？…]", text) or re.search(r"\s", text)
    return end.start() if end else 0


def _least_s(codes: NDArray[np.uint32]) -> float:
    """Seconds that the text takes at the fastest, from its code points."""
    wide = (
        _between(codes, 0x3041, 0x9FFF) | _between(codes, 0xAC00, 0xD7A3) | _between(codes, 0x20000, 0x3FFFF)
    )
    digits = _between(codes, 0x30, 0x39) | _between(codes, 0xFF10, 0xFF19)
    n_wide, n_digits = np.count_nonzero(wide), np.count_nonzero(digits)
    rest = codes.size - n_wide - n_digits
    return n_wide / WIDE_PER_S + n_digits / DIGITS_PER_S + rest / LETTERS_PER_S


def _between(codes: NDArray[np.uint32], low: int, high: int) -> NDArray[np.bool_]:
    return (codes >= low) & (codes <= high)


def replace(text: str, replacements: Mapping[str, str], *, most: int = LONGEST_REPLACED) -> str:
    """Replace every key by its value, left to right in one pass, the longest key first.

    What a replacement wrote is not looked at again. Keys match exactly, inside words too; an empty key never. A
    replacement that would make the text longer than `most` characters is not made.
    """
    lengths = sorted({len(key) for key in replacements if key}, reverse=True)
    pieces, position, size = [], 0, len(text)
    while position < len(text):
        candidates = (text[position : position + length] for length in lengths)
        found = next((key for key in candidates if key in replacements), text[position])
        written = replacements.get(found, found)
        growth = len(written) - len(found)
        if growth > 0 and size + growth > most:
            written, growth = found, 0
        pieces.append(written)
        position += len(found)
        size += growth
    return "".join(pieces)


def neutralise(text: str) -> str:
    """Make a user's text harmless in a prompt: one line, no control characters, no angle brackets.

    Every model's control tokens are written in angle brackets, which nobody can say.
    """
    return normalise_space(re.sub("[<>]", " ", strip_invisible(text)))

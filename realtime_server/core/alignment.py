"""CTC forced alignment: when each token of a known text was said, and from there each word.

The most probable path through the frames is found by dynamic programming (Viterbi). Its states are the tokens with a
blank before, between and after them:

    blank  t0  blank  t1  blank  ...  tn  blank          from frame to frame a path stays, goes one state on,
                                                         or jumps over a blank between two different tokens

Source: Graves et al., "Connectionist Temporal Classification" (2006); Kürzinger et al., "CTC-Segmentation" (2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.segments import Word

FRAME_MS = 60  # one frame of log-probabilities
SILENT = "PZC"  # general categories of signs that take no time: punctuation, separators, controls
OPENING = ("Ps", "Pi")  # general categories of signs that belong to the word after them

# Scripts without spaces, where each letter is a word: Thai to Myanmar, Khmer, ideographic marks, kana, ideographs.
UNSPACED = (
    (0x0E00, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Frames [start, end) in which a token was heard, and its greatest probability among them."""

    start: int
    end: int
    probability: float


@dataclass(frozen=True, slots=True)
class _Sign:
    """A character and its time in ms; probability: its token's, None if it has none or takes no time."""

    text: str
    start_ms: float
    end_ms: float
    probability: float | None


def align(log_probs: NDArray[np.float32], tokens: Sequence[int], blank: int) -> list[TokenSpan] | None:
    """Align `tokens` with the frames of `log_probs` (frames, vocabulary): a span per token, in order.

    None where they do not fit: every token needs a frame, and one more if it repeats the token before it.
    """
    if len(log_probs) < len(tokens) + sum(one == other for one, other in pairwise(tokens)):
        return None
    if not tokens:
        return []
    states = np.full(2 * len(tokens) + 1, blank)
    states[1::2] = tokens
    scores = log_probs[:, states]
    path = _best_path(scores, may_jump=states[2:] != states[:-2])
    spans = []
    for state in range(1, len(states), 2):
        start, end = np.searchsorted(path, [state, state + 1]).tolist()
        spans.append(TokenSpan(start, end, float(np.exp(scores[start:end, state].max()))))
    return spans


def _best_path(scores: NDArray[np.float32], may_jump: NDArray[np.bool_]) -> NDArray[np.intp]:
    """State per frame of the best path; of equal ones, the one that enters each state earliest.

    scores: (frames, states).  may_jump: (states - 2,), whether a path may come to a state from two before it.
    """
    frames, count = scores.shape
    best = np.full(count, -np.inf)
    best[:2] = scores[0, :2]
    steps = np.zeros((frames, count), np.int8)
    ways = np.full((3, count), -np.inf)
    for frame in range(1, frames):
        ways[0], ways[1, 1:], ways[2, 2:] = best, best[:-1], np.where(may_jump, best[:-2], -np.inf)
        steps[frame] = ways.argmax(axis=0)
        best = ways.max(axis=0) + scores[frame]
    path = np.full(frames, count - 2 + (best[-1] > best[-2]), np.intp)
    for frame in range(frames - 1, 0, -1):
        path[frame - 1] = path[frame] - steps[frame, path[frame]]
    return path


def words(parts: Sequence[tuple[bytes, TokenSpan | None]], longest_ms: int) -> tuple[Word, ...]:
    """Words of a text and when they were said, none beyond `longest_ms`.

    parts: the text's UTF-8 in pieces, each with its token's span, None if it has none. Punctuation stays with its word
    and takes no time: it lies at the end of the token said before it. Confidence is the mean over timed characters.
    """
    groups: list[list[_Sign]] = []
    letter, apart = "", True  # the open word's last letter; whether white space came
    for sign in _signs(parts):
        if sign.text.isspace():
            apart = True
            continue
        alone = sign.text.isalnum() and bool(letter) and (_unspaced(sign.text) or _unspaced(letter))
        if apart or alone or (bool(letter) and category(sign.text) in OPENING):
            groups.append([])
            letter, apart = "", False
        groups[-1].append(sign)
        letter = sign.text if sign.text.isalnum() else letter
    return tuple(_word(group, longest_ms) for group in groups)


def _signs(parts: Sequence[tuple[bytes, TokenSpan | None]]) -> Iterator[_Sign]:
    """Characters with times: from where its first byte's token has it to where its last byte's has it."""
    edges = [edge for raw, span in parts for edge in _edges_ms(raw, span)]
    spans = [span for raw, span in parts for _ in raw]
    said_ms, at = 0.0, 0  # end of the last token that took time; position among the bytes
    for text in b"".join(raw for raw, _ in parts).decode("utf-8"):
        first, last = at, at + len(text.encode("utf-8")) - 1
        at, span = last + 1, spans[last]
        if span is None or category(text)[0] in SILENT:
            yield _Sign(text, said_ms, said_ms, None)
        else:
            yield _Sign(text, edges[first][0] if spans[first] else said_ms, edges[last][1], span.probability)
            said_ms = span.end * FRAME_MS


def _edges_ms(raw: bytes, span: TokenSpan | None) -> list[tuple[float, float]]:
    """When each byte begins and ends: a token's time is shared equally, the space before it left out."""
    start, end = (span.start, span.end) if span else (0, 0)
    space = len(raw) - len(raw.lstrip(b" "))
    share_ms = (end - start) * FRAME_MS / max(1, len(raw) - space)
    return list(pairwise(start * FRAME_MS + share_ms * max(0, at - space) for at in range(len(raw) + 1)))


def _word(group: Sequence[_Sign], longest_ms: int) -> Word:
    timed = [(sign, sign.probability) for sign in group if sign.probability is not None]
    first, last = (timed[0][0], timed[-1][0]) if timed else (group[0], group[-1])
    return Word(
        text="".join(sign.text for sign in group),
        start_ms=min(round(first.start_ms), longest_ms),
        end_ms=min(round(last.end_ms), longest_ms),
        confidence=sum(probability for _, probability in timed) / len(timed) if timed else None,
    )


def _unspaced(sign: str) -> bool:
    return any(low <= ord(sign) <= high for low, high in UNSPACED)

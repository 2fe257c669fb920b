"""CTC forced alignment: when each token of a known text was said, and from there each word.

The most probable path through the frames is found by dynamic programming (Viterbi). Its states are the tokens with a
blank before, between and after them:

    blank  t0  blank  t1  blank  ...  tn  blank          from frame to frame a path stays, goes one state on,
                                                         or jumps over a blank between two different tokens

Source: Graves et al., "Connectionist Temporal Classification" (2006); Kürzinger et al., "CTC-Segmentation" (2020).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.segments import Word

Pair = tuple[
    NDArray[np.float32], Sequence[int]
]  # log-probabilities (frames, vocabulary), and tokens said in them

FRAME_MS = 60  # one frame of log-probabilities
SILENT = "PZC"  # general categories of signs that take no time: punctuation, separators, controls
OPENING = ("Ps", "Pi")  # general categories of signs that belong to the word after them

# Scripts without spaces, where each letter is a word: Thai to Myanmar, Khmer, ideographic marks, kana, ideographs.
UNSPACED = (
    (0x0E00, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)  # fmt: skip
_UNSPACED_EDGES = [
    edge for low, high in UNSPACED for edge in (low, high + 1)
]  # rising: an odd number means inside


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
    return align_all([(log_probs, tokens)], blank)[0]


def align_all(pairs: Sequence[Pair], blank: int) -> list[list[TokenSpan] | None]:
    """`align` each pair (log_probs, tokens), all in one pass over the frames; their lengths may differ."""
    found: list[list[TokenSpan] | None] = [[] if _fits(*pair) else None for pair in pairs]
    rows = [row for row, (_, tokens) in enumerate(pairs) if tokens and found[row] is not None]
    if rows:
        for row, spans in zip(rows, _spans([pairs[row] for row in rows], blank), strict=True):
            found[row] = spans
    return found


def _fits(log_probs: NDArray[np.float32], tokens: Sequence[int]) -> bool:
    return len(log_probs) >= len(tokens) + sum(one == other for one, other in pairwise(tokens))


def _spans(pairs: Sequence[Pair], blank: int) -> Iterator[list[TokenSpan]]:
    """Spans of each pair's tokens; there is at least one, and they fit.

    Every pair's frames end with the last: before the first, a path waits in the first state, which costs nothing.
    """
    counts = [2 * len(tokens) + 1 for _, tokens in pairs]
    frames = max(len(log_probs) for log_probs, _ in pairs)
    waits = [frames - len(log_probs) for log_probs, _ in pairs]
    scores = np.full((frames, len(pairs), max(counts)), -np.inf, np.float32)
    jumps = np.full(scores.shape[1:], -np.inf)
    for row, (log_probs, tokens) in enumerate(pairs):
        states = np.full(counts[row], blank)
        states[1::2] = tokens
        scores[: waits[row], row, 0] = 0
        scores[waits[row] :, row, : counts[row]] = log_probs[:, states]
        jumps[row, 2 : counts[row]][states[2:] != states[:-2]] = 0
    paths = _best_paths(scores, jumps, np.array(counts))
    heard = np.full((frames + 1, len(pairs)), -np.inf, np.float32)  # one frame more, see below
    heard[:-1] = np.take_along_axis(scores, paths[..., None], axis=2)[..., 0]
    for row, count in enumerate(counts):
        edges = np.searchsorted(paths[waits[row] :, row], np.arange(1, count))  # start and end of each token
        # The maximum from each edge to the next; `reduceat` wants the last edge, too, to be a place in the array.
        peaks = np.maximum.reduceat(heard[waits[row] :, row], edges)[::2]
        yield list(map(TokenSpan, edges[::2].tolist(), edges[1::2].tolist(), np.exp(peaks).tolist()))


def _best_paths(
    scores: NDArray[np.float32], jumps: NDArray[np.float64], counts: NDArray[np.intp]
) -> NDArray[np.intp]:
    """State per frame of each row's best path, (frames, rows); of equal ones, the one that enters each state earliest.

    scores: (frames, rows, states).  jumps: (rows, states), 0 where a path may come from two states before, else -inf.
    counts: (rows,), states that are the row's own; a path ends in one of the last two.
    """
    frames, rows, states = scores.shape
    best = np.full((rows, states + 2), -np.inf)  # two more in front, which no path comes from
    stay, step, jump = best[:, 2:], best[:, 1:-1], best[:, :-2]
    stay[:, 0] = 0
    moves = np.empty(scores.shape, np.int8)
    for frame in range(frames):
        np.greater(step, stay, out=moves[frame], casting="unsafe")
        ways, jumped = np.maximum(stay, step), jump + jumps
        np.putmask(moves[frame], jumped > ways, 2)
        np.add(np.maximum(ways, jumped, out=ways), scores[frame], out=stay)
    row = np.arange(rows)
    paths = np.empty((frames, rows), np.intp)
    paths[-1] = counts - 2 + (stay[row, counts - 1] > stay[row, counts - 2])
    for frame in range(frames - 1, 0, -1):
        paths[frame - 1] = paths[frame] - moves[frame, row, paths[frame]]
    return paths


def words(parts: Sequence[tuple[bytes, TokenSpan | None]], longest_ms: int) -> tuple[Word, ...]:
    """Words of a text and when they were said, none beyond `longest_ms`.

    parts: the text's UTF-8 in pieces, each with its token's span, None if it has none. Punctuation stays with its word
    and takes no time: it lies at the end of the character said before it. Confidence is the mean over timed characters.
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
    said_ms, at = 0.0, 0  # end of the last character that took time; position among the bytes
    for text in b"".join(raw for raw, _ in parts).decode("utf-8"):
        first, last = at, at + len(text.encode("utf-8")) - 1
        at, span = last + 1, spans[last]
        if span is None or category(text)[0] in SILENT:
            yield _Sign(text, said_ms, said_ms, None)
        else:
            start_ms, said_ms = edges[first][0] if spans[first] else said_ms, edges[last][1]
            yield _Sign(text, start_ms, said_ms, span.probability)


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
    return bisect_right(_UNSPACED_EDGES, ord(sign)) % 2 == 1

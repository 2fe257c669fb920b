"""Forced alignment against every possible path, and the way from tokens with times to words."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from realtime_server.core.alignment import FRAME_MS, UNSPACED, TokenSpan, align, align_all, words
from realtime_server.core.segments import Word

BLANK = 3  # of a vocabulary of 4


def log_probs(frames: int, seed: int) -> NDArray[np.float32]:
    """Random log-probabilities (frames, 4)."""
    logits = np.random.default_rng(seed).normal(0, 2, (frames, BLANK + 1))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


def every_path(scores: NDArray[np.float32], tokens: list[int]) -> list[TokenSpan] | None:
    """The slow way: of all label sequences that read as `tokens`, the most probable."""
    best: tuple[float, tuple[int, ...]] | None = None
    for labels in product(range(BLANK + 1), repeat=len(scores)):
        read = [
            label for i, label in enumerate(labels) if label != BLANK and (i == 0 or labels[i - 1] != label)
        ]
        if read == tokens:
            score = float(sum(scores[i, label] for i, label in enumerate(labels)))
            best = max(best or (score, labels), (score, labels))
    if best is None:
        return None
    spans: list[TokenSpan] = []
    for i, label in enumerate(best[1]):
        if label == BLANK:
            continue
        probability = float(np.exp(scores[i, label]))
        if i and best[1][i - 1] == label:
            spans[-1] = TokenSpan(spans[-1].start, i + 1, max(spans[-1].probability, probability))
        else:
            spans.append(TokenSpan(i, i + 1, probability))
    return spans


@given(
    tokens=st.lists(st.integers(0, BLANK - 1), max_size=4),
    frames=st.integers(0, 6),
    seed=st.integers(0, 1_000),
)
def test_the_best_of_all_paths(tokens: list[int], frames: int, seed: int) -> None:
    scores = log_probs(frames, seed)
    assert align(scores, tokens, BLANK) == every_path(scores, tokens)


def state_by_state(scores: NDArray[np.float32], tokens: list[int]) -> list[TokenSpan] | None:
    """The plain way: for each state the best path so far; of equal ones, the one that came to the state earliest."""
    states = [BLANK, *(label for token in tokens for label in (token, BLANK))]
    ways: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for frame in scores:
        before, ways = ways, {}
        for state, label in enumerate(states):
            may_jump = state > 1 and label not in (BLANK, states[state - 2])
            sources = [state, state - 1, state - 2][: 2 + may_jump]
            known = [before[source] for source in sources if source in before]
            if known:
                score, path = max(known, key=lambda way: way[0])
                ways[state] = (score + float(frame[label]), (*path, state))
    if not tokens:
        return []
    ends = [ways[state] for state in (len(states) - 2, len(states) - 1) if state in ways]
    if not ends:
        return None
    _, path = max(ends, key=lambda way: way[0])
    spans = []
    for state in range(1, len(states), 2):
        said = [frame for frame, other in enumerate(path) if other == state]
        peak = max(scores[frame, states[state]] for frame in said)
        spans.append(TokenSpan(said[0], said[-1] + 1, float(np.exp(peak))))
    return spans


@st.composite
def pairs(draw: st.DrawFn) -> tuple[NDArray[np.float32], list[int]]:
    """Log-probabilities, half of them of few values so that many paths are equally good, and tokens."""
    frames, seed = draw(st.integers(0, 12)), draw(st.integers(0, 1_000))
    scores = log_probs(frames, seed)
    if draw(st.booleans()):
        scores = np.round(scores / 2)
    return scores, draw(st.lists(st.integers(0, BLANK - 1), max_size=6))


@given(st.lists(pairs(), max_size=6))
def test_a_batch_gives_what_each_gives_alone(batch: list[tuple[NDArray[np.float32], list[int]]]) -> None:
    found = align_all(batch, BLANK)
    assert found == [align(scores, tokens, BLANK) for scores, tokens in batch]
    assert found == [state_by_state(scores, tokens) for scores, tokens in batch]


@pytest.mark.parametrize(
    ("tokens", "frames", "fits"),
    [
        ([0], 1, True), ([0], 0, False), ([0, 1, 2], 3, True), ([0, 1, 2], 2, False),
        ([0, 0], 2, False), ([0, 0], 3, True), ([], 0, True), ([], 5, True),
    ],
)  # fmt: skip
def test_a_token_needs_a_frame_and_a_repeated_one_another(tokens: list[int], frames: int, fits: bool) -> None:
    spans = align(log_probs(frames, 0), tokens, BLANK)
    assert (spans is not None) == fits
    assert spans is None or len(spans) == len(tokens)


@pytest.mark.parametrize("tail", [BLANK, 1])
def test_spans_are_where_the_tokens_are_loud(tail: int) -> None:
    heard = [BLANK, 0, 0, BLANK, BLANK, 0, 2, 2, 1, tail]
    scores = np.full((len(heard), BLANK + 1), np.log(0.01), np.float32)
    scores[np.arange(len(heard)), heard] = np.log(0.97)
    spans = align(scores, [0, 0, 2, 1], BLANK)
    assert spans is not None
    assert [(span.start, span.end) for span in spans] == [(1, 3), (5, 6), (6, 8), (8, 9 + (tail == 1))]
    assert all(span.probability == pytest.approx(0.97) for span in spans)


def test_a_minute_of_speech_is_aligned() -> None:
    tokens = np.random.default_rng(0).integers(0, BLANK, 400).tolist()
    spans = align(log_probs(1_000, 1), tokens, BLANK)
    assert spans is not None
    assert all(span.start < span.end for span in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))


# --- words -------------------------------------------------------------------------------------------------


def timed(*parts: tuple[str | bytes, int | None, int]) -> list[tuple[bytes, TokenSpan | None]]:
    """Parts (text, first frame, end frame), without a token where the first frame is None."""
    return [
        (
            raw.encode() if isinstance(raw, str) else raw,
            None if start is None else TokenSpan(start, end, 0.5),
        )
        for raw, start, end in parts
    ]


def said(*parts: tuple[str | bytes, int | None, int]) -> list[tuple[str, int, int]]:
    """Words of the parts, times in frames."""
    found = words(timed(*parts), longest_ms=10**9)
    return [(word.text, word.start_ms // FRAME_MS, word.end_ms // FRAME_MS) for word in found]


def test_words_are_parted_by_spaces() -> None:
    assert said(("hel", 0, 1), ("lo", 2, 4), (" world", 7, 9)) == [("hello", 0, 4), ("world", 7, 9)]


def test_a_character_is_a_word_in_scripts_without_spaces() -> None:
    assert said(("你", 1, 2), ("好", 3, 5), ("ok", 6, 8)) == [("你", 1, 2), ("好", 3, 5), ("ok", 6, 8)]


@pytest.mark.parametrize(("low", "high"), UNSPACED)
def test_such_scripts_end_where_they_end(low: int, high: int) -> None:
    """A letter outside stays with the letter before it."""
    for code in (low - 1, low, high, high + 1):
        sign = chr(code)
        if sign.isalnum():
            inside = any(first <= code <= last for first, last in UNSPACED)
            assert len(said(("a", 0, 1), (sign, 1, 2))) == 1 + inside


def test_a_token_shares_its_time_among_its_characters() -> None:
    assert said(("你好吗", 3, 6)) == [("你", 3, 4), ("好", 4, 5), ("吗", 5, 6)]


def test_a_character_may_lie_in_several_tokens() -> None:
    raw = "好".encode()
    assert said((raw[:1], 2, 3), (raw[1:], 5, 7), ("吗", 8, 9)) == [("好", 2, 7), ("吗", 8, 9)]


def test_punctuation_takes_no_time() -> None:
    parts = ("你好", 1, 3), ("，", 6, 7), (" world", 8, 10), ("...", 11, 14), (" ?", 15, 16)
    assert said(*parts) == [("你", 1, 2), ("好，", 2, 3), ("world...", 8, 10), ("?", 10, 10)]


def test_an_opening_sign_belongs_to_the_word_after_it() -> None:
    parts = ("(", 0, 1), ("你", 2, 3), ("（", 4, 5), ("好", 6, 7), ("）", 8, 9), (" (so", 10, 12)
    assert said(*parts) == [("(你", 2, 3), ("（好）", 6, 7), ("(so", 10, 12)]


def test_what_has_no_token_takes_no_time() -> None:
    parts = ("x", None, 0), ("a", 2, 3), ("x", None, 0), (" ", None, 0), ("x", None, 0), ("你", 5, 6)
    assert said(*parts) == [("xax", 2, 3), ("x", 3, 3), ("你", 5, 6)]


def test_marks_stay_with_their_letter() -> None:
    assert said(("हि", 0, 2), ("न्", 2, 4), ("दी", 5, 7)) == [("हिन्दी", 0, 7)]


def test_nothing_is_beyond_the_audio() -> None:
    parts = timed(("one", 0, 2), (" two", 2, 4))
    assert words(parts, longest_ms=150) == (Word("one", 0, 120, 0.5), Word("two", 120, 150, 0.5))


def test_confidence_is_the_mean_over_timed_characters() -> None:
    parts = [(b"ab", TokenSpan(0, 1, 0.2)), (b"c", TokenSpan(1, 2, 0.8)), (b"!", TokenSpan(2, 3, 0.1))]
    (word,) = words(parts, longest_ms=1_000)
    assert word.confidence == pytest.approx((0.2 + 0.2 + 0.8) / 3)
    (alone,) = words([(b"!", TokenSpan(2, 3, 0.1))], longest_ms=1_000)
    assert alone == Word("!", 0, 0, None)


def test_no_text_has_no_words() -> None:
    assert words([], longest_ms=1_000) == ()


@example([("0« 0", 0, 1, True)])
@given(
    st.lists(st.tuples(st.text(max_size=6), st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=12)
)
def test_words_are_the_text_in_order(pieces: list[tuple[str, int, int, bool]]) -> None:
    parts, frame = [], 0
    for text, pause, length, has_token in pieces:
        raw = text.encode(errors="replace")
        parts.append((raw, TokenSpan(frame + pause, frame + pause + length, 0.5) if has_token else None))
        frame += pause + length
    text = b"".join(raw for raw, _ in parts).decode()
    found = words(parts, longest_ms=10**9)
    assert "".join(word.text for word in found) == "".join(text.split())
    times = [time for word in found for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)

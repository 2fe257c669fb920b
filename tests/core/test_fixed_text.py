"""Fixed text only grows, ends with a word, and begins the whole text; later versions go on where it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.fixed_text import FixedText
from realtime_server.core.stabilization import is_word_edge
from tests.core.test_stabilization import words


def after(*partials: str, rollback_chars: int = 8) -> FixedText:
    text = FixedText(rollback_chars)
    text.receive_open(0)
    for n, partial in enumerate(partials):
        text.receive_partial(0, partial, 16_000 * (n + 1))
    return text


@pytest.mark.parametrize(
    ("rollback_chars", "before", "later", "fixed"),
    [
        (8, "It was the", "It was the best of", "It was the"),
        (8, "It was the best", "It was the best of", "It was the"),  # "best" is among the last 8 characters
        (8, "It was the", "It was the b", "It"),
        (8, "It was", "It was", ""),
        (0, "It was", "It was the", "It was"),
        (0, "It was the", "It was then", "It was"),
        (8, "今天天气很好，我们去", "今天天气很好，我们去公园散步", "今天天气很好"),
        (3, "今天天气很好。", "今天天气很好，我们", "今天天气很好"),
        (8, "안녕하세요 여러분", "안녕하세요 여러분 반갑습니다", "안녕하세요"),
        (8, "用GPT测试一下这个东西", "用GPT测试一下这个东西吧", "用GPT测"),
        (8, "a completely different", "It was the best of times", ""),
    ],
)
def test_what_two_partials_agree_on_is_fixed_but_for_the_end(
    rollback_chars: int, before: str, later: str, fixed: str
) -> None:
    text = after(before, later, rollback_chars=rollback_chars)
    assert text.fixed == fixed
    assert text.text == later


def test_what_is_fixed_stays_when_a_partial_says_less_or_something_else() -> None:
    text = after("It was the best of", "It was the best of times")
    assert text.fixed == "It was the best"
    text.receive_partial(0, "It was", 50_000)
    assert (text.fixed, text.text) == ("It was the best", "It was the best")
    text.receive_partial(0, "it was a best of times, it", 60_000)
    assert (text.fixed, text.text) == ("It was the best", "It was the best of times, it")


def test_a_locked_segment_goes_on_after_what_was_fixed() -> None:
    text = after("it was the best of", "it was the best of times")
    text.receive_locked(0, "It was the best of times.")
    assert text.fixed == text.text == "it was the best of times."


def test_a_segment_without_words_keeps_what_was_fixed() -> None:
    text = after("it was the best of", "it was the best of times")
    text.receive_locked(0, "")
    assert text.fixed == text.text == "it was the best"


def test_segments_are_joined_as_sentences_are() -> None:
    text = FixedText(0)
    for segment, sentence in enumerate(["One.", "二。", "三。"]):
        text.receive_open(segment)
        text.receive_locked(segment, sentence)
    assert text.fixed == "One.二。三。"


def test_nothing_is_fixed_behind_a_segment_that_is_not_locked() -> None:
    text = after("one two", "one two three", rollback_chars=0)
    text.receive_open(1)
    text.receive_partial(1, "four five", 90_000)
    text.receive_partial(1, "four five six", 99_000)
    assert (text.fixed, text.text) == ("one two", "one two three four five six")
    text.receive_locked(0, "One two three.")
    assert text.fixed == "one two three. four five"


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, list[str], str]]:
    """Segments: how their words are joined, the partials, the final; mostly versions of each other."""
    segments = []
    for _ in range(draw(st.integers(1, 3))):
        said, space = draw(words), draw(st.sampled_from([" ", ""]))
        partials = []
        for end in sorted(draw(st.lists(st.integers(0, len(said)), max_size=6))):
            heard = [draw(st.sampled_from([word, word, word, "x", ""])) for word in said[:end]]
            partials.append(space.join(filter(None, heard)))
        segments.append((space, partials, space.join(draw(st.sampled_from([said, said[1:], []])))))
    return segments


@given(histories(), st.integers(0, 10))
def test_fixed_text_only_grows_and_begins_the_text(
    segments: list[tuple[str, list[str], str]], rollback_chars: int
) -> None:
    text, before = FixedText(rollback_chars), ""
    for segment, (_, partials, final) in enumerate(segments):
        text.receive_open(segment)
        for n, partial in enumerate(partials):
            text.receive_partial(segment, partial, n)
            assert text.fixed.startswith(before)
            assert text.text.startswith(text.fixed)
            assert is_word_edge(text.text, len(text.fixed))
            before = text.fixed
        text.receive_locked(segment, final)
        assert text.fixed.startswith(before)
        assert text.text == text.fixed
        before = text.fixed

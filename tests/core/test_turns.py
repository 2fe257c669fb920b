"""Turns of a segment, and its text split by them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.jobs import Window
from realtime_server.core.segments import Word, to_samples
from realtime_server.core.turns import Turn, find_turns, main_speaker, split_text, spoken

# --- turns ------------------------------------------------------------------------------------------------


def turn(start_ms: int, end_ms: int, speaker: int | None) -> Turn:
    return Turn(to_samples(start_ms), to_samples(end_ms), speaker)


def turns_of(end_ms: int, *speakers: int | None, start_ms: int = 0, step_ms: int = 750) -> tuple[Turn, ...]:
    """Turns of a segment with windows every 0.75 s, given their speakers."""
    starts = [to_samples(start_ms + step_ms * at) for at in range(len(speakers))]
    windows = [Window(start, start + to_samples(1500)) for start in starts]
    return find_turns(to_samples(start_ms), to_samples(end_ms), windows, speakers)


def test_one_speaker_has_one_turn() -> None:
    assert turns_of(3100, 0, 0, 0, start_ms=100) == (turn(100, 3100, 0),)


def test_a_segment_without_windows_is_nobodys() -> None:
    assert turns_of(300) == (turn(0, 300, None),)


def test_the_speaker_changes_half_way_between_two_centres() -> None:
    assert turns_of(4500, 0, 0, 1, 1, 1) == (turn(0, 1875, 0), turn(1875, 4500, 1))


def test_a_turn_of_one_window_is_kept() -> None:
    assert turns_of(4500, 0, 0, 1, 0, 0) == (turn(0, 1875, 0), turn(1875, 2625, 1), turn(2625, 4500, 0))


def test_a_turn_that_is_too_short_goes_to_its_neighbours() -> None:
    assert turns_of(3000, 0, 0, 1, 0, 0, step_ms=375) == (turn(0, 3000, 0),)


def test_it_goes_to_the_longer_one() -> None:
    assert turns_of(3400, 0, 1, 2, 2, 2, step_ms=400) == (turn(0, 950, 0), turn(950, 3400, 2))
    assert turns_of(2100, 0, 1, step_ms=600) == (turn(0, 1050, 0), turn(1050, 2100, 1))
    assert turns_of(1700, 0, 1, step_ms=200) == (turn(0, 850, 0), turn(850, 1700, 1))
    assert turns_of(1500, 0, 1, step_ms=200) == (turn(0, 1500, 0),)


@given(st.lists(st.sampled_from([None, 0, 1, 2]), max_size=12), st.integers(100, 1500))
def test_turns_cover_the_segment_and_differ_from_their_neighbours(
    speakers: list[int | None], step_ms: int
) -> None:
    end_ms = 1500 + step_ms * len(speakers)
    turns = turns_of(end_ms, *speakers, step_ms=step_ms)
    assert (turns[0].start, turns[-1].end) == (0, to_samples(end_ms))
    for one, other in pairwise(turns):
        assert one.end == other.start
        assert one.speaker != other.speaker
    assert len(turns) == 1 or all(one.end - one.start >= to_samples(700) for one in turns)


def test_the_main_speaker_has_most_of_the_time() -> None:
    turns = (turn(0, 1000, 0), turn(1000, 2000, 1), turn(2000, 2500, 0))
    assert main_speaker(turns, 0, to_samples(2500)) == 0
    assert main_speaker(turns, to_samples(500), to_samples(2200)) == 1
    assert main_speaker(turns, 0, to_samples(2000)) == 0
    assert main_speaker(turns, to_samples(2500), to_samples(2600)) is None


# --- splitting --------------------------------------------------------------------------------------------

TWO = (turn(1000, 2000, 0), turn(2000, 4000, 1))


def said(*texts: str, step_ms: int = 400) -> tuple[Word, ...]:
    """Words of 400 ms one after the other, from the segment's start; by TWO the first two are speaker 0's."""
    return tuple(Word(text, step_ms * at, step_ms * at + step_ms) for at, text in enumerate(texts))


def texts_of(text: str, *words: str) -> list[str]:
    return [piece.text for piece in split_text(text, said(*words), TWO)]


def test_a_text_is_split_where_the_speaker_changes() -> None:
    first, second = split_text("Hello there. Yes, hello.", said("Hello", "there.", "Yes,", "hello."), TWO)
    assert (first.text, first.speaker, first.start_ms, first.end_ms) == ("Hello there.", 0, 1000, 1800)
    assert (second.text, second.speaker, second.start_ms, second.end_ms) == ("Yes, hello.", 1, 1800, 4000)
    assert first.words == (Word("Hello", 1000, 1400), Word("there.", 1400, 1800))
    assert second.words == (Word("Yes,", 1800, 2200), Word("hello.", 2200, 2600))


@pytest.mark.parametrize(
    ("text", "words", "pieces"),
    [
        ("one two three", "one two three", ["one two", "three"]),
        ("one, two... three", "one two three", ["one, two...", "three"]),
        ("ONE Ｔｗｏ thrée", "one two three", ["ONE Ｔｗｏ", "thrée"]),
        ("one two . three", "one two three", ["one two .", "three"]),
        ("one two. (three)", "one two three", ["one two.", "(three)"]),
        ('one "two." "Three."', "one two three", ['one "two."', '"Three."']),
        ("one two. $3", "one two 3", ["one two.", "$3"]),
        ("un deux\u00a0! «\u00a0Trois\u00a0»", "un deux trois", ["un deux\u00a0!", "«\u00a0Trois\u00a0»"]),
        ("「好。」「世界」", "好 。 世 界", ["「好。」", "「世界」"]),
        ("你好。世界", "你 好 世 界", ["你好。", "世界"]),
        ("你 好 世界", "你 好 世 界", ["你 好", "世界"]),
        ("好 world 再见", "好 world 再 见", ["好 world", "再见"]),
        ("- one two - three", "- one two - three", ["- one", "two - three"]),
        ("♪ ♪ one", "♪ ♪ one", ["♪ ♪ one"]),
    ],
)
def test_signs_stay_with_the_word_they_belong_to(text: str, words: str, pieces: list[str]) -> None:
    assert texts_of(text, *words.split()) == pieces


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one two three", ""),
        ("one 2 three", "one two three"),
        ("one two three four", "one two three"),
        ("one two", "one two three"),
        ("ﬁ n", "f i n"),
        ("...", ". . ."),
        ("", ""),
    ],
)
def test_a_text_that_is_not_made_of_the_words_stays_whole(text: str, words: str) -> None:
    (piece,) = split_text(text, said(*words.split()), TWO)
    speaker = 0 if words else 1  # whose words they are, else who has most of the time
    assert (piece.text, piece.speaker, piece.start_ms, piece.end_ms) == (text, speaker, 1000, 4000)
    assert len(piece.words) == len(words.split())


@pytest.mark.parametrize(
    ("words", "span"),
    [
        ((), (1000, 4000)),
        ((Word("one", 1300, 1500), Word("two", 1600, 1900)), (1300, 1900)),
        ((Word("one", 500, 1500), Word("two", 3600, 4900)), (1000, 4000)),
        ((Word("one", 1500, 1500),), (1000, 4000)),
        ((Word("one", 4500, 4700),), (1000, 4000)),
    ],
)
def test_a_sentence_is_spoken_from_its_first_word_to_its_last(
    words: tuple[Word, ...], span: tuple[int, int]
) -> None:
    assert spoken(words, 1000, 4000) == (to_samples(span[0]), to_samples(span[1]))


def test_one_turn_needs_no_split() -> None:
    (piece,) = split_text("one two", said("one", "two"), (turn(0, 4000, None),))
    assert (piece.text, piece.speaker) == ("one two", None)


def test_a_turn_without_words_leaves_no_trace() -> None:
    turns = (turn(0, 1000, 0), turn(1000, 3000, 1), turn(3000, 4000, 0))
    words = (Word("one", 0, 800), Word("two", 3100, 3500))
    (piece,) = split_text("one two", words, turns)
    assert (piece.text, piece.speaker) == ("one two", 0)


def test_the_pause_at_a_change_is_cut_where_the_speaker_changes() -> None:
    words = (Word("one", 0, 500), Word("two", 1800, 2500))
    first, second = split_text("one two", words, TWO)
    assert first.end_ms == second.start_ms == 2000


def test_words_out_of_their_order_are_not_split() -> None:
    words = (Word("one", 2000, 2500), Word("two", 100, 200))
    assert len(split_text("one two", words, TWO)) == 1


def test_words_beyond_the_segment_belong_to_its_last_turn() -> None:
    words = (Word("one", 0, 500), Word("two", 5000, 6000))
    assert [piece.text for piece in split_text("one two", words, TWO)] == ["one", "two"]


signs = st.sampled_from("aAbé好世ﬁ0 .,!?\"'(«»「」。-$\u00a0\u0301")


@given(
    st.lists(st.text(signs, min_size=1, max_size=4), max_size=8),
    st.lists(st.text(st.sampled_from(" .,(「。")), max_size=9),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 900)), min_size=8, max_size=8),
    st.booleans(),
)
def test_no_character_is_lost_or_said_twice(
    texts: list[str], between: list[str], times: list[tuple[int, int]], ordered: bool
) -> None:
    times = sorted(times) if ordered else times
    words = [Word(text, start, start + length) for text, (start, length) in zip(texts, times, strict=False)]
    gaps = [*between, *[" "] * 9]
    text = "".join(gap + word for gap, word in zip(gaps, texts, strict=False)).strip()
    turns = (turn(0, 1000, 0), turn(1000, 2000, 1), turn(2000, 3500, 0), turn(3500, 5000, 2))
    pieces = split_text(text, words, turns)
    at = 0
    for piece in pieces:
        assert not text[at : text.index(piece.text, at)].strip()
        at = text.index(piece.text, at) + len(piece.text)
        assert piece.text == piece.text.strip()
    assert at == len(text)
    assert [word for piece in pieces for word in piece.words] == words
    assert (pieces[0].start_ms, pieces[-1].end_ms) == (0, 5000)
    assert all(one.end_ms == other.start_ms for one, other in pairwise(pieces))
    assert all(piece.start_ms < piece.end_ms and (piece.text or len(pieces) == 1) for piece in pieces)
    assert all(one.speaker != other.speaker for one, other in pairwise(pieces))

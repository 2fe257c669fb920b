"""Cues: nothing lost, nothing too wide, one at a time, broken where readers expect it."""

from __future__ import annotations

import itertools
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given

from realtime_server.core.segments import Word
from realtime_server.offline.cues import LATEST_MS, LEAST_MS, LONGEST_MS, Cue, cues
from realtime_server.offline.steps import finish
from realtime_server.offline.transcription import Transcription, one_line
from tests.offline.transcriptions import (
    CHINESE,
    ENGLISH,
    sentence,
    spoken,
    squeezed,
    transcription,
    transcriptions,
)


def all_cues(whole: Transcription, *, named: bool = False) -> list[Cue]:
    return finish(cues(whole, named=named))


def lines_of(text: str, end_ms: int = 6000) -> list[list[str]]:
    """The lines of the cues of one sentence without word times."""
    return [list(cue.lines) for cue in all_cues(transcription(sentence(text, 0, end_ms)))]


def times_of(found: list[Cue]) -> list[tuple[int, int]]:
    return [(cue.start_ms, cue.end_ms) for cue in found]


def columns(line: str) -> float:
    """Share of a line that is 42 letters or 16 ideographs."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in line)
    flat = sum(unicodedata.category(sign) in ("Mn", "Me", "Cf") for sign in line)
    return wide / 16.8 + (len(line) - wide - flat) / 42


# Properties


def check(whole: Transcription, found: list[Cue]) -> None:
    assert all(cue.start_ms >= 0 for cue in found[:1])
    for cue, after in itertools.zip_longest(found, found[1:]):
        long = cue.end_ms - cue.start_ms
        assert 0 < long <= LONGEST_MS
        assert long >= LEAST_MS or (after and cue.end_ms == after.start_ms)
        assert after is None or cue.end_ms <= after.start_ms
        assert 1 <= len(cue.lines) <= 2
        assert all(line and line == one_line(line) and columns(line) < 1.0001 for line in cue.lines)
    for channel in {one.channel for one in whole.sentences}:
        said = "".join(one_line(one.text) for one in whole.sentences if one.channel == channel)
        shown = "".join("".join(cue.lines) for cue in found if cue.speaker == channel)
        assert squeezed(shown) == squeezed(said)


@given(transcriptions())
def test_cues_of_one_channel(whole: Transcription) -> None:
    check(whole, all_cues(whole))


@given(transcriptions(channels=3))
def test_cues_of_channels_that_overlap(whole: Transcription) -> None:
    found = all_cues(whole, named=True)
    check(whole, found)
    room = 1 - len("Speaker 1: ") / 42
    assert all(columns(line) < room + 0.0001 for cue in found for line in cue.lines)


@given(transcriptions())
def test_words_are_broken_only_if_they_fill_a_line(whole: Transcription) -> None:
    shown = " ".join(line for cue in all_cues(whole) for line in cue.lines).split()
    said = " ".join(one.text for one in whole.sentences)
    assert {word for word in one_line(said).split() if word.isascii() and len(word) <= 42} <= set(shown)


# Where lines and cues are broken


def test_a_short_sentence_is_one_line() -> None:
    assert lines_of("Call me Ishmael.") == [["Call me Ishmael."]]
    assert lines_of("x" * 42) == [["x" * 42]]
    assert lines_of("字" * 16) == [["字" * 16]]
    assert lines_of("") == []
    assert lines_of(" \n ") == []


def test_two_lines_are_of_similar_width() -> None:
    assert lines_of("some of these words are on a line and the others below") == [
        ["some of these words are on", "a line and the others below"]
    ]
    assert lines_of("字" * 17) == [["字" * 8, "字" * 9]]


def test_cues_end_where_clauses_do() -> None:
    assert lines_of(ENGLISH, 12_000) == [
        ["It was the best of times,", "it was the worst of times,"],
        ["it was the age of wisdom,", "it was the age of foolishness,"],
        ["it was the epoch of belief,", "it was the epoch of incredulity."],
    ]
    assert lines_of(CHINESE, 10_000) == [
        ["我一直没有照顾孩子，", "但是我想要抚养权。"],
        ["因为我觉得（可能）我可以给他", "更好的生活，所以我来到这里。"],
    ]
    assert lines_of("“我不知道。”" + "话" * 30)[0] == ["“我不知道。”"]


def test_korean_is_broken_at_its_spaces() -> None:
    assert lines_of("안녕하세요 여러분 오늘은 날씨가 아주 좋네요 그래서") == [
        ["안녕하세요 여러분 오늘은", "날씨가 아주 좋네요 그래서"]
    ]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("字" * 16 + "。" + "字" * 5, "字。"),
        ("字" * 7 + "（" + "字" * 12, "（字"),
        ("カ" * 16 + "ーカ", "カー"),
        ("あ" * 16 + "っあ", "あっ"),
        ("字" * 15 + "Whisper字", "Whisper"),
        ("a" * 41 + "e\u0301e\u0301", "e\u0301"),
        ("म" * 41 + "क\u094d\u200dषम", "क\u094d\u200dष"),
        ("字" * 15 + "👍🏽字", "👍🏽"),
    ],
)
def test_what_belongs_together_is_on_one_line(text: str, whole: str) -> None:
    (lines,) = lines_of(text)
    assert len(lines) == 2
    assert "".join(lines) == text
    assert any(whole in line for line in lines)


def test_a_word_is_one_even_without_spaces() -> None:
    words = spoken(["人工智能", "语音识别", "服务器系统", "说明书文件"], 0, 6000)
    text = "".join(word.text for word in words)
    (cue,) = all_cues(transcription(sentence(text, 0, 6000, words=words)))
    assert cue.lines == ("人工智能语音识别", "服务器系统说明书文件")


def test_a_word_wider_than_a_line_is_broken_anyway() -> None:
    assert lines_of("x" * 100) == [["x" * 42], ["x" * 42, "x" * 16]]
    (lines,) = lines_of("म\u200d" * 49 + "म")  # nowhere without a joiner
    assert lines == ["म\u200d" * 42, "म\u200d" * 7 + "म"]


# When cues are shown


def test_cues_have_the_times_of_their_words() -> None:
    texts = [f"word{at:02}" for at in range(20)]
    words = spoken(texts, 1000, 11_000, gap_ms=100)
    first, second = all_cues(transcription(sentence(" ".join(texts), 900, 11_500, words=words)))
    assert first.lines[0].startswith("word00")
    begins = texts.index(second.lines[0].split()[0])
    assert times_of([first, second]) == [(1000, words[begins - 1].end_ms), (words[begins].start_ms, 10_900)]


def test_a_cue_is_cut_where_the_speaker_pauses() -> None:
    texts = ["one", "two", "three", "four", "five", "six"]
    words = spoken(texts[:2], 0, 800) + spoken(texts[2:], 9000, 11_000)
    found = all_cues(transcription(sentence("one two three four five six", 0, 11_000, words=words)))
    assert times_of(found) == [(0, 833), (9000, 11_000)]
    assert [cue.lines for cue in found] == [("one two",), ("three four five six",)]


def test_of_two_places_a_pause_is_taken() -> None:
    texts = ["word"] * 22
    words = spoken(texts[:8], 0, 2400) + spoken(texts[8:], 3000, 8100)
    found = all_cues(transcription(sentence(" ".join(texts), 0, 8100, words=words)))
    assert times_of(found) == [(0, 2400), (3000, 8100)]


def test_without_word_times_characters_share_the_sentences_time() -> None:
    assert times_of(all_cues(transcription(sentence("字" * 64, 2000, 12_000)))) == [
        (2000, 7000),
        (7000, 12_000),
    ]


def test_words_that_were_replaced_leave_the_times_of_the_others() -> None:
    said = ["mister", "smith", *[f"word{at}" for at in range(10, 30)]]
    words = spoken(said, 0, 11_000)
    text = " ".join(["Mr Smythe-Montgomery of the House of Lords", *said[2:]])
    last = all_cues(transcription(sentence(text, 0, 11_000, words=words)))[-1]
    assert last.start_ms == words[said.index(last.lines[0].split()[0])].start_ms


def test_a_slow_word_is_not_shown_for_longer_than_a_cue_may_be() -> None:
    assert times_of(all_cues(transcription(sentence("No.", 0, 60_000)))) == [(0, LONGEST_MS)]


def test_a_sentence_without_time_is_shown_all_the_same() -> None:
    assert times_of(all_cues(transcription(sentence("Yes.", 5000, 5000)))) == [(5000, 5000 + LEAST_MS)]


def test_times_outside_the_sentence_are_drawn_into_it() -> None:
    words = [Word("one", 9000, 100), Word("two", 20_000, 30_000)]
    assert times_of(all_cues(transcription(sentence("one two", 10_000, 12_000, words=words)))) == [
        (10_000, 12_000)
    ]


def test_a_short_cue_is_held_while_the_next_one_can_wait() -> None:
    whole = transcription(sentence("Yes.", 0, 200), sentence("I do think so, indeed.", 200, 3000))
    assert times_of(all_cues(whole)) == [(0, 833), (833, 3000)]


def test_overlapping_sentences_share_the_time() -> None:
    long = "This takes five seconds to say and to read."
    whole = transcription(
        sentence(long, 0, 5000), sentence("Mhm.", 2000, 2400), sentence("Well.", 5000, 6000)
    )
    found = all_cues(whole)
    assert times_of(found) == [(0, 4000), (4000, 4833), (5000, 6000)]
    even = transcription(sentence("We both talk.", 0, 3000), sentence("At one time.", 0, 3000))
    assert times_of(all_cues(even)) == [(0, 1560), (1560, 3000)]


def test_nobody_waits_long_however_many_talk_at_once() -> None:
    whole = transcription(*[sentence("We all talk at once.", 1000, 6000, speaker=at) for at in range(8)])
    found = all_cues(whole)
    assert [cue.speaker for cue in found] == list(range(8))
    assert all(cue.start_ms <= 1000 + LATEST_MS + 8 for cue in found)
    assert all(one.end_ms <= other.start_ms for one, other in pairwise(found))

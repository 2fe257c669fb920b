"""Tokens with times become words with times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.segments import Word
from realtime_server.models.whisper_words import (
    EARLY_MS,
    TokenSpan,
    characters,
    is_unspaced,
    set_in,
    token_starts,
    words,
)
from tests.audio import silence, tone


def spans(*pieces: str | bytes, each_ms: float = 100.0) -> list[TokenSpan]:
    """Tokens said one after the other."""
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return [TokenSpan(piece, n * each_ms, (n + 1) * each_ms, 0.5 + 0.1 * n) for n, piece in enumerate(raw)]


def texts(*pieces: str | bytes) -> list[str]:
    return [word.text for word in words(spans(*pieces))]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((" Hello", " world", "."), ["Hello", "world."]),
        ((" Com", "fy", "UI", " is", " nice"), ["ComfyUI", "is", "nice"]),
        ((" don", "'t", " ill", "-", "disposed", "!"), ["don't", "ill-disposed!"]),
        ((" 3", ".", "14", ",", " no"), ["3.14,", "no"]),
        (("我们", "在", "学习", "。"), ["我", "们", "在", "学", "习。"]),
        (("学习", " Machine", " Learning", "，", "希望"), ["学", "习", "Machine", "Learning，", "希", "望"]),
        (("用", "GPU", "跑"), ["用", "GPU", "跑"]),
        (("他说", "：", "「", "好", "」", "。"), ["他", "说：", "「好」。"]),
        (("こんにちは",), ["こ", "ん", "に", "ち", "は"]),
        ((" \u201cYes", ",\u201d", " he", " said"), ["\u201cYes,\u201d", "he", "said"]),
        ((" 안녕", "하세요"), ["안녕하세요"]),
        ((" -", " Oh"), ["-", "Oh"]),
        ((), []),
    ],
)
def test_words_by_script(pieces: tuple[str, ...], expected: list[str]) -> None:
    assert texts(*pieces) == expected


def test_punctuation_and_spaces_take_no_time() -> None:
    hello, world = words(spans(" Hello", ",", " world", "."))
    assert (hello.start_ms, hello.end_ms) == (0, 100)
    assert (world.start_ms, world.end_ms) == (200, 300)


def test_a_token_of_several_characters_shares_its_time() -> None:
    assert [(w.text, w.start_ms, w.end_ms) for w in words(spans("我们", "好"))] == [
        ("我", 0, 50), ("们", 50, 100), ("好", 100, 200),
    ]  # fmt: skip


def test_a_character_of_several_tokens_spans_them() -> None:
    raw = "馗".encode()
    (word,) = words(spans(raw[:1], raw[1:2], raw[2:]))
    assert (word.text, word.start_ms, word.end_ms) == ("馗", 0, 300)
    assert word.confidence == pytest.approx(0.6)


def test_half_a_character_at_the_end_is_left_out() -> None:
    assert texts("好", "馗".encode()[:2]) == ["好"]


def test_confidence_is_the_mean_over_tokens() -> None:
    (word,) = words(spans(" ill", "-", "disposed"))
    assert word.confidence == pytest.approx(0.6)


def test_conversion_keeps_times() -> None:
    traditional = spans("開", "放")
    simple = words(traditional, lambda text: text.replace("開", "开"))
    assert [word.text for word in simple] == ["开", "放"]
    assert [word.start_ms for word in simple] == [word.start_ms for word in words(traditional)]


@given(st.text(max_size=40), st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_no_letter_is_lost_however_the_bytes_are_cut(text: str, cuts: list[int]) -> None:
    raw, pieces = text.encode("utf-8", errors="ignore"), []
    for size in cuts * 200:
        pieces.append(raw[:size])
        raw = raw[size:]
        if not raw:
            break
    said = spans(*pieces)
    whole = "".join(sign.text for sign in characters(said))
    assert whole == text.encode("utf-8", errors="ignore").decode()
    found = words(said)
    assert "".join(word.text for word in found) == "".join(whole.split())
    times = [time for word in found for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)


def test_tokens_begin_where_the_path_enters_them() -> None:
    path = [(0, 0), (0, 5), (1, 5), (1, 6), (2, 6), (2, 9), (3, 9)]
    assert token_starts(path, 3) == [EARLY_MS + 20 * at for at in (0, 5, 6, 9)]


def test_a_path_that_ends_early_gives_the_rest_no_time() -> None:
    assert token_starts([(0, 0), (0, 4)], 2) == [EARLY_MS, EARLY_MS + 80, EARLY_MS + 80]
    assert token_starts([], 1) == [0.0, 0.0]


def test_a_word_starts_where_its_sound_sets_in() -> None:
    audio = np.concatenate([silence(0.5), tone(0.5), silence(0.4), tone(0.2)])
    one, two = set_in([Word("one", 0, 900), Word("two", 900, 1700)], audio)
    assert (one.start_ms, one.end_ms) == (500, 900)
    assert (two.start_ms, two.end_ms) == (1400, 1600)


def test_a_pause_within_the_span_ends_the_word_before() -> None:
    audio = np.concatenate([tone(0.1), silence(0.5), tone(0.3)])
    (word,) = set_in([Word("what", 0, 900)], audio)
    assert word.start_ms == 600


def test_words_stay_within_the_audio() -> None:
    (late,) = set_in([Word("late", 1200, 1240)], tone(1.0))
    assert (late.start_ms, late.end_ms) == (1000, 1000)


@pytest.mark.parametrize(
    ("sign", "unspaced"), [("好", True), ("の", True), ("ก", True), ("a", False), ("한", False)]
)
def test_scripts_without_spaces(sign: str, unspaced: bool) -> None:
    assert is_unspaced(sign) is unspaced

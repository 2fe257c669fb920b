"""Stable text only grows and never ends within a word; a worse final never takes proven text away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.jobs import Finish
from realtime_server.core.partials import join_texts
from realtime_server.core.postprocess import clean
from realtime_server.core.stabilization import (
    KEPT_PROVEN,
    Recovered,
    StableText,
    continue_text,
    letters,
    recover,
    spoken_size,
    word_ends,
)

PROVEN = "当然可以。目前我们已经完成了第一阶段的调查研究工作。"


def after(*partials: str) -> StableText:
    text = StableText()
    for n, partial in enumerate(partials):
        text.receive_partial(partial, 16_000 * (n + 1))
    return text


def proven(text: StableText) -> str:
    return text.proven_until(text.latest_end)


# Stable text


@pytest.mark.parametrize(
    ("before", "later", "stable"),
    [
        ("", "", ""),
        ("", "hello", ""),
        ("hello", "hello", "hello"),
        ("hello wor", "hello world", "hello"),
        ("hello world", "hello wor", "hello"),
        ("hello", "hello world", "hello"),
        ("hello.", "hello world", "hello"),
        ("Hello, world is", "hello world was", "hello world"),
        ("don", "don't", ""),
        ("today I don't know", "today I don’t know", "today I don’t know"),
        ("今天天", "今天天气", "今天天"),
        ("今天天气。", "今天天气很好。", "今天天气"),
        ("今天天气，很好", "今天天气很好吗", "今天天气很好"),
        ("用GPT测", "用GPTs测", "用"),
        ("が", "か\u3099", "か\u3099"),
        ("か", "か\u3099", ""),
        ("안녕하", "안녕하세요", ""),
        ("안녕 세", "안녕 세상", "안녕"),
        ("สวัส", "สวัสดี", "สวัส"),
        ("हिन्द", "हिन्दी", ""),
        ("👩", "👩\u200d🔬", ""),
        ("می\u200cخوا", "می\u200cخواهم", ""),
        ("می\u200cخواهم", "میخواهم", "میخواهم"),
        ("x 3.1", "x 3.14", "x 3"),
    ],
)
def test_stable_is_what_two_partials_share(before: str, later: str, stable: str) -> None:
    assert after(before, later).stable == stable


def test_stable_text_never_changes() -> None:
    text = after("I think so", "I think so too")
    assert (text.stable, text.unstable) == ("I think so", " too")
    text.receive_partial("I sink so too", 64_000)
    assert (text.stable, text.unstable) == ("I think so", " too")
    text.receive_partial("I", 80_000)
    assert (text.stable, text.unstable) == ("I think so", "")
    text.receive_partial("I think so too, yes", 96_000)
    assert (text.stable, text.unstable, text.latest_end) == ("I think so", " too, yes", 96_000)


def test_stable_text_grows_on_past_punctuation_that_moves() -> None:
    text = after(
        "这个过程，很简单", "这个过程，很简单。", "这个过程很简单，而且特", "这个过程很简单，而且特别"
    )
    assert (text.stable, text.unstable) == ("这个过程，很简单，而且特", "别")
    text.receive_partial("这个过程。很简单，而且特别是", 99_000)
    assert (text.stable, text.unstable) == ("这个过程，很简单，而且特别", "是")


def test_a_word_more_or_less_in_the_beginning_neither_repeats_nor_loses_one_behind_the_stable_text() -> None:
    text = after("so we went home", "so we went home")
    text.receive_partial("and so we went home again", 64_000)
    assert (text.stable, text.unstable) == ("so we went home", " again")
    text.receive_partial("we went home again", 80_000)
    assert (text.stable, text.unstable) == ("so we went home", " again")


@given(st.lists(st.text(st.sampled_from("ab' .好的か\u3099\u0301"), max_size=8), max_size=6))
def test_stable_text_only_grows_and_ends_between_words(partials: list[str]) -> None:
    text = StableText()
    for n, partial in enumerate(partials):
        shorter = text.stable
        text.receive_partial(partial, n)
        assert text.stable.startswith(shorter)
        assert text._known == [word for word, _ in word_ends(text.stable)]
        if partial.startswith(text.stable):
            assert text.stable + text.unstable == partial
        if text.stable != shorter:
            inside = text.stable[-1] in "ab'" and text.unstable[:1] in ("a", "b", "'")
            assert not inside
            assert text.unstable[:1] not in ("\u3099", "\u0301")


# What follows words that are known


@pytest.mark.parametrize(
    ("known", "text", "whole"),
    [
        ("", "", ""),
        ("", "And so", "And so"),
        ("and so", "And so, my fellow", "and so, my fellow"),
        ("and so", "", "and so"),
        ("and so", ".", "and so"),
        ("and so my", "And my fellow Americans", "and so my fellow Americans"),  # one word fewer
        ("and my", "And so my fellow Americans", "and my fellow Americans"),  # one word more
        ("four score", "for score and seven", "four score and seven"),
        ("we are", "we were going", "we are going"),
        ("hello", "hello's there", "hello there"),
        ("今天天", "今天，天气很好", "今天天气很好"),
        ("你好吗 ok", "你好吗okay再见", "你好吗 ok再见"),
        ("wo ai ni", "我爱你hello", "wo ai ni hello"),
        ("one", "two three", "one three"),
    ],
)
def test_another_version_goes_on_behind_the_words_that_are_known(known: str, text: str, whole: str) -> None:
    assert continue_text(known, text) == whole


words = st.lists(
    st.sampled_from([*"abc", "best", "times,", "don't", "天", "气。", "안녕", "สวัสดี", "."]), max_size=12
)


@given(words, words)
def test_nothing_is_repeated_or_lost_where_versions_agree(first: list[str], rest: list[str]) -> None:
    known, whole = join_texts(first), join_texts([*first, *rest])
    assert continue_text(known, whole) == whole


@given(st.text("一二三", max_size=9), st.text("一二三", max_size=9))
def test_the_words_that_are_known_are_found_by_the_fewest_edits_then_the_most_words(
    known: str, text: str
) -> None:
    costs = [edits(known, text[:count]) for count in range(len(text) + 1)]
    count = max(count for count, cost in enumerate(costs) if cost == min(costs))
    assert continue_text(known, text) == known + text[count:]


def edits(one: str, other: str) -> int:
    """Letters to replace, leave out or insert, at least."""
    row = list(range(len(other) + 1))
    for sign in one:
        before, row = row, [row[0] + 1]
        for at, heard in enumerate(other):
            row.append(min(before[at] + (sign != heard), before[at + 1] + 1, row[at] + 1))
    return row[-1]


# Proven text


def test_the_same_text_twice_is_proven_with_its_punctuation() -> None:
    assert proven(after(PROVEN)) == ""
    assert proven(after(PROVEN, PROVEN)) == PROVEN


def test_one_worse_partial_does_not_unprove() -> None:
    for worse in ("", "当然可以。", "当", "好，拜拜。"):
        assert proven(after(PROVEN, PROVEN, worse)) == PROVEN


def test_no_speech_twice_does_not_unprove() -> None:
    assert proven(after(PROVEN, PROVEN, "", "")) == PROVEN


def test_another_text_twice_is_the_proven_one() -> None:
    assert proven(after("谢谢观看请订阅", "谢谢观看请订阅", "好。", "好。")) == "好。"


def test_proven_text_grows_and_is_revised() -> None:
    assert proven(after("a b c d", "a b c d", "a b c e f", "a b c e f g")) == "a b c e f"


def test_a_segment_cut_early_gets_no_later_words() -> None:
    text = after("one", "one two", "one two three", "one two three four")
    # What partials n and n + 1 share was heard by the end of partial n.
    assert [text.proven_until(16_000 * n) for n in range(4)] == ["", "one", "one two", "one two three"]
    assert proven(text) == "one two three"


def test_the_proven_texts_are_bounded() -> None:
    text = after(*("好" * n for n in range(1, 200)))
    assert proven(text) == "好" * 198
    assert text.proven_until(16_000 * (198 - KEPT_PROVEN)) == ""


# Finals


@pytest.mark.parametrize("final", ["当然可以。", "当", "好", "", "好，拜拜。" * 80])
def test_a_lost_tail_is_recovered(final: str) -> None:
    cleaned = clean(final, seconds=6.0, finish="stop")
    result = recover(cleaned.text, finish="stop", reduced=cleaned.reduced, proven=PROVEN)
    assert result == Recovered(PROVEN, recovered=True)


@pytest.mark.parametrize(
    ("final", "finish", "reduced", "known", "recovered"),
    [
        ("anything", "stop", False, "", False),
        ("", "gated", False, "", False),
        ("", "gated", False, "。", False),
        ("", "gated", False, "hello", True),
        ("Hello, World!", "stop", False, "hello world", False),
        ("hello word", "stop", False, "hello world", False),
        ("hello worl", "stop", False, "hello world", True),
        ("hello world and more", "stop", False, "hello world", False),
        ("ＨＥＬＬＯ world", "stop", False, "hello world", False),
        ("yes", "stop", False, "hello world", True),
        ("1999", "stop", False, "nineteen ninety nine", False),
        ("we are the champions", "stop", False, "we are the champignons", False),
        ("we are the champions", "length", False, "we are the champignons", True),
        ("we were the champions of it", "length", False, "we are the champignons", False),
        ("we are bye bye", "stop", True, "we are here", True),
        ("北京明天。", "stop", False, "Fenwik Kaylin", False),
        ("大家早上好。", "stop", False, "Dajia zaoshang hao", False),
        ("大家早上好。", "length", False, "Dajia zaoshang", False),
        ("大家早上好。", "stop", True, "Dajia", False),
        ("Dajia zaoshang", "length", False, "大家早上好", True),
        ("大家", "stop", False, "大家早上好", True),
        ("we are here and a very long tail follows bye bye", "stop", True, "we are here", False),
    ],
)
def test_recover(final: str, finish: Finish, reduced: bool, known: str, recovered: bool) -> None:
    text = known if recovered else final
    assert recover(final, finish=finish, reduced=reduced, proven=known) == Recovered(text, recovered)


@given(st.text(), st.text(), st.booleans())
def test_what_is_locked_is_the_final_or_the_proven_text(final: str, known: str, reduced: bool) -> None:
    result = recover(final, finish="stop", reduced=reduced, proven=known)
    assert result.text == (known if result.recovered else final)
    said, proven = letters(result.text), letters(known)
    assert 2 * spoken_size(said) >= spoken_size(proven) or any(map(str.isdigit, said))


def test_letters() -> None:
    assert letters("Ｈello, 世界! don't 3.5 हिन्दी") == "hello世界dont35हिन्दी"

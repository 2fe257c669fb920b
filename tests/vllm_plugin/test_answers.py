"""Streamed or whole, answers are the same, and hold nothing that is no text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from realtime_server.vllm_plugin.answers import StreamedAnswer, cleaned

PIECES = st.sampled_from(
    ["<|im_end|>", "<|", "|>", "<", ">", "/s", "</s>", "<unk>", "<|zh|>", " ", "\n", "\ufffd", "\u200b", "\u200d", "क",
     "a", "你", "好", "。", "1 < 2", "<|a", "im_"]
)  # fmt: skip


def streamed(deltas: list[str]) -> list[str]:
    answer = StreamedAnswer()
    return [answer.process_delta(delta, n == len(deltas) - 1) for n, delta in enumerate(deltas)]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("打开12咖啡。", "打开12咖啡。"),
        (" open 12 coffee.<|im_end|>", "open 12 coffee."),
        ("<|zh|><|NEUTRAL|>你好</s>", "你好"),
        ("你好\ufffd", "你好"),
        ("a\u200b  b\n", "a b"),
        ("1 < 2", "1 < 2"),
        ("", ""),
    ],
)
def test_answers_are_cleaned(raw: str, text: str) -> None:
    assert cleaned(raw) == text
    assert "".join(streamed(list(raw) or [""])) == text


@given(st.lists(PIECES, min_size=1, max_size=24))
@example(["<|<|", "a", "|>b|>", "c"])
def test_deltas_add_up_to_the_whole(deltas: list[str]) -> None:
    assert "".join(streamed(deltas)) == cleaned("".join(deltas))


@given(st.lists(PIECES, min_size=1, max_size=24))
def test_no_delta_shows_a_control_token_or_half_a_character(deltas: list[str]) -> None:
    sent = ""
    for delta in streamed(deltas):
        sent += delta
        assert cleaned(sent) == sent.rstrip()
        assert not sent.endswith("\ufffd")


def test_a_control_token_in_pieces_is_never_shown() -> None:
    assert streamed(["你", "好<", "|im", "_end|", ">", ""]) == ["你", "好", "", "", "", ""]


def test_what_only_looked_like_one_is_shown_when_that_is_known() -> None:
    assert streamed(["a <", " b", ""]) == ["a", " < b", ""]
    assert streamed(["a <|", ""]) == ["a", " <|"]


def test_half_a_character_waits_for_its_other_half() -> None:
    assert streamed(["你\ufffd", "", "好"]) == ["你", "", "\ufffd好"]  # it stays where it is not the end
    assert streamed(["你\ufffd", ""]) == ["你", ""]

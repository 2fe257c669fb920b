"""Caps, raw tokens, rows that are fit to submit, and text that grows by whole characters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from realtime_server.engines.generation import Generated, Sampling, TextStream, check_rows, token_cap
from realtime_server.errors import EngineError, UnsupportedError

STOP = Sampling(max_tokens=10, stop_ids=(7, 9))


def test_the_cap_grows_with_the_audio_and_a_wish_only_lowers_it() -> None:
    assert token_cap(0.0) == 16
    assert token_cap(10.0) == 176
    assert token_cap(10.0, 20) == 20
    assert token_cap(1.0, 1000) == 32
    assert token_cap(1.0, 0) == 1


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1, 2, 7], Generated((1, 2), (-1.0, -2.0), "stop")),
        ([1, 2, 9, 5], Generated((1, 2), (-1.0, -2.0), "stop")),
        ([1, 2, 3], Generated((1, 2, 3), (-1.0, -2.0, -3.0), "length")),
        ([7], Generated((), (), "stop")),
    ],
)
def test_raw_tokens_are_cut_at_the_first_stop_token(ids: list[int], expected: Generated) -> None:
    logprobs = [-1.0, -2.0, -3.0, -4.0][: len(ids)]
    assert Generated.cut(ids, logprobs, STOP) == expected
    assert Generated.cut(ids, None, STOP) == Generated(expected.ids, None, expected.finish)


def decode(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def test_text_grows_by_whole_characters() -> None:
    told: list[str] = []
    stream = TextStream(decode, "a ", told.append)
    data = "é你𝄞b".encode()
    for end in range(len(data) + 1):
        stream(data[:end])
    assert told == ["a é", "a é你", "a é你𝄞", "a é你𝄞b"]


def test_what_cannot_become_a_character_is_shown_once_it_is_passed() -> None:
    told: list[str] = []
    stream = TextStream(decode, "", told.append)
    for ids in ([0xFF], [0xFF, 0x41], [0xFF, 0x41, 0xE4, 0xBD]):
        stream(ids)
    assert told == ["\ufffdA"]


@pytest.mark.torch
def test_rows_that_are_fit() -> None:
    torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")
    for rows in (torch.zeros(1, 4), torch.ones(9, 4, dtype=torch.bfloat16)):
        check_rows(rows, 4, 10)


@pytest.mark.torch
def test_rows_that_are_not() -> None:
    torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")
    one_bad = torch.zeros(5, 4)
    one_bad[3, 2] = torch.nan
    for rows, error in (
        (torch.zeros(4), EngineError),
        (torch.zeros(1, 5, 4), EngineError),
        (torch.zeros(5, 4, dtype=torch.int32), EngineError),
        (torch.zeros(5, 3), EngineError),
        (torch.zeros(0, 4), UnsupportedError),
        (torch.zeros(10, 4), UnsupportedError),
        (one_bad, EngineError),
        (torch.full((5, 4), -torch.inf), EngineError),
    ):
        with pytest.raises(EngineError) as caught:
            check_rows(rows, 4, 10)
        assert type(caught.value) is error, rows.shape

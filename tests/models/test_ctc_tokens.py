"""The CTC branch's tokenizer: its own rules, and the same ids as the tiktoken package."""

from __future__ import annotations

import base64
import string
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.errors import WeightsError
from realtime_server.models.ctc_tokens import CtcTokenizer, Piece
from tests.conftest import SHARED

# As the reference splits text; tiktoken takes it as it is.
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
JOINED = [b"th", b"he", b"the", b" t", b" the", b"\xe4\xbd", "你".encode(), b"'s"]
TOKENS = [*(bytes([byte]) for byte in range(256)), *JOINED]
TEXTS = [
    "", " ", "the", " the  the\n\nthe ", "They're here, it's the CAT'S, don't", "I'LL 'll''s", "你好，世界！",
    "2025年3月", "a1b2²½Ⅷ", "x_y-z+=#@", "tab\tand\u3000wide\xa0space \n", "हिन्दी ไทย 한국어 日本語カタカナ", "🎧👩💻",
    "e\u0301 é", "<|zh|> <|im_end|>", "\x1c\x1d", "　　two wide", "the" * 50, string.printable,
]  # fmt: skip


def lines(tokens: dict[bytes, int]) -> str:
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in tokens.items())


@pytest.fixture
def small(tmp_path: Path) -> CtcTokenizer:
    path = tmp_path / "small.tiktoken"
    path.write_text(lines({token: rank for rank, token in enumerate(TOKENS)}))
    return CtcTokenizer.read(path)


def tiktoken_of(ranks: dict[bytes, int]) -> Any:
    tiktoken = pytest.importorskip(
        "tiktoken", reason="compares with the tiktoken package, which is not installed"
    )
    return tiktoken.Encoding("test", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


@cache
def published() -> tuple[CtcTokenizer, Any]:
    """The published vocabulary in ours and in tiktoken."""
    path = SHARED / "models" / "multilingual.tiktoken"
    if not path.is_file():
        pytest.skip("the published vocabulary is not on this machine (set REALTIME_SERVER_TEST_DATA)")
    pairs = (line.split() for line in path.read_text().splitlines())
    return CtcTokenizer.read(path), tiktoken_of({base64.b64decode(token): int(rank) for token, rank in pairs})


def test_the_lowest_rank_is_joined_first(small: CtcTokenizer) -> None:
    assert [piece.raw for piece in small.pieces("the other thee")] == [
        b"the", b" ", b"o", b"the", b"r", b" the", b"e",
    ]  # fmt: skip
    assert [piece.raw for piece in small.pieces("你们")] == [
        "你".encode(),
        *(bytes([b]) for b in "们".encode()),
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_there_and_back(small: CtcTokenizer, text: str) -> None:
    assert small.decode(small.encode(text)) == text
    assert b"".join(piece.raw for piece in small.pieces(text)).decode() == text


def test_what_the_vocabulary_lacks_has_no_token() -> None:
    tokenizer = CtcTokenizer({b"a": 0, b"b": 1, b"ab": 2})
    assert tokenizer.pieces("ab cab") == [
        Piece(b"ab", 2), Piece(b" ", None), Piece(b"c", None), Piece(b"ab", 2),
    ]  # fmt: skip
    assert tokenizer.encode("xyz") == []
    assert tokenizer.decode([0, 99, 1]) == "ab"
    assert tokenizer.size == 3


def test_lone_surrogates_do_no_harm(small: CtcTokenizer) -> None:
    assert small.decode(small.encode("a\ud800b")) == "a?b"


@pytest.mark.parametrize("text", TEXTS)
def test_small_vocabulary_as_tiktoken(small: CtcTokenizer, text: str) -> None:
    assert small.encode(text) == tiktoken_of({token: rank for rank, token in enumerate(TOKENS)}).encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_published_vocabulary_as_tiktoken(text: str) -> None:
    ours, theirs = published()
    assert ours.encode(text) == theirs.encode(text, disallowed_special=())
    assert ours.decode(ours.encode(text)) == text


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cn"]), max_size=40))
def test_any_text_as_tiktoken(text: str) -> None:
    ours, theirs = published()
    assert ours.encode(text) == theirs.encode(text, disallowed_special=())


def test_the_published_file_has_an_empty_token(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary"
    path.write_text("YQ== 0\n\n= 1\n")
    assert CtcTokenizer.read(path).pieces("aa") == [Piece(b"a", 0), Piece(b"a", 0)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"), ("YQ==\n", "'YQ=='"), ("YQ== x\n", "'YQ== x'"), ("!!!! 1\n", "no token and rank"),
        ("YQ== 1\nYg== 1\n", "share a rank"), ("YQ== -1\n", "is no CTC vocabulary"), ("é 1\n", "is no CTC vocabulary"),
    ],
)  # fmt: skip
def test_a_damaged_vocabulary_is_named(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "vocabulary"
    path.write_text(content, "utf-8")
    with pytest.raises(WeightsError, match=complaint):
        CtcTokenizer.read(path)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"cannot read the CTC vocabulary .*none"):
        CtcTokenizer.read(tmp_path / "none")

"""Tokens that the operator gives out, and the file that they stand in."""

from __future__ import annotations

from pathlib import Path

import pytest

from realtime_server.doors.tokens import RIGHTS, Token, Tokens, read_token_file
from realtime_server.errors import ConfigurationError

LONG, OTHER = "0123456789abcdef", "0123456789abcdeF"


def test_a_token_is_found_by_its_text_and_by_its_name() -> None:
    one, two = Token.of("one", LONG), Token.of("two", OTHER)
    tokens = Tokens([one, two])
    assert (tokens.find(LONG), tokens.find(OTHER)) == (one, two)
    assert [tokens.find(text) for text in ("", LONG[:-1], LONG + "0", "\udcff", "ü")] == [None] * 5
    assert (tokens.named("two"), tokens.named(LONG)) == (two, None)
    assert (len(tokens), len(Tokens())) == (2, 0)


def test_its_text_is_not_kept() -> None:
    assert LONG not in repr(Token.of("one", LONG))
    assert "digest" not in repr(Token.of("one", LONG))


@pytest.mark.parametrize(
    "value",
    [
        "", "short", LONG[:15], "x" * 513, "with a space in it", "päßwörter sind lang", "rts." + LONG,
    ],
)  # fmt: skip
def test_a_text_that_is_no_token_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ConfigurationError, match="16 to 512 visible ASCII characters") as refused:
        Token.of("one", value)
    assert not value or value not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "ä"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="a token's name"):
        Token.of(name, LONG)


def test_neither_names_nor_tokens_may_be_there_twice() -> None:
    with pytest.raises(ConfigurationError, match=r"^two tokens are named 'one'"):
        Tokens([Token.of("one", LONG), Token.of("one", OTHER)])
    with pytest.raises(ConfigurationError, match=r"^'one' and 'two' are one token"):
        Tokens([Token.of("one", LONG), Token.of("two", LONG)])


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# who\n\none {LONG}\n  two\t{OTHER} max_sessions=3 rights=view,transcribe\n")
    one, two = read_token_file(path)
    assert (one.name, one.rights, one.max_sessions) == ("one", RIGHTS, None)
    assert (two.name, two.rights, two.max_sessions) == ("two", {"view", "transcribe"}, 3)
    assert Tokens([one, two]).find(OTHER) == two


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one", "line 1: a name and a token are needed"),
        ("#\none short", "line 2: a token has 16"),
        (f"ö {LONG}", "line 1: a token's name"),
        (f"one {LONG} {OTHER}", "line 1: word 3 cannot be read"),
        (f"one {LONG} rights=view max_sessions=0", "line 1: word 4 cannot be read"),
        (f"one {LONG} max_sessions=-1", "word 3 cannot be read"),
        (f"one {LONG} rights=", "rights are transcribe, view and metrics, not ''"),
        (f"one {LONG} rights=view,all", "rights are transcribe, view and metrics, not 'all'"),
        (f"one {LONG}\none {OTHER}", ": two tokens are named 'one'"),
        (f"one {LONG}\ntwo {LONG}", "'one' and 'two' are one token"),
        ("# nobody\n", "there is no token in it"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_words_without_secrets(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=words) as refused:
        read_token_file(path)
    assert str(refused.value).startswith(f"--token-file {path}")
    assert not any(secret in str(refused.value) for secret in (LONG, OTHER))


def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^--token-file .*: No such file or directory$"):
        read_token_file(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"^--token-file .*binary: it is not text in UTF-8$"):
        read_token_file(tmp_path / "binary")

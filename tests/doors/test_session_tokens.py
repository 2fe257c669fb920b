"""Session tokens: what may be wished, and that nothing but a true one is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.doors.session_tokens import LONGEST_S, MINTABLE, TTL_S, Signer, Wish
from realtime_server.doors.tokens import Token, Tokens
from realtime_server.errors import AdmissionError, FieldError

KEY, NOW_S = b"k" * 32, 1_000_000.7
ONE = Token.of("one", "0123456789abcdef", max_sessions=2)
TOKENS = Tokens([ONE])
SIGNER = Signer(KEY)
MINTED = SIGNER.sign(ONE, Wish(), NOW_S)


def why(value: str, tokens: Tokens = TOKENS, signer: Signer = SIGNER, now_s: float = NOW_S) -> str:
    """The reason for which a token is refused; empty if it is not."""
    try:
        signer.read(value, tokens, now_s)
    except AdmissionError as error:
        return error.reason
    return ""


def test_what_is_signed_can_be_read() -> None:
    wish = Wish(frozenset({"view"}), 60, "abc")
    minted = SIGNER.sign(ONE, wish, NOW_S)
    assert minted.expires_s == 1_000_060
    assert minted.body == {
        "token": minted.value, "expires_at": 1_000_060, "ttl_s": 60, "rights": ["view"], "session": "abc",
    }  # fmt: skip
    claim = Signer(KEY).read(minted.value, TOKENS, 1_000_059.9)
    assert (claim.maker, claim.rights, claim.session) == (ONE, {"view"}, "abc")
    assert minted.value.isascii()
    assert "=" not in minted.value


def test_it_ends() -> None:
    assert why(MINTED.value, now_s=MINTED.expires_s - 0.001) == ""
    assert why(MINTED.value, now_s=MINTED.expires_s) == "expired_token"


def test_it_ends_with_the_token_that_made_it() -> None:
    assert why(MINTED.value, Tokens()) == "bad_token"
    assert why(MINTED.value, Tokens([Token.of("one", "0123456789abcdeF")])) == "bad_token"
    assert why(MINTED.value, Tokens([Token.of("two", "0123456789abcdef")])) == "bad_token"


def test_it_can_do_no_more_than_that_token_can_now() -> None:
    less = Tokens([Token.of("one", "0123456789abcdef", rights=frozenset({"view"}))])
    both = SIGNER.sign(ONE, Wish(frozenset({"view", "transcribe"})), NOW_S)
    assert SIGNER.read(both.value, less, NOW_S).rights == {"view"}


def test_another_key_does_not_read_it() -> None:
    assert why(MINTED.value, signer=Signer(b"l" * 32)) == "bad_token"


@given(st.integers(0, len(MINTED.value) - 1), st.characters(min_codepoint=33, max_codepoint=126))
def test_no_other_text_is_read(place: int, character: str) -> None:
    changed = MINTED.value[:place] + character + MINTED.value[place + 1 :]
    # The last character of the signature has two bits that say nothing.
    assert why(changed) == "bad_token" or changed[:-1] == MINTED.value[:-1]


@given(st.text(max_size=60))
def test_nothing_breaks_it(text: str) -> None:
    assert why(text) == why("rts." + text) == "bad_token"


@pytest.mark.parametrize(
    "payload",
    [
        {}, {"name": ["one"]}, {"name": "one"}, {"name": "one", "rights": 1, "ends": 2e9, "session": None},
        {"name": "one", "rights": [[]], "ends": 2e9, "session": None},
        {"name": "one", "rights": ["view"], "ends": "x", "session": None},
        {"name": "one", "rights": ["view"], "ends": None, "session": None},
    ],
)  # fmt: skip
def test_a_signed_payload_of_another_version_is_not_read(payload: dict[str, object]) -> None:
    assert why(SIGNER.seal(ONE, payload)) == "bad_token"


@pytest.mark.parametrize(
    ("fields", "wish"),
    [
        ({}, Wish()),
        ({"ttl_s": 1}, Wish(ttl_s=1)),
        ({"ttl_s": LONGEST_S}, Wish(ttl_s=LONGEST_S)),
        ({"rights": ["view"], "session": "abc"}, Wish(frozenset({"view"}), TTL_S, "abc")),
        ({"session": "a-b_C0"}, Wish(session="a-b_C0")),
        ({"rights": [*MINTABLE, "view"], "session": None}, Wish(frozenset(MINTABLE))),
    ],
)
def test_wishes(fields: dict[str, object], wish: Wish) -> None:
    assert Wish.read(fields) == wish


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ([], None, "send a JSON object"),
        ({"ttl": 5}, "ttl", "'ttl' is not known; there are rights, ttl_s and session"),
        ({"ttl_s": 0}, "ttl_s", f"from 1 to {LONGEST_S}"),
        ({"ttl_s": LONGEST_S + 1}, "ttl_s", "whole number of seconds"),
        ({"ttl_s": 5.0}, "ttl_s", "whole number of seconds"),
        ({"ttl_s": "5"}, "ttl_s", "whole number of seconds"),
        ({"ttl_s": True}, "ttl_s", "whole number of seconds"),
        ({"rights": "view"}, "rights", "a list of transcribe and view, not empty"),
        ({"rights": []}, "rights", "not empty"),
        ({"rights": ["metrics"]}, "rights", "a list of"),
        ({"rights": [["view"]]}, "rights", "a list of"),
        ({"rights": ["view"], "session": ""}, "session", "the name of one"),
        ({"session": 5}, "session", "the name of one"),
        ({"session": "a/b"}, "session", "the name of one"),
    ],
)
def test_what_cannot_be_wished_is_refused_by_name(fields: object, field: str | None, words: str) -> None:
    with pytest.raises(FieldError, match=words) as refused:
        Wish.read(fields)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("query", "wish"),
    [
        ("", Wish()),
        ("rights=view&ttl_s=60&session=abc", Wish(frozenset({"view"}), 60, "abc")),
        ("rights=view,transcribe", Wish(frozenset(MINTABLE))),
    ],
)
def test_wishes_in_a_query(query: str, wish: Wish) -> None:
    assert Wish.read_query(query) == wish


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("ttl_s=1.5", "ttl_s"),
        ("ttl_s=", "ttl_s"),
        ("rights=", "rights"),
        ("session=", "session"),
        ("x=1", "x"),
    ],
)
def test_what_cannot_be_wished_in_a_query(query: str, field: str) -> None:
    with pytest.raises(FieldError) as refused:
        Wish.read_query(query)
    assert refused.value.field == field

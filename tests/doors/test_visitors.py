"""Who knocks: tokens in headers and queries, and what counts as one sender."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.doors.visitors import NOBODY, Visitor, read_ip

LOCAL = "127.0.0.1"


def test_it_is_read_from_headers() -> None:
    headers = {"Authorization": ["Bearer a"], "Host": ["h:1"], "X-Forwarded-For": ["1.1.1.1", "2.2.2.2"]}
    visitor = Visitor.of(LOCAL, lambda name: headers.get(name, []), "token=b")
    assert visitor == Visitor(LOCAL, ("Bearer a",), (), ("h:1",), ("1.1.1.1", "2.2.2.2"), "token=b")


@pytest.mark.parametrize(
    ("authorization", "query", "token"),
    [
        ((), "", None),
        (("Bearer abc",), "", "abc"),
        (("bearer  abc ",), "", "abc"),
        (("Bearer abc", "Bearer abc"), "", None),
        (("Basic abc",), "", None),
        (("Bearer",), "", None),
        (("Bearer a b",), "", None),
        ((), "token=abc", "abc"),
        ((), "a=b&token=a%2Bb+c", "a+b+c"),
        ((), "%74oken=abc", "abc"),
        ((), "token=abc&token=d", "abc"),
        ((), "token", None),
        ((), "token=", None),
        ((), "tokens=abc", None),
        (("Bearer abc",), "token=d", "abc"),
        (("Basic abc",), "token=d", "d"),
    ],
)
def test_the_token(authorization: tuple[str, ...], query: str, token: str | None) -> None:
    assert Visitor(authorization=authorization, query=query).token == token


def test_the_session_that_is_asked_about() -> None:
    assert Visitor(query="token=a&session=b%2Dc").session == "b-c"
    assert Visitor(query="token=a").session is None


@pytest.mark.parametrize(
    ("authorization", "query", "asks"),
    [
        ((), "", False),
        ((), "a=b", False),
        ((), "token=", True),
        ((), "token=a", True),
        (("Basic a",), "", True),
    ],
)
def test_whoever_shows_a_token_or_its_place_asks_for_himself(
    authorization: tuple[str, ...], query: str, asks: bool
) -> None:
    assert Visitor(LOCAL, authorization, query=query).asks_for_himself is asks


def test_an_empty_parameter_is_there() -> None:
    assert Visitor(query="token=").query_token == ""
    assert Visitor(query="token").query_token is None


@pytest.mark.parametrize(
    ("address", "sender"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", NOBODY),
        ("/run/socket", NOBODY),
    ],
)
def test_what_counts_as_one_sender(address: str, sender: str) -> None:
    assert Visitor(address).sender(0) == sender


@pytest.mark.parametrize(
    ("forwarded", "proxies", "sender"),
    [
        ((), 1, LOCAL),
        (("192.0.2.1",), 0, LOCAL),
        (("192.0.2.1",), 1, "192.0.2.1"),
        (("6.6.6.6, 192.0.2.1",), 1, "192.0.2.1"),
        (("6.6.6.6", "192.0.2.1"), 1, "192.0.2.1"),
        (("6.6.6.6, 192.0.2.1, 10.0.0.1",), 2, "192.0.2.1"),
        (("192.0.2.1",), 2, "192.0.2.1"),
        (("192.0.2.1:4711",), 1, "192.0.2.1"),
        (("[2001:db8::1]:4711",), 1, "2001:db8::/64"),
        (("2001:db8::1",), 1, "2001:db8::/64"),
        (("unknown",), 1, LOCAL),
        (("",), 1, LOCAL),
    ],
)
def test_behind_proxies_the_address_that_they_saw_counts(
    forwarded: tuple[str, ...], proxies: int, sender: str
) -> None:
    assert Visitor(LOCAL, forwarded=forwarded).sender(proxies) == sender


@given(st.text(max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    read_ip(text)
    visitor = Visitor(text, (text,), (text,), (text,), (text,), text)
    assert "\n" not in visitor.sender(1)
    assert visitor.token != ""

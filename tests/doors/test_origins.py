"""Which pages may connect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.doors.origins import Origins
from realtime_server.errors import ConfigurationError

HERE = ("127.0.0.1:10095",)


@pytest.mark.parametrize(
    ("origin", "host", "named", "let_in"),
    [
        ("http://127.0.0.1:10095", "127.0.0.1:10095", False, True),
        ("http://127.0.0.1:8899", "127.0.0.1:10095", False, True),
        ("https://localhost", "localhost:10095", False, True),
        ("https://LOCALHOST:1", "localhost:10095", False, True),
        ("http://[::1]:10095", "[::1]:10095", False, True),
        ("http://192.0.2.7", "192.0.2.7:10095", False, True),
        ("http://localhost:10095", "127.0.0.1:10095", False, False),
        ("https://elsewhere.example", "127.0.0.1:10095", False, False),
        ("https://elsewhere.example", "127.0.0.1:10095", True, False),
        ("https://talk.example", "talk.example", True, True),
        ("https://talk.example", "talk.example:10095", True, True),
        (
            "https://talk.example",
            "talk.example",
            False,
            False,
        ),  # anybody may point a name of his to this machine
        ("https://nottalk.example", "talk.example", True, False),
        ("https://talk.example.evil.example", "talk.example", True, False),
        ("null", "127.0.0.1:10095", True, False),
        ("file://", "127.0.0.1:10095", True, False),
        ("", "", True, False),
        ("http://[::1", "[::1", True, False),
    ],
)
def test_without_a_list_a_page_must_come_from_the_same_host(
    origin: str, host: str, named: bool, let_in: bool
) -> None:
    assert Origins(named=named).let_in([origin], [host]) is let_in


def test_programs_that_are_no_browsers_name_no_origin() -> None:
    assert Origins().let_in([], HERE)
    assert Origins().let_in([], [])


@pytest.mark.parametrize(
    ("host", "named", "let_in"),
    [
        ("localhost:10095", False, True),
        ("LOCALHOST", False, True),
        ("[::1]:10095", False, True),
        ("192.0.2.7", False, True),
        ("talk.example:8899", False, True),  # of an origin that is listed
        ("evil.example:10095", False, False),  # a page from there, which its owner pointed to this machine
        ("localhost.evil.example", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("", False, False),
        ("[::1", False, False),
        ("evil.example:10095", True, True),
    ],
)
def test_without_an_origin_the_host_that_is_asked_for_counts(host: str, named: bool, let_in: bool) -> None:
    assert Origins(["https://talk.example"], named=named).let_in([], [host]) is let_in
    assert Origins(["*"]).let_in([], [host])


def test_every_host_that_is_asked_for_counts() -> None:
    assert not Origins().let_in([], [*HERE, "evil.example"])


@pytest.mark.parametrize("named", [False, True])
def test_without_one_host_or_with_two_origins_nobody_is_of_the_same_host(named: bool) -> None:
    own = "http://127.0.0.1:10095"
    origins = Origins(["https://talk.example"], named=named)
    assert not origins.let_in([own], [])
    assert not origins.let_in([own], [*HERE, *HERE])
    assert not origins.let_in([own, own], HERE)
    assert not origins.let_in(["https://talk.example", own], HERE)


@pytest.mark.parametrize(
    ("allowed", "origin", "let_in"),
    [
        ("https://talk.example", "https://talk.example", True),
        ("https://Talk.example:443", "https://talk.example", True),
        ("http://talk.example:80", "http://talk.example", True),
        ("https://talk.example", "http://talk.example", False),
        ("https://talk.example", "https://talk.example:8443", False),
        ("https://talk.example:8443", "https://talk.example:8443", True),
        ("https://talk.example", "https://a.talk.example", False),
        ("null", "null", True),
        ("file://", "file://", True),
        ("chrome-extension://abc", "chrome-extension://abc", True),
        ("*", "https://anywhere.example", True),
        ("*", "null", True),
    ],
)
def test_listed_origins_are_let_in(allowed: str, origin: str, let_in: bool) -> None:
    assert Origins([allowed]).let_in([origin], HERE) is let_in


@pytest.mark.parametrize(
    "text", ["talk.example", "https://", "https://talk.example/", "https://*.talk.example", "", "https://a b", "https://["]
)  # fmt: skip
def test_what_is_no_origin_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no origin: write https://HOST"):
        Origins([text])


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_breaks_it(origin: str, host: str) -> None:
    # Only an origin with a scheme can be somebody's.
    assert "://" in origin or not Origins(["https://talk.example"], named=True).let_in([origin], [host])

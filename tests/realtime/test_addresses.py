"""What an address asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.session_names import is_name
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import FieldError
from realtime_server.realtime.addresses import ToSpeak, ToView, read_address


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/", ToSpeak()),
        ("/?session=a", ToSpeak("a")),
        ("/any/path?x=1&session=%61", ToSpeak("a")),
        ("/?session=a&session=b", ToSpeak("a")),
        ("//[", ToSpeak()),
        ("//[?session=a", ToSpeak("a")),
        ("/sessions/a", ToView("a")),
        ("/sessions/%61?history=3", ToView("a", 3)),
        ("/sessions/a?history=3&history=4", ToView("a", 3)),
        ("/sessions/a?history=20000", ToView("a", 20_000)),
    ],
)
def test_addresses(path: str, wanted: object) -> None:
    assert read_address(path) == wanted


@pytest.mark.parametrize(
    "path",
    [
        "/?session=",
        "/?session=a+b",
        "/sessions/",
        "/sessions/a/b",
        "/sessions/%2561",
        "/sessions/a?history=20001",
    ]
    + [f"/sessions/a?history={text}" for text in ("", "-1", "x", "1.0", "\u0661")],
)
def test_addresses_that_cannot_be(path: str) -> None:
    with pytest.raises(FieldError):
        read_address(path)


@given(st.text(max_size=30))
def test_whoever_guards_a_session_and_whoever_names_it_read_one_name(query: str) -> None:
    try:
        wanted = read_address(f"/?session=a{query}")
    except FieldError:
        return
    assert isinstance(wanted, ToSpeak)
    assert wanted.name == Visitor(query=f"session=a{query}").session


@given(st.text(max_size=30))
def test_no_text_breaks_it(text: str) -> None:
    try:
        wanted = read_address(f"/{text}")
    except FieldError:
        return
    assert wanted.name is None or is_name(wanted.name)

"""Parameters of an address."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.doors.queries import read_query


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("a=b&c=d", {"a": "b", "c": "d"}),
        ("a=b&a=c", {"a": "b"}),
        ("a=&a=c", {"a": ""}),
        ("a&b=c=d&&=", {"b": "c=d", "": ""}),
        ("%61=b%2Bc+d%20e", {"a": "b+c+d e"}),
        ("a=%ff%", {"a": "\ufffd%"}),
    ],
)
def test_parameters(query: str, found: dict[str, str]) -> None:
    assert read_query(query) == found


@given(st.text(max_size=40), st.text(max_size=40))
def test_every_text_can_be_sent(name: str, value: str) -> None:
    assert read_query(f"x&{quote(name, safe='')}={quote(value, safe='')}&") == {name: value}


@given(st.text(max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    assert len(read_query(text)) <= text.count("=")

"""What a session may be called."""

from __future__ import annotations

import pytest

from realtime_server.core.session_names import is_name, read_name
from realtime_server.errors import FieldError


@pytest.mark.parametrize("name", ["a", "studio-1_B", "x" * 64])
def test_names_that_can_be_in_an_address(name: str) -> None:
    assert is_name(name)
    assert read_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "ä", "a\n", "../a"])
def test_names_that_cannot(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(FieldError, match="1 to 64 of the letters") as error:
        read_name(name)
    assert error.value.field == "session"

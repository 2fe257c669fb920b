"""What a session may be called: it stands in addresses, in file names and in tokens."""

from __future__ import annotations

import re

from realtime_server.errors import FieldError

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(text: str) -> bool:
    """Whether a session may be called so."""
    return NAME.fullmatch(text) is not None


def read_name(text: str) -> str:
    """Return a session's name or id as it was given. Raises FieldError if it cannot be one."""
    if is_name(text):
        return text
    raise FieldError("a session's name has 1 to 64 of the letters a-z and A-Z, digits, - and _", "session")

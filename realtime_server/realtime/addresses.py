"""What a WebSocket address asks for: to speak, under a name or none, or to view a session."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from realtime_server.errors import FieldError
from realtime_server.realtime.archive import NAME

VIEW = "/sessions/"
MOST_HISTORY = 20_000


@dataclass(frozen=True, slots=True)
class ToSpeak:
    """Any address but those of ToView. name: what the session is to be called, ?session=NAME."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToView:
    """/sessions/NAME. history: of the sentences that were locked before, the latest so many, None for all."""

    name: str
    history: int | None = None


def read_address(path: str) -> ToSpeak | ToView:
    """Read the path and query of a handshake. Raises FieldError naming what cannot be."""
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    if parts.path.startswith(VIEW):
        return ToView(read_name(unquote(parts.path.removeprefix(VIEW))), _read_history(query.get("history")))
    given = query.get("session")
    return ToSpeak(read_name(given[-1]) if given else None)


def read_name(name: str) -> str:
    """Return a session's name or id as it was given. Raises FieldError if it cannot be one."""
    if NAME.fullmatch(name):
        return name
    raise FieldError("a session's name has 1 to 64 of the letters a-z and A-Z, digits, - and _", "session")


def _read_history(given: list[str] | None) -> int | None:
    if not given:
        return None
    text = given[-1]
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MOST_HISTORY):
        raise FieldError(f"history must be a whole number from 0 to {MOST_HISTORY}", "history")
    return int(text)

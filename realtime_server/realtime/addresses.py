"""What a WebSocket address asks for: to speak, under a name or none, or to view a session."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from realtime_server.core.session_names import read_name
from realtime_server.doors.queries import read_query
from realtime_server.errors import FieldError

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
    place, _, query = path.partition("?")
    if place.startswith(VIEW):
        return ToView(read_name(unquote(place.removeprefix(VIEW))), read_history(query))
    name = read_query(query).get("session")
    return ToSpeak(None if name is None else read_name(name))


def read_history(query: str) -> int | None:
    """How many of the sentences of the past a viewer wants, None for all. Raises FieldError."""
    text = read_query(query).get("history")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MOST_HISTORY):
        raise FieldError(f"history must be a whole number from 0 to {MOST_HISTORY}", "history")
    return int(text)

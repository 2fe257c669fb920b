"""What a path is good for: the numbers are for `metrics`, a session's words for `view`, all else for `transcribe`."""

from __future__ import annotations

from realtime_server.doors.tokens import Right


def asked_for(path: str) -> tuple[Right, str | None]:
    """What right a path needs, and on which session."""
    match path.split("/"):
        case ["", "metrics"]:
            return "metrics", None
        case ["", "sessions", session, *_]:
            return "view", session
    return "transcribe", None

"""What rights paths need; nothing needs less than it should because it is written oddly."""

from __future__ import annotations

import pytest

from realtime_server.doors.paths import asked_for


@pytest.mark.parametrize(
    ("path", "right", "session"),
    [
        ("/metrics", "metrics", None),
        ("/sessions/abc", "view", "abc"),
        ("/sessions/abc/transcript.srt", "view", "abc"),
        ("/sessions/", "view", ""),
        ("/sessions", "transcribe", None),
        ("/", "transcribe", None),
        ("", "transcribe", None),
        ("/asr", "transcribe", None),
        ("/v1/models", "transcribe", None),
        ("//metrics", "transcribe", None),
        ("/metrics/", "transcribe", None),
    ],
)
def test_paths(path: str, right: str, session: str | None) -> None:
    assert asked_for(path) == (right, session)

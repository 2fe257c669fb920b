"""Counts of connections, added up and written down."""

from __future__ import annotations

from realtime_server.core.counts import SessionCounts


def test_counts_of_connections_are_added() -> None:
    whole = SessionCounts()
    for n in (1, 20):
        whole.add(SessionCounts(sessions=n, audio_samples=2 * n, errors=3 * n))
    assert whole == SessionCounts(sessions=21, audio_samples=42, errors=63)


def test_they_are_written_for_a_log_line() -> None:
    written = str(SessionCounts(sessions=2, audio_samples=24_000, errors=1))
    assert written.startswith("audio 1.5 s, speech 0.0 s, sessions 2, ")
    assert written.endswith(", errors 1")

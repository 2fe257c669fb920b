"""A whole session, fed as fast as it goes."""

from __future__ import annotations

import json
from typing import Any

from realtime_server.realtime.session import RealtimeASRSession


async def results_of(session: RealtimeASRSession, pcm: bytes, *commands: str) -> list[dict[str, Any]]:
    """Feed commands and audio in packets of 100 ms; return every result. No error may be told."""
    async with session:
        for command in ("START", *commands):
            session.feed(command)
        for start in range(0, len(pcm), 3200):
            session.feed(pcm[start : start + 3200])
        session.feed("STOP")
        session.end()
        messages = [json.loads(message) async for message in session.messages()]
    assert not [message for message in messages if message.get("event") == "error"]
    return [message for message in messages if "partial" in message]

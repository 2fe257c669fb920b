"""Whatever frames a client of either protocol sends: no crash, no hang, every message well-formed, little kept."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from realtime_server.core.commands import LONGEST_COMMAND
from realtime_server.core.endpointing_options import EndpointingOptions
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.schema import message_schema
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.engines.fake import FakeEngine, FakeScorer
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, silence, tone

VALIDATOR = Draft202012Validator(message_schema())
SETTINGS = SessionSettings(
    options=DecodingOptions(language="en"), endpointing=EndpointingOptions(mode="fixed", silence_ms=400),
    limits=Limits(session_s=60, undecoded_s=30, sentences=20, hotwords=50, hotword_characters=500, queued_commands=20),
)  # fmt: skip
HANGS_S = 60.0  # after so long it does

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 100_000) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "language": st.sampled_from(["en", "", "中文", "Klingon"]),
    "hotwords": st.lists(st.text(max_size=5), max_size=3),
    "replacements": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    "encoding": st.sampled_from(["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]),
    "sample_rate": st.sampled_from([8000, 11025, 16000, 44100, 48000]),
    "channels": st.integers(1, 3),
    "endpointing": st.fixed_dictionaries({"mode": st.sampled_from(["dynamic", "fixed", "client"])}),
    "partials": st.booleans(), "words": st.booleans(), "speakers": st.booleans(), "confidence": st.booleans(),
    "events": st.booleans(), "resume": st.booleans(),
}  # fmt: skip
RIGHT = st.fixed_dictionaries({"protocol": st.just(2)}, optional=FIELDS)
WRONG = st.dictionaries(st.sampled_from(["protocol", "x", *FIELDS]), JSON, max_size=4)
STARTS = (RIGHT | WRONG).map(lambda given: "START " + json.dumps(given))
COMMANDS = st.sampled_from(
    ["START", "STOP", "COMMIT", "COMMIT:7", "STOP ", "start", "HOTWORDS:a，b", "LANGUAGE:zh", "LANGUAGE:?"]
)
TEXTS = (
    st.text(max_size=20)
    | st.just("x" * (LONGEST_COMMAND + 1))
    | st.text(max_size=20).map(lambda text: "HOTWORDS:" + text)
)
AUDIO = st.binary(max_size=64) | st.sampled_from([
    b"", pcm16(tone(0.5)), pcm16(silence(0.5)), pcm16(tone(0.2))[:-1], b"\xff" * 4001, bytes(8000),
])  # fmt: skip
FRAMES = st.lists(st.one_of(COMMANDS, COMMANDS, STARTS, STARTS, TEXTS, AUDIO, AUDIO, AUDIO), max_size=25)


@given(
    frames=FRAMES,
    beginning=st.sampled_from(
        ["START", 'START {"protocol": 2}', 'START {"protocol": 2, "channels": 2, "sample_rate": 8000}']
    ),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_any_frames(frames: list[str | bytes], beginning: str) -> None:
    async with asyncio.timeout(HANGS_S):
        async with RealtimeASRSession(FakeEngine(), FakeScorer(), SETTINGS) as session:
            for frame in [beginning, *frames]:
                session.feed(frame)
                await asyncio.sleep(0)
            session.end()
            messages = [json.loads(message) async for message in session.messages()]
    assert session.closing is None or session.closing.close_code != 1011
    event(f"closed with {session.closing.close_code if session.closing else None}")
    typed = [message for message in messages if "type" in message]
    event(f"protocols {len({'type' in message for message in messages})}")
    for message in typed:
        VALIDATOR.validate(message)
    assert [message["seq"] for message in typed] == list(range(len(typed)))
    assert all("event" in message or "is_final" in message for message in messages if message not in typed)
    check_sessions(typed)
    assert not session._tasks
    assert not session._running


def check_sessions(messages: list[dict[str, Any]]) -> None:
    """Within each session of protocol 2: ids in order, stable text that only grows, a final that has it all."""
    ids: list[int] = []
    stable: dict[tuple[int, int], str] = {}
    for message in messages:
        match message["type"]:
            case "started":
                ids, stable = [], {}
            case "partial":
                place = message["channel"], message["segment"]
                assert message["stable"].startswith(stable.get(place, ""))
                stable[place] = message["stable"]
            case "sentence":
                ids.append(message["id"])
                assert message["start_ms"] <= message["end_ms"]
            case "final":
                assert [sentence["id"] for sentence in message["sentences"]] == ids == list(range(len(ids)))

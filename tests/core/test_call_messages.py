"""Messages of a media stream are read, and what cannot be read is named."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.call_messages import (
    LONGEST_ID,
    LONGEST_PARAMETER,
    CallStarted,
    CallStopped,
    Connected,
    Dtmf,
    Mark,
    Media,
    read_call_message,
)
from realtime_server.errors import FieldError

START: dict[str, Any] = {
    "accountSid": "AC0", "streamSid": "MZ1", "callSid": "CA2", "tracks": ["outbound", "inbound"],
    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
    "customParameters": {"language": "en", "FirstName": "Ada"},
}  # fmt: skip
MEDIA: dict[str, Any] = {
    "track": "inbound", "chunk": "1", "timestamp": "5", "payload": base64.b64encode(b"\xff\0").decode(),
}  # fmt: skip


def message(event: str, **content: Any) -> str:
    return json.dumps({"event": event, "sequenceNumber": "1", "streamSid": "MZ1", event: content})


@pytest.mark.parametrize(
    ("frame", "read"),
    [
        (json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}), Connected()),
        (
            message("start", **START),
            CallStarted("MZ1", "CA2", ("inbound", "outbound"), {"language": "en", "FirstName": "Ada"}),
        ),
        (
            message("start", streamSid="MZ1", callSid="CA2", tracks=["inbound"]),
            CallStarted("MZ1", "CA2", ("inbound",), {}),
        ),
        (message("media", **MEDIA), Media("inbound", 5, b"\xff\0")),
        (message("media", **{**MEDIA, "timestamp": 7, "track": "outbound"}), Media("outbound", 7, b"\xff\0")),
        (message("mark", name="played"), Mark("played")),
        (message("dtmf", track="inbound_track", digit="#"), Dtmf("#")),
        (message("stop", accountSid="AC0", callSid="CA2"), CallStopped()),
        (json.dumps({"event": "stop"}), CallStopped()),
    ],
)
def test_what_is_read(frame: str, read: object) -> None:
    assert read_call_message(frame) == read


def test_the_audio_of_a_call_has_a_channel_for_each_track() -> None:
    started = read_call_message(message("start", **START))
    assert isinstance(started, CallStarted)
    audio = started.audio
    assert (audio.encoding, audio.sample_rate, audio.channels) == ("mulaw", 8000, 2)


def test_half_a_character_in_a_parameter_does_not_cost_the_call() -> None:
    given = {"FirstName": "Ada \ud800", "\udc00": "b", "Mood": "\U0001f600"}
    started = read_call_message(message("start", **{**START, "customParameters": given}))
    assert isinstance(started, CallStarted)
    assert started.parameters == {"FirstName": "Ada \ufffd", "\ufffd": "b", "Mood": "\U0001f600"}


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b"\0\1", None),
        ("hello", None),
        ("[]", None),
        ("[" * 100_000, None),
        ("{}", "event"),
        (json.dumps({"event": 1}), "event"),
        (message("clear"), "event"),
        (json.dumps({"event": "start"}), "start"),
        (message("start", **{**START, "tracks": []}), "start.tracks"),
        (message("start", **{**START, "tracks": "inbound"}), "start.tracks"),
        (message("start", **{**START, "tracks": ["sideways"]}), "start.tracks"),
        (message("start", **{**START, "mediaFormat": {"encoding": "opus"}}), "start.mediaFormat"),
        (message("start", **{**START, "mediaFormat": None}), "start.mediaFormat"),
        (message("start", **{**START, "streamSid": ""}), "start.streamSid"),
        (message("start", **{**START, "callSid": "C" * (LONGEST_ID + 1)}), "start.callSid"),
        (message("start", **{**START, "streamSid": "MZ\ud800"}), "start.streamSid"),
        (message("start", **{**START, "customParameters": ["a"]}), "start.customParameters"),
        (message("start", **{**START, "customParameters": {"a": 1}}), "start.customParameters"),
        (
            message("start", **{**START, "customParameters": {"a": "b" * (LONGEST_PARAMETER + 1)}}),
            "start.customParameters",
        ),
        (
            message("start", **{**START, "customParameters": {"a" * (LONGEST_ID + 1): ""}}),
            "start.customParameters",
        ),
        (json.dumps({"event": "media", "media": []}), "media"),
        (message("media", **{**MEDIA, "track": "both"}), "media.track"),
        (message("media", **{**MEDIA, "track": []}), "media.track"),
        (message("media", **{**MEDIA, "timestamp": "-1"}), "media.timestamp"),
        (message("media", **{**MEDIA, "timestamp": 1.5}), "media.timestamp"),
        (message("media", **{**MEDIA, "timestamp": "9" * 11}), "media.timestamp"),
        (message("media", **{**MEDIA, "timestamp": "9" * 5000}), "media.timestamp"),
        (message("media", **{**MEDIA, "timestamp": "²"}), "media.timestamp"),
        (message("media", track="inbound"), "media.timestamp"),
        (message("media", track="inbound", timestamp="5"), "media.payload"),
        (message("media", **{**MEDIA, "payload": "&&&&"}), "media.payload"),
        (message("media", **{**MEDIA, "payload": "é"}), "media.payload"),
        (message("media", **{**MEDIA, "payload": 5}), "media.payload"),
        (message("mark"), "mark.name"),
        (message("dtmf", digit=5), "dtmf.digit"),
    ],
)
def test_what_is_refused_is_named(frame: str | bytes, field: str | None) -> None:
    with pytest.raises(FieldError) as refused:
        read_call_message(frame)
    assert refused.value.field == field
    assert field is None or field in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
KEYS = st.sampled_from([*START, *MEDIA, "name", "digit"])


@given(
    event=st.sampled_from(["start", "media", "mark", "dtmf", "stop", "connected"]),
    content=JSON,
    data=st.data(),
)
def test_nothing_else_is_ever_raised(event: str, content: Any, data: st.DataObject) -> None:
    changed = {**START, **MEDIA, **data.draw(st.dictionaries(KEYS, JSON, max_size=3))}
    for value in (content, changed):
        with suppress(FieldError):
            message = read_call_message(json.dumps({"event": event, event: value}))
            assert type(message).__name__.lower().removeprefix("call").startswith(event)

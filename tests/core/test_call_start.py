"""What a call's parameters ask of its session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from realtime_server.core.call_messages import CallStarted
from realtime_server.core.call_start import name_of, start_command
from realtime_server.core.setup import StartRequest
from realtime_server.core.start_request import read_start
from realtime_server.errors import FieldError


def call(**parameters: str) -> CallStarted:
    return CallStarted("MZ1", "CA2", ("inbound", "outbound"), parameters)


def asked(**parameters: str) -> dict[str, Any]:
    word, _, request = start_command(call(**parameters)).partition(" ")
    assert word == "START"
    assert isinstance(read_start(request), StartRequest)
    found: dict[str, Any] = json.loads(request)
    return found


AUDIO = {"protocol": 2, "encoding": "mulaw", "sample_rate": 8000, "channels": 2}


@pytest.mark.parametrize(
    ("parameters", "more"),
    [
        ({}, {}),
        ({"FirstName": "Ada", "token": "secret", "session": "desk-7"}, {}),
        ({"language": "German"}, {"language": "German"}),
        ({"hotwords": "Ada, Grace"}, {"hotwords": ["Ada", "Grace"]}),
        ({"partials": "false", "words": "true"}, {"partials": False, "words": True}),
        ({"speakers": "true", "confidence": "true"}, {"speakers": True, "confidence": True}),
        ({"endpointing": "dynamic"}, {"endpointing": {"mode": "dynamic"}}),
        ({"endpointing": "fixed:600"}, {"endpointing": {"mode": "fixed", "silence_ms": 600}}),
    ],
)
def test_what_is_asked(parameters: dict[str, str], more: dict[str, Any]) -> None:
    assert asked(**parameters) == AUDIO | more


@pytest.mark.parametrize(
    ("name", "value"),
    [("words", "yes"), ("endpointing", "client"), ("endpointing", "fixed"), ("speakers", "")],
)
def test_what_cannot_be_read_is_named(name: str, value: str) -> None:
    with pytest.raises(FieldError, match=f"^{name} must be") as refused:
        start_command(call(**{name: value}))
    assert refused.value.field == name


def test_the_name() -> None:
    assert name_of(call()) == "CA2"
    assert name_of(call(session="desk-7")) == "desk-7"
    assert name_of(call(session="")) == "CA2"
    for name in ("a/b", "..", "a" * 65, "é"):
        with pytest.raises(FieldError) as refused:
            name_of(call(session=name))
        assert refused.value.field == "session"

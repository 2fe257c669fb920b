"""The schema is made from the dataclasses; messages keep to it, and what it does not know is noticed."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from realtime_server.core import messages as m
from realtime_server.core import messages_v2 as v2
from realtime_server.core.schema import _schema, message_schema
from realtime_server.core.segments import SpeakerChange
from realtime_server.core.wire_v2 import WireV2
from tests.core.test_wire_v2 import ALL, SETUP, locked, sentence

VALIDATOR = Draft202012Validator(message_schema())


def every_message() -> list[dict[str, Any]]:
    wire = WireV2("s")
    revised = m.SpeakersRevised(upto=0, changes=(SpeakerChange(3, 1, None),))
    events = [
        m.Started(upto=0, setup=SETUP),
        m.LanguageSet(name="en", upto=0, setup=SETUP),
        *(event for event, _ in ALL),
    ]
    events += [revised, locked(sentence(words=(), language=None, speaker=None)), m.Finished(upto=5)]
    return [json.loads(message) for event in events for message in wire.encode([event])]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(message_schema())


def test_every_type_of_message_keeps_to_it() -> None:
    told = every_message()
    for message in told:
        VALIDATOR.validate(message)
    assert {message["type"] for message in told} == {kind.type for kind in get_args(v2.Message)}


@pytest.mark.parametrize("message", every_message(), ids=lambda message: message["type"])
def test_a_field_too_few_or_too_many_or_of_another_type_is_noticed(message: dict[str, Any]) -> None:
    for name in message:
        assert not VALIDATOR.is_valid({key: value for key, value in message.items() if key != name})
        assert not VALIDATOR.is_valid({**message, name: object})
    assert not VALIDATOR.is_valid({**message, "more": 1})


def test_a_type_that_has_no_schema_is_loud() -> None:
    with pytest.raises(TypeError, match="no schema for"):
        _schema(bytes)

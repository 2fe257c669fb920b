"""START with settings: every field with what it takes, what it refuses, and in which words."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.endpointing_options import SilenceSchedule
from realtime_server.core.messages import Invalid
from realtime_server.core.setup import AudioFormat, EndpointingRequest, StartRequest
from realtime_server.core.start_request import read_start


def read(**given: Any) -> StartRequest | Invalid:
    return read_start(json.dumps({"protocol": 2, **given}))


def test_nothing_asked_is_everything_as_the_server_has_it() -> None:
    assert read() == StartRequest()


def test_every_field_is_read() -> None:
    request = read(
        language="中文", hotwords=["张三", " x ", "x", ""], replacements={"a": "b", "c": ""},
        encoding="mulaw", sample_rate=8000, channels=2,
        endpointing={"mode": "dynamic", "schedule": [[5000, 2000], [None, 500]], "max_segment_ms": 20000,
                     "eager_ms": 300},
        partials=False, words=True, speakers=True, confidence=True, events=False, resume=False,
    )  # fmt: skip
    assert request == StartRequest(
        audio=AudioFormat("mulaw", 8000, 2), language="zh", hotwords=("张三", "x"),
        replacements={"a": "b", "c": ""},
        endpointing=EndpointingRequest(
            mode="dynamic", schedule=SilenceSchedule.parse("5000:2000,inf:500"), max_segment_ms=20000, eager_ms=300
        ),
        partials=False, words=True, speakers=True, confidence=True, events=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["", "auto", None])
def test_a_language_to_be_detected_is_not_the_servers_own(name: str | None) -> None:
    request = read(language=name)
    assert isinstance(request, StartRequest)
    assert request.language == ""


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("language", 7, "a language's name"),
        ("language", "x" * 101, "at most 100 characters"),
        ("language", "Klingonish", "unknown language"),
        ("hotwords", "a,b", "a list of texts"),
        ("hotwords", ["a", 1], "a list of texts"),
        ("replacements", ["a"], "an object whose values are texts"),
        ("replacements", {"a": 1}, "an object whose values are texts"),
        ("replacements", {" ": "x"}, "must not replace an empty text"),
        ("encoding", "opus", "one of pcm_s16le, pcm_f32le, mulaw, alaw"),
        ("encoding", None, "one of pcm_s16le"),
        ("sample_rate", 7999, "a whole number from 8000 to 48000"),
        ("sample_rate", 48001, "a whole number from 8000 to 48000"),
        ("sample_rate", 16000.0, "a whole number"),
        ("sample_rate", "16000", "a whole number"),
        ("channels", 0, "from 1 to 8"),
        ("channels", 9, "from 1 to 8"),
        ("channels", True, "from 1 to 8"),
        ("endpointing", "fixed", "an object"),
        ("partials", 1, "true or false"),
        ("words", "yes", "true or false"),
        ("speakers", None, "true or false"),
        ("confidence", 0, "true or false"),
        ("events", [], "true or false"),
        ("protocol", 3, "must be 2, not 3"),
    ],
)
def test_a_wrong_value_is_refused_by_name(field: str, value: object, words: str) -> None:
    refused = read(**{field: value})
    assert isinstance(refused, Invalid)
    assert (refused.field, refused.code, refused.protocol) == (field, "bad_request", 2)
    assert words in refused.message


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("mode", "silence", "one of dynamic, fixed, client"),
        ("silence_ms", 99, "from 100 to 60000"),
        ("schedule", [], "1 to 50 pairs"),
        ("schedule", [[5000, 800]] * 51, "1 to 50 pairs"),
        ("schedule", [5000, 800], "pairs"),
        ("schedule", [[5000]], "pairs"),
        ("schedule", [[5000, 0]], "from 1 to 60000"),
        ("schedule", [["5000", 800]], "a whole number"),
        ("schedule", [[5000, 800], [4000, 600]], "rising lengths"),
        ("schedule", [[5000, 50]], "at least 100 ms"),
        ("max_segment_ms", 999, "from 1000"),
        ("eager_ms", 100, "a whole number from 1"),
    ],
)
def test_a_wrong_endpointing_is_refused_by_name(field: str, value: object, words: str) -> None:
    refused = read(endpointing={field: value})
    assert isinstance(refused, Invalid)
    assert refused.field == f"endpointing.{field}"
    assert words in refused.message


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (
            '{"protocol": 2, "langauge": "en"}',
            "langauge",
            "unknown field langauge; known are protocol, language",
        ),
        (
            '{"protocol": 2, "endpointing": {"silence": 5}}',
            "endpointing.silence",
            "known are endpointing.mode",
        ),
        ('{"language": "en"}', "protocol", 'needs "protocol": 2'),
        ('{"protocol": 2, "words": true, "words": false}', "words", "given twice"),
        ('{"protocol": 2', None, "not a JSON object"),
        ('{"protocol": NaN}', None, "NaN is not JSON"),
        ('{"a":' * 30_000, None, "not a JSON object"),
        ('{"protocol": 2} and more', None, "not a JSON object"),
    ],
)
def test_what_is_no_such_object_is_refused(text: str, field: str | None, words: str) -> None:
    refused = read_start(text)
    assert isinstance(refused, Invalid)
    assert (refused.field, refused.protocol) == (field, 2)
    assert words in refused.message


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ('{"protocol": 2, "hotwords": ', "}", "hotwords"),
        ('{"protocol": 2, "endpointing": {"mode": ', "}}", "endpointing.mode"),
    ],
)
def test_a_value_of_any_depth_is_refused(before: str, after: str, field: str) -> None:
    """Somewhere on the way are depths that can be read and cannot be written."""
    told = set()
    for depth in range(2, sys.getrecursionlimit() + 20):
        refused = read_start(before + "[" * depth + "]" * depth + after)
        assert isinstance(refused, Invalid)
        assert refused.field in (field, None)
        assert refused.protocol == 2
        told.add(refused.message[:30])
    assert len(told) > 1


def test_a_field_that_is_too_deep_to_be_shown_is_named() -> None:
    """Whatever a Python's limits for reading and for writing are."""

    def show(value: Any, **_: Any) -> str:
        raise RecursionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "dumps", show)
        refused = read_start('{"protocol": 2, "endpointing": {"mode": [[]]}}')
    assert isinstance(refused, Invalid)
    assert (refused.field, refused.protocol) == ("endpointing.mode", 2)
    assert refused.message == "endpointing.mode is nested too deeply"


def test_the_first_of_many_fields_that_is_repeated_is_found_in_one_pass() -> None:
    names = [*map(str, range(200_000)), "199999", "0"]
    # Looking back from each to all before it would take half an hour here.
    refused = read_start("{" + ",".join(f'"{name}": 1' for name in names) + "}")
    assert isinstance(refused, Invalid)
    assert refused.message == "199999 is given twice"


def test_resuming_has_its_place_and_is_refused() -> None:
    refused = read(resume=True)
    assert isinstance(refused, Invalid)
    assert (refused.code, refused.field) == ("not_supported", "resume")


def test_what_is_told_is_short_whatever_was_sent() -> None:
    for text in ('{"%s": 1}' % ("x" * 60_000), json.dumps({"protocol": "x" * 60_000})):
        refused = read_start(text)
        assert isinstance(refused, Invalid)
        assert len(refused.message) < 600
        assert len(refused.field or "") < 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
FIELDS = "protocol language hotwords replacements encoding sample_rate channels endpointing partials resume".split()


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_object_is_read_or_refused(given: dict[str, Any]) -> None:
    assert isinstance(read_start(json.dumps(given)), StartRequest | Invalid)


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    assert isinstance(read_start("{" + text), Invalid)

"""Protocol 2 on the wire: each event's message, in the shape that its schema promises."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core import messages as m
from realtime_server.core import messages_v2 as v2
from realtime_server.core.endpointing_options import EndpointingOptions, SilenceSchedule
from realtime_server.core.segments import Sentence, SpeakerChange, Word
from realtime_server.core.setup import AudioFormat, Setup
from realtime_server.core.wire_v2 import Wires, WireV2

SETUP = Setup(protocol=2, words=True, confidence=True)
WORDS = (Word("Good", 100, 200, 0.91239), Word("morning", 250, 480))


def messages(*events: m.Event, setup: Setup | None = SETUP) -> list[dict[str, Any]]:
    """What is told of the events by a wire that has told of a session's beginning."""
    wire = WireV2("s")
    if setup:
        wire.encode([m.Started(upto=0, setup=setup)])
    return [json.loads(message) for message in wire.encode(events)]


def sentence(id: int = 3, **values: Any) -> Sentence:
    given = {"text": "Good morning.", "language": "en", "confidence": 0.98765, "speaker": 1, "words": WORDS}
    return Sentence(
        **{"id": id, "segment": 2, "channel": 1, "start_ms": 100, "end_ms": 500, **given, **values}
    )


def locked(*sentences: Sentence, segment: int = 2) -> m.SegmentLocked:
    return m.SegmentLocked(upto=8000, channel=1, segment=segment, sentences=sentences)


def partial(text: str, *, segment: int = 2, channel: int = 1) -> m.PartialChanged:
    return m.PartialChanged(
        upto=8000, channel=channel, segment=segment, start=1600, end=8000, text=text, stable=text[:4],
        unstable=text[4:], lag_ms=40,
    )  # fmt: skip


PLACE = {"channel": 1, "segment": 2}
ALL: list[tuple[m.Event, dict[str, Any]]] = [
    (m.SegmentOpened(upto=0, channel=1, segment=2, start=1600), {"type": "speech_started", **PLACE, "at_ms": 100}),
    (m.SegmentClosed(upto=0, channel=1, segment=2, end=8000), {"type": "speech_ended", **PLACE, "at_ms": 500}),
    (
        partial("Good mor"),
        {"type": "partial", **PLACE, "start_ms": 100, "end_ms": 500, "stable": "Good", "unstable": " mor",
         "lag_ms": 40},
    ),
    (
        locked(sentence(flags=("recovered",))),
        {"type": "sentence", "id": 3, **PLACE, "text": "Good morning.", "start_ms": 100, "end_ms": 500,
         "language": "en", "words": [
             {"word": "Good", "start_ms": 100, "end_ms": 200, "confidence": 0.912},
             {"word": "morning", "start_ms": 250, "end_ms": 480, "confidence": None},
         ], "confidence": 0.988, "speaker": 1, "flags": ["recovered"]},
    ),
    (locked(), {"type": "no_sentence", **PLACE}),
    (m.Committed(upto=8000, id="7"), {"type": "committed", "id": "7"}),
    (
        m.Progress(upto=8000, received=16000, lag_ms=510),
        {"type": "progress", "duration_ms": 1000, "decoded_ms": 500, "lag_ms": 510},
    ),
    (m.Warned(upto=0, code="words", message="no"), {"type": "warning", "code": "words", "message": "no"}),
    (
        m.Failed(upto=0, code="segment_failed", message="no", channel=1, segment=2),
        {"type": "error", "code": "segment_failed", "message": "no", "fatal": False, "field": None, **PLACE},
    ),
    (
        m.Failed(upto=0, code="limit", message="no", fatal=True),
        {"type": "error", "code": "limit", "message": "no", "fatal": True, "field": None, "channel": None,
         "segment": None},
    ),
    (m.Finished(upto=16000), {"type": "final", "duration_ms": 1000, "sentences": []}),
    (
        m.Stopped(upto=0, totals=m.Totals(1000, 400, 2, 1, 5, 3, 40, 90)),
        {"type": "stopped", "audio_ms": 1000, "speech_ms": 400, "segments": 2, "sentences": 1,
         "partials_sent": 5, "partials_skipped": 3, "lag_p50_ms": 40, "lag_p95_ms": 90},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event", "message"), ALL)
def test_each_event_has_its_message(event: m.Event, message: dict[str, Any]) -> None:
    assert messages(event) == [{"session": "s", "seq": 1, **message}]


def test_a_session_begins_with_every_value_in_force() -> None:
    schedule = SilenceSchedule.parse("5000:2000,inf:500")
    setup = Setup(
        language="zh", hotwords=("张三",), replacements={"a": "b"}, protocol=2,
        audio=AudioFormat("mulaw", 8000, 2), endpointing=EndpointingOptions(schedule=schedule), partials=False,
        words=True, speakers=True, confidence=True, events=False,
    )  # fmt: skip
    settings = {
        "protocol": 2, "language": "zh", "hotwords": ["张三"], "replacements": {"a": "b"},
        "encoding": "mulaw", "sample_rate": 8000, "channels": 2,
        "endpointing": {"mode": "dynamic", "silence_ms": 800, "schedule": [[5000, 2000], [None, 500]],
                        "max_segment_ms": 30000, "eager_ms": 200},
        "partials": False, "words": True, "speakers": True, "confidence": True, "events": False,
        "resume": False,
    }  # fmt: skip
    head = {"session": "s", "seq": 0, "settings": settings}
    assert messages(m.Started(upto=0, setup=setup), setup=None) == [{"type": "started", **head}]
    for changed in (
        m.HotwordsSet(upto=0, setup=setup, words=()), m.LanguageSet(upto=0, setup=setup, name="zh"),
        m.ReplacementsSet(upto=0, setup=setup, replacements={}),
    ):  # fmt: skip
        assert messages(changed, setup=None) == [{"type": "settings", **head}]


@pytest.mark.parametrize(
    "event",
    [
        m.Closing(upto=0, close_code=1008, reason="r"),
        m.SpeakersRevised(upto=0, changes=(SpeakerChange(99, 0, 1),)),
    ],
)
def test_what_another_message_says_is_not_said_twice(event: m.Event) -> None:
    assert messages(event) == []


def test_what_was_not_asked_for_is_not_told() -> None:
    setup = Setup(protocol=2, partials=False, events=False)
    told = messages(
        m.SegmentOpened(upto=0, channel=1, segment=2, start=0), partial("Good"),
        m.SegmentClosed(upto=0, channel=1, segment=2, end=9), locked(sentence()), m.Finished(upto=9), setup=setup,
    )  # fmt: skip
    assert [message["type"] for message in told] == ["sentence", "final"]
    assert (told[0]["words"], told[0]["confidence"]) == (None, None)
    assert told[1]["sentences"][0]["confidence"] is None


def test_words_without_confidence() -> None:
    (told,) = messages(locked(sentence()), setup=Setup(protocol=2, words=True))
    assert [word["confidence"] for word in told["words"]] == [None, None]


def test_a_failed_segment_without_text_is_a_sentence_that_says_so() -> None:
    (told,) = messages(locked(sentence(text="", flags=("failed",))))
    assert (told["text"], told["flags"]) == ("", ["failed"])


def test_of_partials_told_together_only_the_last_is_sent() -> None:
    other = [partial("Guten", channel=0), partial("Goods", segment=3)]
    told = messages(partial("Go"), other[0], partial("Good"), other[1])
    assert [(x["channel"], x["segment"], x["stable"] + x["unstable"]) for x in told] == [
        (0, 2, "Guten"), (1, 2, "Good"), (1, 3, "Goods"),
    ]  # fmt: skip
    assert [x["seq"] for x in told] == [1, 2, 3]


def test_a_partial_told_together_with_its_sentence_is_not_sent() -> None:
    assert [x["type"] for x in messages(partial("Go"), locked(sentence()))] == ["sentence"]


def test_segments_of_two_sessions_are_not_mistaken_for_one() -> None:
    told = messages(partial("Go"), m.Started(upto=0, setup=SETUP), partial("Else"))
    assert [x["type"] for x in told] == ["partial", "started", "partial"]


def test_the_final_has_every_sentence_with_the_speaker_it_came_to() -> None:
    wire = WireV2("s")
    wire.encode([m.Started(upto=0, setup=SETUP), locked(sentence(0, speaker=None)), locked(sentence(1))])
    changes = (SpeakerChange(0, None, 4), SpeakerChange(9, 0, 1))
    events = [m.SpeakersRevised(upto=0, changes=changes, reason="final"), m.Finished(upto=16000)]
    revised, final = (json.loads(message) for message in wire.encode(events))
    assert revised["changes"] == [{"id": 0, "from": None, "to": 4}]
    assert revised["reason"] == "final"
    assert [(x["id"], x["speaker"]) for x in final["sentences"]] == [(0, 4), (1, 1)]
    assert set(final["sentences"][0]) == {field.name for field in fields(v2.FinalSentence)}


def test_a_new_session_forgets_the_sentences_but_goes_on_counting() -> None:
    wire = WireV2("s")
    first = wire.encode([m.Started(upto=0, setup=SETUP), locked(sentence())])
    again = [json.loads(x) for x in wire.encode([m.Started(upto=0, setup=SETUP), m.Finished(upto=0)])]
    assert [x["seq"] for x in again] == [len(first), len(first) + 1]
    assert again[1]["sentences"] == []


@given(st.text(), st.text())
def test_every_message_can_be_sent_whatever_text_is_in_it(text: str, reason: str) -> None:
    for message in messages(locked(sentence(text=text)), m.Failed(upto=0, code="c", message=reason)):
        assert json.dumps(message)
    wire = WireV2("s")
    for message in wire.encode([locked(sentence(text=text + "\udc80"))]):
        message.encode()


def test_frames_are_read_as_in_protocol_1() -> None:
    assert list(WireV2("s").decode("STOP")) == [m.Stop()]
    assert list(WireV2("s").decode(b"ab")) == [b"ab"]


# --- a connection's wire ----------------------------------------------------------------------------------


def test_a_connection_speaks_protocol_1_until_a_start_asks_for_2_and_again_after_a_bare_one() -> None:
    wires = Wires("s")
    second, first = m.Started(upto=0, setup=SETUP), m.Started(upto=0)
    said = [json.loads(x) for x in wires.encode([m.Stopped(upto=0), second, m.Stopped(upto=0), first])]
    assert [x.get("event", x.get("type")) for x in said] == ["stopped", "started", "stopped", "started"]
    assert ["seq" in x for x in said] == [False, True, True, False]
    assert json.loads(wires.encode([second])[0])["seq"] == 2


def test_a_refused_start_is_told_in_its_protocol_and_changes_nothing() -> None:
    wires = Wires("s")
    refused = m.Failed(upto=0, code="bad_request", message="no", field="words", protocol=2)
    one, two = (json.loads(x) for x in wires.encode([refused, m.Failed(upto=0, code="c", message="no")]))
    assert (one["type"], one["field"]) == ("error", "words")
    assert two == {"event": "error", "error": "no"}
    assert list(wires.decode("START")) == [m.Start()]


def test_every_type_of_message_is_among_the_kinds() -> None:
    assert {kind.type for kind in get_args(v2.Message)} == set(get_args(v2.Kind))

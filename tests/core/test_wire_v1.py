"""Protocol 1 on the wire: audio passes, events become messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from realtime_server.core import messages as m
from realtime_server.core.segments import Sentence, SpeakerChange
from realtime_server.core.wire_v1 import WireV1


def test_audio_passes_as_it_is() -> None:
    assert list(WireV1().decode(b"\x01\x02\x03")) == [b"\x01\x02\x03"]


def test_a_text_frame_is_a_command() -> None:
    assert list(WireV1().decode("STOP")) == [m.Stop()]


def messages(wire: WireV1, *events: m.Event) -> list[dict[str, Any]]:
    return [json.loads(message) for message in wire.encode(events)]


def locked(segment: int, *texts: str, upto: int, speaker: int | None = None) -> m.SegmentLocked:
    sentences = tuple(
        Sentence(
            id=10 * segment + n,
            segment=segment,
            channel=0,
            text=text,
            start_ms=0,
            end_ms=500,
            speaker=speaker,
        )
        for n, text in enumerate(texts)
    )
    return m.SegmentLocked(upto=upto, channel=0, segment=segment, sentences=sentences)


def opened(segment: int, start: int) -> m.SegmentOpened:
    return m.SegmentOpened(upto=0, channel=0, segment=segment, start=start)


def partial(segment: int, start: int, end: int, text: str) -> m.PartialChanged:
    return m.PartialChanged(upto=end, channel=0, segment=segment, start=start, end=end, text=text)


def result(
    sentences: list[Any], partial: str, start: int, duration: int, final: bool = False
) -> dict[str, Any]:
    return {
        "sentences": sentences, "partial": partial, "partial_start_ms": start,
        "duration_ms": duration, "is_final": final,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (m.Started(upto=0), {"event": "started"}),
        (m.Stopped(upto=0), {"event": "stopped"}),
        (m.HotwordsSet(upto=0, words=("a", "张三")), {"event": "hotwords_set", "hotwords": ["a", "张三"]}),
        (m.LanguageSet(upto=0, name="中文"), {"event": "language_set", "language": "中文"}),
        (
            m.ReplacementsSet(upto=0, replacements={"x": "y"}),
            {"event": "postprocess_hotwords_set", "postprocess_hotwords": {"x": "y"}},
        ),
        (m.Failed(upto=0, code="c", message="no"), {"event": "error", "error": "no"}),
        (m.Finished(upto=16_000), result([], "", 0, 1000, final=True)),
        (m.Committed(upto=16_000), result([], "", 0, 1000, final=True)),
        (m.Progress(upto=16_000), result([], "", 1000, 1000)),
        (partial(0, 8_000, 16_000, "hi"), result([], "hi", 500, 1000)),
        (locked(0, "Hi.", upto=16_000), result([{"text": "Hi.", "start": 0, "end": 500}], "", 1000, 1000)),
        (
            locked(0, "Hi.", upto=16_000, speaker=1),
            result([{"text": "Hi.", "start": 0, "end": 500, "spk": 1}], "", 1000, 1000),
        ),
        (locked(0, upto=16_000), result([], "", 1000, 1000)),
    ],
)
def test_each_event_has_its_message(event: m.Event, message: dict[str, Any]) -> None:
    assert messages(WireV1(), event) == [message]


@pytest.mark.parametrize(
    "event",
    [
        opened(0, 0),
        m.SegmentClosed(upto=0, channel=0, segment=0, end=160),
        m.Warned(upto=0, code="c", message="w"),
        m.Closing(upto=0, close_code=1008, reason="r"),
    ],
)
def test_what_protocol_1_does_not_know_is_not_sent(event: m.Event) -> None:
    assert messages(WireV1(), event) == []


def test_json_is_not_escaped() -> None:
    (message,) = WireV1().encode([partial(0, 0, 160, '你好 "x"')])
    assert "你好" in message
    assert json.loads(message)["partial"] == '你好 "x"'


def test_a_revised_speaker_changes_its_sentence_only() -> None:
    wire = WireV1()
    messages(wire, locked(0, "One.", "Two.", upto=16_000, speaker=0), locked(1, "Three.", upto=16_000))
    changes = (SpeakerChange(1, 0, 2), SpeakerChange(10, None, 1), SpeakerChange(99, 0, 1))
    (revised,) = messages(wire, m.SpeakersRevised(upto=16_000, changes=changes))
    assert [(s["text"], s["spk"], s["start"], s["end"]) for s in revised["sentences"]] == [
        ("One.", 0, 0, 500), ("Two.", 2, 0, 500), ("Three.", 1, 0, 500)
    ]  # fmt: skip


def test_a_revision_of_what_a_commit_has_finished_is_not_told() -> None:
    wire = WireV1()
    messages(wire, locked(0, "One.", upto=160, speaker=0), m.Committed(upto=160))
    assert messages(wire, m.SpeakersRevised(upto=160, changes=(SpeakerChange(0, 0, 1),))) == []


def test_speakers_revised_at_the_end_come_with_the_final() -> None:
    wire = WireV1()
    messages(wire, locked(0, "One.", upto=160, speaker=0))
    revised = m.SpeakersRevised(upto=160, changes=(SpeakerChange(0, 0, 3),))
    final, stopped = messages(wire, revised, m.Finished(upto=160), m.Stopped(upto=160))
    assert final["is_final"]
    assert final["sentences"][0]["spk"] == 3
    assert stopped == {"event": "stopped"}


def test_every_result_repeats_the_whole_list() -> None:
    wire = WireV1()
    messages(wire, locked(0, "One.", upto=16_000))
    (second,) = messages(wire, locked(1, "Two.", upto=32_000))
    assert [s["text"] for s in second["sentences"]] == ["One.", "Two."]


def test_changes_sent_together_become_one_result() -> None:
    (message,) = messages(
        WireV1(), locked(0, "One.", upto=16_000), opened(1, 16_000), partial(1, 16_000, 24_000, "tw")
    )
    assert message == result([{"text": "One.", "start": 0, "end": 500}], "tw", 1000, 1500)


def test_a_change_before_an_answer_is_sent_before_it() -> None:
    answers = messages(WireV1(), partial(0, 0, 160, "a"), m.LanguageSet(upto=160, name="en"))
    assert [a.get("event", "result") for a in answers] == ["result", "language_set"]


def test_the_final_needs_no_result_before_it() -> None:
    answers = messages(WireV1(), locked(0, "One.", upto=160), m.Finished(upto=160), m.Stopped(upto=160))
    assert [a.get("event", a.get("is_final")) for a in answers] == [True, "stopped"]
    assert answers[0]["sentences"][0]["text"] == "One."


def test_a_segment_that_waits_for_its_final_keeps_its_partial_before_the_next() -> None:
    wire = WireV1()
    messages(wire, opened(0, 0), partial(0, 0, 8_000, "one"), opened(1, 16_000))
    (message,) = messages(wire, partial(1, 16_000, 24_000, "two"))
    assert message["partial"] == "one two"
    assert message["partial_start_ms"] == 0


def test_a_failed_segment_without_text_is_no_sentence() -> None:
    sentence = Sentence(id=0, segment=0, channel=0, text="", start_ms=0, end_ms=9, flags=("failed",))
    event = m.SegmentLocked(upto=160, channel=0, segment=0, sentences=(sentence,))
    assert messages(WireV1(), event)[0]["sentences"] == []


def test_a_new_session_starts_with_an_empty_list() -> None:
    wire = WireV1()
    messages(wire, locked(0, "One.", upto=16_000), opened(1, 16_000), partial(1, 16_000, 20_000, "tw"))
    _, after = messages(wire, m.Started(upto=0), m.Progress(upto=0))
    assert after == result([], "", 0, 0)


def test_after_a_commit_the_list_covers_the_next_utterance_only() -> None:
    wire = WireV1()
    (first,) = messages(wire, locked(0, "One.", upto=160), m.Committed(upto=160))
    (second,) = messages(wire, locked(1, "Two.", upto=320), m.Committed(upto=320))
    assert [s["text"] for s in first["sentences"]] == ["One."]
    assert [s["text"] for s in second["sentences"]] == ["Two."]


@pytest.mark.parametrize(
    "event",
    [
        m.HotwordsSet(upto=0, words=("é\ud800",)),
        m.LanguageSet(upto=0, name="é\ud800"),
        m.ReplacementsSet(upto=0, replacements={"\udfff": "é\ud800"}),
        m.Failed(upto=0, code="x", message="é\ud800"),
        m.PartialChanged(upto=0, channel=0, segment=0, start=0, end=1, text="é\ud800"),
        m.SegmentLocked(
            upto=0, channel=0, segment=0,
            sentences=(Sentence(id=0, segment=0, channel=0, text="é\ud800", start_ms=0, end_ms=1),),
        ),
    ],
)  # fmt: skip
def test_every_message_can_be_sent_whatever_text_is_in_it(event: m.Event) -> None:
    (message,) = WireV1().encode([event])
    assert "é?" in message.encode().decode()

"""A session of protocol 2: what it tells, when, and how it differs from one of protocol 1."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Decoded, DecodeJob
from realtime_server.core.protocol import State
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.core.setup import StartRequest
from realtime_server.errors import EngineError
from tests.audio import silence, tone
from tests.core.driver import CAPABILITIES, Driver, spans

FIXED = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600))


def started(decode: Any = spans, settings: SessionSettings = FIXED, **asked: Any) -> Driver:
    driver = Driver(decode, settings, replace(CAPABILITIES, logprobs=True))
    driver.say("START " + json.dumps({"protocol": 2, **asked}))
    return driver


def types(driver: Driver) -> list[str]:
    return [message["type"] for message in driver.messages]


def of(driver: Driver, type: str) -> list[dict[str, Any]]:
    return [message for message in driver.messages if message["type"] == type]


def test_a_sentence_with_all_that_is_told_around_it() -> None:
    driver = started()
    driver.hear(np.concatenate([tone(1.0), silence(1.5)]))
    driver.say("STOP")
    told = [kind for kind in types(driver) if kind != "progress"]
    assert told == [
        "started", "speech_started", "partial", "partial", "speech_ended", "sentence", "final", "stopped",
    ]  # fmt: skip
    assert [message["seq"] for message in driver.messages] == list(range(len(driver.messages)))
    (sentence,) = of(driver, "sentence")
    (final,) = of(driver, "final")
    assert [x["text"] for x in final["sentences"]] == [sentence["text"]] == ["from 0-1160"]


def test_progress_is_told_every_second_of_audio_also_while_nothing_is_decoded() -> None:
    driver = started(lambda job: None)
    driver.hear(tone(5.0))
    progress = of(driver, "progress")
    assert [message["duration_ms"] for message in progress] == [1000, 2000, 3000, 4000, 5000]
    assert {message["decoded_ms"] for message in progress} == {0}


def test_sentences_are_told_while_stop_is_pending_and_partials_are_not() -> None:
    driver = started(lambda job: None if job.kind != "partial" else spans(job))
    driver.hear(np.concatenate([tone(1.0), silence(0.8), tone(1.0)]))
    driver.say("STOP")
    driver.messages.clear()
    for job in [job for job in driver.pending if job.kind != "partial"]:
        driver.answer(job, Decoded(f"n{job.segment}"))
    assert types(driver) == ["sentence", "sentence", "final", "stopped"]


def test_what_fails_is_told_behind_its_sentence_by_its_segment() -> None:
    driver = started(lambda job: EngineError("no") if job.kind != "partial" else Decoded(""))
    driver.hear(tone(1.0))
    driver.say("STOP")
    assert types(driver)[-4:] == ["sentence", "error", "final", "stopped"]
    (error,) = of(driver, "error")
    assert (error["code"], error["channel"], error["segment"], error["fatal"]) == (
        "segment_failed",
        0,
        0,
        False,
    )


def test_a_segment_without_words_takes_its_partial_back() -> None:
    driver = started(lambda job: Decoded("Um" if job.kind == "partial" else "", finish="gated"))
    driver.hear(np.concatenate([tone(0.7), silence(1.0)]))
    assert [kind for kind in types(driver) if kind != "progress"][-3:] == [
        "partial",
        "speech_ended",
        "no_sentence",
    ]
    assert of(driver, "partial")[0]["unstable"] == "Um"


@pytest.mark.parametrize("mode", ["client", "fixed"])
def test_commit_is_told_by_its_id_in_every_mode_and_keeps_the_list(mode: str) -> None:
    driver = started(endpointing={"mode": mode})
    driver.hear(tone(1.0))
    driver.say("COMMIT:a", "COMMIT:b")
    driver.hear(tone(1.0))
    driver.say("COMMIT", "STOP")
    told = [
        (x["type"], x.get("id")) for x in driver.messages if x["type"] in ("sentence", "committed", "final")
    ]
    assert told == [
        ("sentence", 0), ("committed", "a"), ("committed", "b"), ("sentence", 1), ("committed", None), ("final", None),
    ]  # fmt: skip
    assert len(of(driver, "final")[0]["sentences"]) == 2


def test_a_command_is_acknowledged_with_every_value_in_force() -> None:
    driver = started()
    driver.say("HOTWORDS:a,b", "LANGUAGE:中文", "POSTPROCESS_HOTWORDS:x=>y", "LANGUAGE:Klingon")
    assert types(driver)[1:] == ["settings", "settings", "settings", "error"]
    last = of(driver, "settings")[-1]["settings"]
    assert (last["hotwords"], last["language"], last["replacements"]) == (["a", "b"], "zh", {"x": "y"})


def test_what_cannot_be_had_is_warned_of_after_the_start() -> None:
    driver = started(speakers=True)
    assert types(driver) == ["started", "warning"]
    assert driver.messages[0]["settings"]["speakers"] is False


def test_a_refused_start_changes_nothing_of_a_running_session() -> None:
    driver = started(language="en")
    driver.hear(tone(0.4))
    driver.say('START {"protocol": 2, "langauge": "zh"}')
    assert types(driver)[-1] == "error"
    assert driver.messages[-1]["field"] == "langauge"
    driver.hear(tone(0.6))
    driver.say("STOP")
    assert of(driver, "sentence")[0]["text"] == "from 0-1000"


def test_a_refused_start_of_a_first_session_is_told_in_protocol_2() -> None:
    driver = Driver()
    driver.say('START {"protocol": 2, "words": 1}')
    assert driver.protocol.state is State.IDLE
    assert (driver.messages[0]["type"], driver.messages[0]["field"]) == ("error", "words")


def test_a_request_that_was_not_prepared_is_a_mistake_of_the_caller() -> None:
    driver = Driver()
    with pytest.raises(ValueError, match="was not prepared"):
        driver.protocol.receive_command(StartRequest())


def test_without_partials_none_is_decoded() -> None:
    driver = started(partials=False)
    driver.hear(np.concatenate([tone(3.0), silence(1.0)]))
    assert {job.kind for job in driver.jobs} <= {"eager", "final"}
    assert "partial" not in types(driver)
    assert "sentence" in types(driver)


def test_words_and_confidence_are_told_where_they_were_asked_for() -> None:
    def decode(job: DecodeJob) -> Decoded:
        assert job.options.logprobs
        return Decoded("Hi", token_logprobs=(-0.1, -0.3))

    driver = started(decode, confidence=True)
    driver.hear(tone(1.0))
    driver.say("STOP")
    assert of(driver, "sentence")[0]["confidence"] == pytest.approx(np.exp(-0.2), abs=1e-3)


def test_the_end_for_cause_is_a_fatal_error_behind_the_final() -> None:
    driver = started(settings=replace(FIXED, limits=Limits(session_s=1.0)))
    driver.hear(tone(2.0))
    assert types(driver)[-3:] == ["sentence", "final", "error"]
    assert driver.messages[-1]["fatal"]


def test_totals_are_those_of_the_session_that_ended() -> None:
    driver = started()
    driver.hear(np.concatenate([tone(1.0), silence(1.0)]))
    driver.say("STOP", 'START {"protocol": 2}')
    driver.hear(np.concatenate([tone(0.6), silence(1.0), tone(0.6), silence(0.8)]))
    driver.say("STOP")
    first, second = of(driver, "stopped")
    assert (first["audio_ms"], first["segments"], first["sentences"]) == (2000, 1, 1)
    assert (second["audio_ms"], second["segments"], second["sentences"]) == (3000, 2, 2)
    assert 1000 <= first["speech_ms"] < 2000


# --- channels ---------------------------------------------------------------------------------------------


def test_each_channel_is_heard_by_itself_on_one_clock() -> None:
    driver = started(channels=2)
    left = np.concatenate([tone(1.0), silence(2.0)])
    right = np.concatenate([silence(1.0), tone(1.0), silence(1.0)])
    for at in range(0, len(left), 1600):
        driver.protocol.receive_audio(np.stack([left, right])[:, at : at + 1600])
        driver.turn()
    driver.say("STOP")
    told = [(x["id"], x["channel"], x["segment"], x["start_ms"] // 100) for x in of(driver, "sentence")]
    assert [place[:3] for place in told] == [(0, 0, 0), (1, 1, 0)]
    assert told[0][3] < 1 < 6 <= told[1][3] <= 10
    assert of(driver, "final")[0]["duration_ms"] == 3000
    assert of(driver, "stopped")[0]["audio_ms"] == 3000


def test_what_is_accounted_for_is_what_all_channels_have_told() -> None:
    driver = started(lambda job: None if job.channel else spans(job), channels=2)
    both = np.stack([np.concatenate([tone(1.0), silence(2.0)]), np.concatenate([silence(0.5), tone(2.5)])])
    for at in range(0, both.shape[1], 1600):
        driver.protocol.receive_audio(both[:, at : at + 1600])
        driver.turn()
    assert [x["channel"] for x in of(driver, "sentence")] == [0]
    assert of(driver, "progress")[-1]["decoded_ms"] < 600


# --- what is stable ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["one", "two", "Two", "three", "er,"]), max_size=6), min_size=2, max_size=9
    )
)
def test_stable_text_only_grows_among_the_partials_of_a_segment(texts: list[list[str]]) -> None:
    left = [" ".join(words) for words in texts]
    driver = started(lambda job: Decoded(left.pop(0) if left and job.kind == "partial" else "one"))
    driver.hear(tone(9.0))
    stable = ""
    for partial in of(driver, "partial"):
        assert partial["stable"].startswith(stable)
        stable = partial["stable"]

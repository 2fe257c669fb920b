"""The session's state machine: every state with every command, and what becomes of what was heard."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core import messages as m
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Decoded, DecodeJob, Priority
from realtime_server.core.protocol import State
from realtime_server.core.segments import to_samples
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.errors import EngineError, EngineTimeoutError
from tests.audio import silence, speech_pattern, tone
from tests.core.driver import CAPABILITIES, Answer, Driver, spans

CLIENT = SessionSettings(endpointing=EndpointingOptions(mode="client"))
FIXED = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600))


def started(decode: object = spans, settings: SessionSettings = FIXED) -> Driver:
    driver = Driver(decode, settings)  # type: ignore[arg-type]
    driver.say("START")
    return driver


def hold(*kinds: str) -> object:
    """Keep jobs of some kinds pending."""
    return lambda job: None if job.kind in kinds else spans(job)


def in_state(state: State) -> Driver:
    """A session brought into a state; COMMITTING and STOPPING wait for a final."""
    driver = Driver(lambda job: None, CLIENT)
    if state is not State.IDLE:
        driver.say("START")
    if state in (State.COMMITTING, State.STOPPING):
        driver.hear(tone(1.0))
        driver.say("COMMIT" if state is State.COMMITTING else "STOP")
    if state is State.ENDED:
        driver.protocol.receive_end()
        driver.turn()
    assert driver.protocol.state is state
    driver.messages.clear()
    return driver


@pytest.mark.parametrize(
    ("state", "command", "after", "answers"),
    [
        (State.IDLE, "START", State.ACTIVE, ["started"]),
        (State.IDLE, "STOP", State.IDLE, ["stopped"]),
        (State.IDLE, "COMMIT", State.IDLE, ["error"]),
        (State.IDLE, "HOTWORDS:a", State.IDLE, ["hotwords_set"]),
        (State.IDLE, "LANGUAGE:en", State.IDLE, ["language_set"]),
        (State.IDLE, "POSTPROCESS_HOTWORDS:a=>b", State.IDLE, ["postprocess_hotwords_set"]),
        (State.IDLE, "nonsense", State.IDLE, ["error"]),
        (State.ACTIVE, "START", State.ACTIVE, ["started"]),
        (State.ACTIVE, "STOP", State.IDLE, ["final", "stopped"]),
        (State.ACTIVE, "COMMIT", State.ACTIVE, ["final"]),
        (State.ACTIVE, "HOTWORDS:a", State.ACTIVE, ["hotwords_set"]),
        (State.ACTIVE, "LANGUAGE:xx-unknown", State.ACTIVE, ["error"]),
        (State.ACTIVE, "nonsense", State.ACTIVE, ["error"]),
        *((state, text, state, []) for state in (State.COMMITTING, State.STOPPING, State.ENDED)
          for text in ("START", "STOP", "COMMIT", "HOTWORDS:a", "nonsense")),
    ],
)  # fmt: skip
def test_every_command_in_every_state(state: State, command: str, after: State, answers: list[str]) -> None:
    driver = in_state(state)
    driver.say(command)
    assert driver.protocol.state is after
    assert [answer.get("event", "final") for answer in driver.messages] == answers


def test_a_sentence_is_locked_after_its_pause() -> None:
    driver = started()
    driver.hear(np.concatenate([tone(2.0), silence(1.5)]))
    assert driver.messages[-1]["sentences"] == [{"text": "from 0-2160", "start": 0, "end": 2160}]
    assert driver.messages[-1]["partial"] == ""


def test_stop_decodes_the_tail_and_tells_the_final_before_stopped() -> None:
    driver = started()
    driver.hear(tone(1.3))
    driver.say("STOP")
    final, stopped = driver.messages[-2:]
    assert final == {
        "sentences": [{"text": "from 0-1300", "start": 0, "end": 1300}],
        "partial": "", "partial_start_ms": 0, "duration_ms": 1300, "is_final": True,
    }  # fmt: skip
    assert stopped == {"event": "stopped"}


def test_start_and_stop_without_audio_give_an_empty_final() -> None:
    driver = started()
    driver.say("STOP")
    assert [a.get("event", a.get("is_final")) for a in driver.messages] == ["started", True, "stopped"]
    assert driver.messages[1]["sentences"] == []


def test_a_few_silent_samples_give_an_empty_final() -> None:
    driver = started()
    driver.hear(silence(0.05))
    driver.say("STOP")
    assert driver.messages[-2]["is_final"] is True
    assert driver.messages[-2]["duration_ms"] == 50
    assert driver.jobs == []


def test_audio_outside_a_session_is_ignored() -> None:
    driver = Driver(spans, FIXED)
    driver.hear(tone(2.0))
    driver.say("START", "STOP")
    assert driver.messages[1]["duration_ms"] == 0
    driver.hear(tone(2.0))
    assert driver.messages[-1] == {"event": "stopped"}


def test_start_in_a_running_session_discards_it() -> None:
    driver = started(hold("final", "eager"))
    driver.hear(np.concatenate([tone(1.0), silence(1.0), tone(0.5)]))
    (pending,) = driver.pending
    driver.say("START")
    assert pending.id in driver.cancelled
    driver.answer(pending, Decoded("late"))
    driver.hear(silence(0.5))
    driver.say("STOP")
    assert driver.messages[-2]["sentences"] == []
    assert driver.messages[-2]["duration_ms"] == 500


def test_what_follows_a_stop_waits_for_its_final_and_loses_nothing() -> None:
    driver = started(lambda job: None if job.kind == "final" and job.epoch == 1 else spans(job))
    driver.hear(tone(1.0))
    driver.say("STOP", "START", "LANGUAGE:en")
    driver.hear(tone(0.5))
    driver.say("STOP")
    seen = len(driver.messages)
    driver.answer(driver.pending[0], Decoded("first"))
    rest = [a for a in driver.messages[seen:] if "partial" not in a or a["is_final"]]
    assert [a.get("event", "final") for a in rest] == [
        "final",
        "stopped",
        "started",
        "language_set",
        "final",
        "stopped",
    ]
    assert rest[0]["sentences"][0]["text"] == "first"
    assert rest[4]["sentences"] == [{"text": "from 0-500", "start": 0, "end": 500}]


def test_two_sessions_on_one_connection_share_nothing_but_settings() -> None:
    driver = Driver(spans, FIXED)
    driver.say("HOTWORDS:a", "START")
    driver.hear(tone(1.0))
    driver.say("STOP", "START")
    driver.hear(tone(0.7))
    driver.say("STOP")
    finals = [a for a in driver.messages if a.get("is_final")]
    assert [len(final["sentences"]) for final in finals] == [1, 1]
    assert finals[1]["sentences"][0]["start"] == 0
    assert finals[1]["duration_ms"] == 700
    assert {job.options.hotwords for job in driver.jobs} == {("a",)}


def test_settings_take_effect_with_the_next_segment() -> None:
    driver = started()
    driver.hear(tone(1.0))
    driver.say("LANGUAGE:中文", "HOTWORDS:新词")
    driver.hear(np.concatenate([tone(0.5), silence(1.0), tone(1.0)]))
    driver.say("STOP")
    by_segment = {job.segment: job.options for job in driver.jobs}
    assert by_segment[0].language is None
    assert by_segment[1].language == "zh"
    assert by_segment[1].hotwords == ("新词",)


def test_partials_are_told_the_language_of_the_sentence_before_and_finals_are_not() -> None:
    languages = ("en", "zh", None, "fr", "en")  # of the finals

    def decode(job: DecodeJob) -> Decoded:
        if job.kind == "partial":
            return Decoded(str(job.id), language="ja")
        return Decoded("" if job.segment == 3 else "said", language=languages[job.segment])

    settings = replace(FIXED, endpointing=replace(FIXED.endpointing, eager_ms=None))
    driver = started(decode, settings)
    for _ in range(5):
        driver.hear(np.concatenate([tone(1.0), silence(1.0)]))
    expected = {job.segment: job.options.expected for job in driver.jobs if job.kind == "partial"}
    assert expected == {
        0: None,
        1: "en",
        2: "zh",
        3: "zh",
        4: "zh",
    }  # neither an unknown one, nor of no words
    assert {job.options.expected for job in driver.jobs if job.kind == "final"} == {None}
    driver.say("STOP", "START")
    driver.hear(tone(1.0))
    assert driver.jobs[-1].options.expected is None


def test_replacements_are_made_in_finals_only() -> None:
    driver = started(lambda job: Decoded("fun a s r"))
    driver.say("POSTPROCESS_HOTWORDS:a s r=>ASR")
    driver.hear(tone(1.0))
    assert driver.messages[-1]["partial"] == "fun a s r"
    driver.say("STOP")
    assert driver.messages[-2]["sentences"][0]["text"] == "fun ASR"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_finals_gives_the_same_transcript(order: tuple[int, ...]) -> None:
    driver = started(hold("final", "eager"))
    driver.hear(speech_pattern([(1.0, 1.0)] * 3))
    driver.say("STOP")
    pending = list(driver.pending)
    assert len(pending) == 3
    for index in order:
        driver.answer(pending[index], spans(pending[index]))
    assert driver.messages[-2]["is_final"] is True
    assert [s["start"] for s in driver.messages[-2]["sentences"]] == sorted(
        job.start // 16 for job in pending
    )
    assert len(driver.messages[-2]["sentences"]) == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_packets_and_any_delays_give_the_same_sentences(seed: int) -> None:
    chance = random.Random(seed)
    audio = speech_pattern([(1.0, 0.9), (0.4, 1.3), (2.5, 0.3), (0.6, 0.7)])
    driver = started(lambda job: None if chance.random() < 0.6 else spans(job))
    position = 0
    while position < len(audio):
        size = chance.randrange(1, 20_000)
        driver.hear(audio[position : position + size], packet=size)
        position += size
        if driver.pending and chance.random() < 0.5:
            job = driver.begin(chance.choice(driver.pending))
        if driver.pending and chance.random() < 0.5:
            job = chance.choice(driver.pending)
            driver.answer(job, spans(job))
    driver.say("STOP")
    while driver.pending:
        job = chance.choice(driver.pending)
        driver.answer(job, spans(job))
    plain = started()
    plain.hear(audio)
    plain.say("STOP")
    assert driver.messages[-2]["sentences"] == plain.messages[-2]["sentences"]
    assert len(plain.messages[-2]["sentences"]) == 3


def test_the_duration_never_claims_what_nobody_was_told() -> None:
    driver = started(lambda job: None)
    driver.hear(np.concatenate([silence(2.0), tone(3.0)]))
    assert 1500 * 16 <= driver.events[-1].upto <= 2000 * 16
    driver.answer(driver.pending[0], Decoded("so far"))
    assert driver.messages[-1]["duration_ms"] == driver.jobs[0].end // 16


def test_the_duration_grows_about_once_a_second_in_silence() -> None:
    driver = started()
    driver.hear(silence(10.0))
    durations = [a["duration_ms"] for a in driver.messages[1:]]
    assert len(durations) == 9
    assert durations == sorted(durations)
    assert durations[-1] > 8500


def test_while_a_final_is_awaited_its_partial_stays_and_the_next_one_follows_it() -> None:
    driver = started(lambda job: None if job.kind in ("final", "eager") else Decoded(f"p{job.segment}"))
    driver.hear(np.concatenate([tone(1.0), silence(1.0), tone(1.0)]))
    assert driver.messages[-1]["partial"] == "p0 p1"
    assert driver.messages[-1]["partial_start_ms"] == 0


def test_a_segment_without_words_leaves_no_sentence_and_no_partial() -> None:
    driver = started(lambda job: Decoded("", finish="gated"))
    driver.hear(np.concatenate([tone(1.0), silence(1.0)]))
    assert driver.sentences == []
    assert driver.messages[-1]["partial"] == ""


def test_a_stall_closes_the_open_segment_once() -> None:
    driver = started()
    driver.hear(tone(1.0))
    for _ in range(2):
        driver.protocol.receive_stall()
        driver.turn()
    assert len(driver.sentences) == 1
    driver.hear(np.concatenate([silence(1.0), tone(1.0)]))
    driver.say("STOP")
    assert len(driver.sentences) == 2


def test_a_stall_closes_where_the_audio_stalled_also_when_scores_come_late() -> None:
    driver = started()
    driver.hold_scores = True
    driver.hear(tone(1.5))
    driver.protocol.receive_stall()
    driver.turn()
    driver.hear(tone(3.0))
    driver.release_scores()
    driver.say("STOP")
    assert [(s["start"], s["end"]) for s in driver.messages[-2]["sentences"]] == [(0, 1500), (1500, 4500)]


def test_settings_do_not_stop_the_clock_that_clients_see() -> None:
    driver = started()
    for _ in range(20):
        driver.hear(silence(0.5))
        driver.say("HOTWORDS:a")
    assert len([a for a in driver.messages if "duration_ms" in a]) >= 8


def test_after_stop_the_final_is_the_next_message() -> None:
    driver = started(lambda job: None if job.kind != "partial" else spans(job))
    driver.hear(speech_pattern([(1.0, 1.0)] * 3))
    driver.say("STOP")
    seen = len(driver.messages)
    for job in list(driver.pending):
        driver.answer(job, spans(job))
    final, stopped = driver.messages[seen:]
    assert (final["is_final"], len(final["sentences"])) == (True, 3)
    assert stopped == {"event": "stopped"}


def test_the_end_in_the_middle_of_a_commit() -> None:
    driver = in_state(State.COMMITTING)
    driver.protocol.receive_end()
    driver.turn()
    while driver.pending:
        driver.answer(driver.pending[0], Decoded("kept"))
    assert driver.protocol.state is State.ENDED
    assert driver.messages[0]["is_final"] is True
    assert driver.messages[0]["sentences"][0]["text"] == "kept"


def test_a_stall_without_a_session_is_nothing() -> None:
    driver = Driver()
    driver.protocol.receive_stall()
    driver.turn()
    assert driver.messages == []


class TestCommit:
    def test_it_needs_client_endpointing(self) -> None:
        driver = started()
        driver.say("COMMIT")
        assert driver.messages[-1] == {"event": "error", "error": "COMMIT requires --endpoint-mode client"}

    def test_it_needs_a_session(self) -> None:
        driver = Driver(settings=CLIENT)
        driver.say("COMMIT")
        assert driver.messages[-1] == {"event": "error", "error": "Session is not active; send START first"}

    def test_it_closes_the_open_utterance_and_the_clock_goes_on(self) -> None:
        driver = started(settings=CLIENT)
        driver.hear(np.concatenate([tone(1.0), silence(3.0), tone(0.5)]))
        assert driver.sentences == []
        driver.say("COMMIT")
        first = driver.messages[-1]
        assert first["is_final"] is True
        assert first["sentences"] == [{"text": "from 0-4500", "start": 0, "end": 4500}]
        driver.hear(np.concatenate([silence(1.0), tone(1.0)]))
        driver.say("COMMIT")
        second = driver.messages[-1]
        assert [s["end"] for s in second["sentences"]] == [6500]
        assert second["duration_ms"] == 6500

    def test_with_nothing_open_it_gives_an_empty_final(self) -> None:
        driver = started(settings=CLIENT)
        driver.hear(silence(1.0))
        driver.say("COMMIT", "COMMIT")
        assert [a["sentences"] for a in driver.messages if a.get("is_final")] == [[], []]

    def test_audio_and_commands_meanwhile_belong_to_the_next_utterance(self) -> None:
        driver = started(
            lambda job: None if job.end == 16_000 and job.kind == "final" else spans(job), CLIENT
        )
        driver.hear(tone(1.0))
        driver.say("COMMIT")
        driver.hear(np.concatenate([silence(0.5), tone(1.0)]))
        driver.say("COMMIT", "STOP")
        (job,) = driver.pending
        driver.answer(job, Decoded("first"))
        finals = [a for a in driver.messages if a.get("is_final")]
        assert [s["text"] for s in finals[0]["sentences"]] == ["first"]
        assert len(finals) == 3
        assert finals[1]["sentences"][0]["end"] == 2500
        assert finals[2]["sentences"] == []

    def test_it_waits_for_the_scores_of_what_was_heard(self) -> None:
        driver = started(settings=CLIENT)
        driver.hold_scores = True
        driver.hear(tone(2.0))
        driver.say("COMMIT")
        assert driver.protocol.state is State.COMMITTING
        driver.release_scores()
        assert driver.messages[-1]["sentences"] == [{"text": "from 0-2000", "start": 0, "end": 2000}]


class TestFailures:
    def test_a_failed_segment_is_told_after_its_result(self) -> None:
        driver = started(lambda job: None if job.kind == "partial" else EngineError("out of memory"))
        driver.hear(np.concatenate([tone(1.0), silence(1.0)]))
        result, error = driver.messages[1:3]
        assert result["sentences"] == []
        assert "0.0 to 1.2 s could not be recognised: out of memory" in error["error"]
        assert driver.protocol.counts.failed == 1
        assert driver.protocol.counts.errors == 1

    def test_after_stop_the_error_follows_the_final(self) -> None:
        driver = started(lambda job: EngineError("out of memory"))
        driver.hear(tone(1.0))
        seen = len(driver.messages)
        driver.say("STOP")
        final, error, stopped = driver.messages[seen:]
        assert final["is_final"] is True
        assert "out of memory" in error["error"]
        assert stopped == {"event": "stopped"}

    def test_a_deadline_is_a_failure(self) -> None:
        driver = started(lambda job: EngineTimeoutError("no answer within 10 s"))
        driver.hear(tone(1.0))
        driver.say("STOP")
        assert "no answer within 10 s" in driver.messages[-2]["error"]

    def test_a_recovered_segment_is_counted_and_no_error(self) -> None:
        driver = started(lambda job: Decoded("hello world" if job.kind == "partial" else ""))
        driver.hear(np.concatenate([tone(2.5), silence(1.0)]))
        assert driver.sentences == ["hello world"]
        assert driver.protocol.counts.recovered == 1
        assert driver.of(m.Failed) == []

    def test_a_failing_engine_is_not_asked_again_and_again_for_the_same_audio(self) -> None:
        driver = started(lambda job: EngineError("gone"))
        driver.hear(tone(12.0))
        assert len(driver.jobs) < 20

    def test_what_a_failed_scorer_did_not_judge_is_told_also_at_shutdown(self) -> None:
        driver = started()
        driver.hold_scores = True
        driver.hear(tone(5.0))
        driver.protocol.receive_end()
        driver.turn()
        driver.protocol.receive_failure(driver.held_scores[0], EngineTimeoutError("no answer"))
        driver.turn()
        final, error = driver.messages[-2:]
        assert (final["is_final"], final["duration_ms"], final["sentences"]) == (True, 0, [])
        assert "voice activity detection failed: no answer" in error["error"]
        (closing,) = driver.of(m.Closing)
        assert closing.close_code == 1012

    def test_without_a_scorer_the_session_ends_with_what_it_has(self) -> None:
        driver = started()
        driver.hear(tone(2.0))
        driver.hold_scores = True
        driver.hear(tone(0.5))
        (job,) = driver.held_scores
        driver.protocol.receive_failure(job, EngineError("network is gone"))
        driver.turn()
        final, error = driver.messages[-2:]
        assert final["is_final"] is True
        assert final["sentences"][0]["text"] == "from 0-2500"
        assert "network is gone" in error["error"]
        (closing,) = driver.of(m.Closing)
        assert closing.close_code == 1011
        assert driver.protocol.state is State.ENDED

    def test_answers_after_the_end_are_dropped(self) -> None:
        driver = started(hold("partial"))
        driver.hear(tone(1.0))
        (job,) = driver.pending
        driver.say("STOP")
        seen = len(driver.messages)
        driver.answer(job, Decoded("late"))
        driver.protocol.receive_failure(job, EngineError("late"))
        driver.turn()
        assert len(driver.messages) == seen


class TestEnd:
    def test_the_tail_is_decoded_and_told(self) -> None:
        driver = started()
        driver.hear(tone(1.0))
        driver.protocol.receive_end()
        driver.turn()
        assert driver.messages[-1]["is_final"] is True
        assert driver.messages[-1]["sentences"][0]["text"] == "from 0-1000"
        assert driver.protocol.state is State.ENDED

    def test_it_waits_behind_a_pending_stop(self) -> None:
        driver = started(hold("final"))
        driver.hear(tone(1.0))
        driver.say("STOP")
        driver.protocol.receive_end()
        driver.turn()
        assert driver.protocol.state is State.STOPPING
        driver.answer(driver.pending[0], Decoded("all"))
        assert driver.protocol.state is State.ENDED
        assert [a.get("event", "final") for a in driver.messages[-2:]] == ["final", "stopped"]

    def test_nothing_is_taken_afterwards(self) -> None:
        driver = in_state(State.ENDED)
        driver.say("START")
        driver.hear(tone(1.0))
        assert driver.messages == []


class TestLimits:
    def limited(self, **limits: float) -> SessionSettings:
        return replace(FIXED, limits=Limits(**limits))  # type: ignore[arg-type]

    def ended_with(self, driver: Driver) -> str:
        """The error of a session that was ended for cause; its final came before."""
        final, error = driver.messages[-2:]
        assert final["is_final"] is True
        (closing,) = driver.of(m.Closing)
        assert closing.close_code == 1008
        assert driver.protocol.state is State.ENDED
        driver.say("START")
        driver.hear(tone(1.0))
        assert driver.messages[-1] is error
        return str(error["error"])

    def test_session_length(self) -> None:
        driver = started(settings=self.limited(session_s=2.0))
        driver.hear(tone(3.0))
        assert "limit of 2 s of audio" in self.ended_with(driver)
        assert driver.messages[-2]["duration_ms"] == 2000

    def test_undecoded_audio(self) -> None:
        driver = started(settings=self.limited(undecoded_s=2.0))
        driver.hold_scores = True
        driver.hear(tone(3.0))
        driver.release_scores()
        assert "more than 2 s of audio wait" in self.ended_with(driver)
        assert driver.messages[-2]["sentences"]

    def test_undecoded_audio_behind_a_stop(self) -> None:
        driver = started(hold("final"), self.limited(undecoded_s=2.0))
        driver.hear(tone(1.0))
        driver.say("STOP", "START")
        driver.hear(tone(3.0))
        driver.answer(driver.pending[0], Decoded("kept"))
        assert "more than 2 s of audio wait" in self.ended_with(driver)
        assert driver.messages[-2]["sentences"][0]["text"] == "kept"

    def test_undecoded_audio_behind_a_commit_is_still_heard(self) -> None:
        driver = started(hold("final"), replace(CLIENT, limits=Limits(undecoded_s=3.0)))
        driver.hear(tone(1.0))
        driver.say("COMMIT", "LANGUAGE:en")
        driver.hear(tone(4.0))
        driver.say("START")
        for job in list(driver.pending):
            driver.answer(job, spans(job))
        while driver.pending:
            driver.answer(driver.pending[0], spans(driver.pending[0]))
        assert "more than 3 s of audio wait" in self.ended_with(driver)
        # What came up to the packet that passed the limit.
        final = driver.messages[-2]
        assert final["sentences"][-1]["end"] == final["duration_ms"] > 3000

    def test_audio_behind_a_commit_ends_where_the_next_session_begins(self) -> None:
        driver = started(hold("final"), replace(CLIENT, limits=Limits(undecoded_s=3.0)))
        driver.hear(tone(1.0))
        driver.say("COMMIT", "STOP", "START")
        driver.hear(tone(4.0))
        while driver.pending:
            driver.answer(driver.pending[0], spans(driver.pending[0]))
        assert "more than 3 s of audio wait" in self.ended_with(driver)
        assert driver.messages[-2]["duration_ms"] == 1000

    def test_sentences(self) -> None:
        driver = started(settings=self.limited(sentences=2))
        driver.hear(speech_pattern([(1.0, 1.0)] * 3))
        assert "limit of 2 sentences" in self.ended_with(driver)
        assert len(driver.messages[-2]["sentences"]) == 2

    def test_characters(self) -> None:
        driver = started(settings=self.limited(characters=100))
        driver.say(f"POSTPROCESS_HOTWORDS:from=>{'x' * 60}")
        driver.hear(speech_pattern([(1.0, 1.0)] * 4))
        assert "limit of 100 characters" in self.ended_with(driver)
        texts = [sentence["text"] for sentence in driver.messages[-2]["sentences"]]
        assert [text.split()[0] for text in texts] == ["x" * 60] * 2

    def test_beyond_its_characters_no_replacement_makes_a_text_longer(self) -> None:
        driver = started(hold("final", "eager"), self.limited(characters=100))
        driver.say(f"POSTPROCESS_HOTWORDS:long=>{'x' * 99},longer=>y")
        driver.hear(speech_pattern([(1.0, 1.0)] * 4))
        for text in ("long", "one long", "long and longer", "long"):
            driver.answer(driver.pending[0], Decoded(text))
        assert "limit of 100 characters" in self.ended_with(driver)
        texts = [sentence["text"] for sentence in driver.messages[-2]["sentences"]]
        assert texts == ["x" * 99, "one " + "x" * 99, "long and y", "long"]

    def test_waiting_commands(self) -> None:
        driver = started(hold("final"), self.limited(queued_commands=10))
        driver.hear(tone(1.0))
        driver.say("STOP", *["START"] * 10)
        assert driver.of(m.Closing) == []
        driver.say("START")
        driver.answer(driver.pending[0], Decoded("kept"))
        assert "too many commands" in self.ended_with(driver)

    def test_a_second_limit_changes_nothing(self) -> None:
        driver = started(settings=self.limited(session_s=1.0, undecoded_s=0.5))
        driver.hold_scores = True
        driver.hear(tone(3.0), packet=48_000)
        driver.release_scores()
        assert "limit of 1 s of audio" in self.ended_with(driver)


class TestMemory:
    def test_audio_is_not_kept_longer_than_some_job_needs_it(self) -> None:
        driver = started()
        for _ in range(60):
            driver.hear(np.concatenate([tone(2.0), silence(1.0)]), packet=960)
        (track,) = driver.protocol._tracks
        assert len(track._buffer._data) < 10 * 16_000
        assert len(driver.sentences) == 60

    def test_in_silence_nothing_is_kept(self) -> None:
        driver = started()
        driver.hear(silence(120.0))
        (track,) = driver.protocol._tracks
        assert len(track._buffer._data) < 3 * 16_000


def test_an_unbroken_speech_is_cut_without_gap_or_overlap() -> None:
    driver = started(settings=SessionSettings(endpointing=EndpointingOptions(max_segment_ms=5000)))
    driver.hear(np.concatenate([tone(1.0)] * 17 + [silence(3.0)]))
    locked = [s for event in driver.of(m.SegmentLocked) for s in event.sentences]
    assert len(locked) > 3
    assert locked[0].start_ms == 0
    assert all(a.end_ms == b.start_ms for a, b in itertools.pairwise(locked))
    assert all(s.end_ms - s.start_ms <= 5000 for s in locked)


def test_around_a_cut_no_word_is_shown_twice() -> None:
    """Each text names the tenths of a second it covers; shown together they never overlap."""

    def tenths(job: DecodeJob) -> Decoded:
        return Decoded(" ".join(f"{n}" for n in range(job.start // 1600, job.end // 1600)))

    driver = started(
        lambda job: None if job.kind == "final" else tenths(job),
        SessionSettings(endpointing=EndpointingOptions(max_segment_ms=5000)),
    )
    for _ in range(4):
        # The cut falls into the softer part, a second after which partials have been shown already.
        driver.hear(np.concatenate([tone(4.0), tone(0.2, level=0.1), tone(1.8)]))
        if driver.pending:
            driver.answer(driver.pending[0], tenths(driver.pending[0]))
    assert len(driver.sentences) >= 3
    for message in driver.messages[1:]:
        shown = [*(s["text"] for s in message["sentences"]), message["partial"]]
        numbers = [int(word) for text in shown for word in text.split()]
        assert len(numbers) == len(set(numbers))


def test_under_load_no_eager_final_is_asked_for() -> None:
    def slow(job: DecodeJob) -> Answer:
        return Decoded("x", took_ms=5000.0)

    driver = started(slow)
    driver.hear(speech_pattern([(2.0, 0.9)] * 4))
    assert [job.kind for job in driver.jobs if job.segment == 3 and job.kind != "partial"] == ["final"]


def test_a_partial_that_had_to_wait_takes_along_what_was_heard_meanwhile() -> None:
    driver = started(hold("partial"))
    driver.hear(tone(2.0))
    (asked,) = driver.pending
    begun = driver.begin(asked)
    assert (asked.end, begun.end) == (9600, 33 * 960)
    assert (begun.id, begun.start, len(begun.audio)) == (asked.id, 0, begun.end)
    driver.hear(tone(0.5))
    driver.answer(begun, Decoded("one two"))
    assert driver.messages[-1]["partial"] == "one two"
    assert driver.messages[-1]["duration_ms"] == begun.end // 16


def test_what_is_no_partial_is_begun_as_it_is() -> None:
    driver = started(hold("final", "eager", "partial"))
    driver.hear(np.concatenate([tone(1.0), silence(0.3)]))
    partial, eager = driver.pending
    assert driver.begin(eager) is eager
    driver.hear(silence(0.6))  # the segment ends, and with it the partial
    assert driver.protocol.receive_turn(partial) is partial
    driver.say("START")
    assert driver.protocol.receive_turn(eager) is eager


@pytest.mark.parametrize("packet", [1600, 16_000])  # in one packet the end comes with the pause
def test_an_eager_final_is_hastened_when_its_end_is_confirmed(packet: int) -> None:
    driver = started(hold("eager"))
    driver.hear(np.concatenate([tone(1.0), silence(0.4)]), packet=packet)
    driver.hear(silence(0.6), packet=packet)
    (eager,) = driver.pending
    assert driver.hastened == [eager.id]
    driver.answer(replace(eager, priority=Priority.FINAL), Decoded("one two"))
    (lock,) = driver.of(m.SegmentLocked)
    assert lock.eager
    assert 1000 < lock.sentences[0].end_ms < lock.noticed // 16 <= 2000


@pytest.mark.parametrize("end", ["COMMIT", "STOP", "stall", "lost"])
@pytest.mark.parametrize("length_s", [1.0, 1.0599])
def test_an_end_that_its_client_calls_is_noticed_where_its_audio_ends(end: str, length_s: float) -> None:
    driver = started(settings=CLIENT)
    audio = tone(length_s)
    driver.hear(audio)
    if end == "stall":
        driver.protocol.receive_stall()
    elif end == "lost":
        driver.protocol.receive_end()
    else:
        driver.say(end)
    driver.turn()
    (lock,) = driver.of(m.SegmentLocked)
    assert len(audio) - to_samples(100) < lock.noticed <= len(audio)


def test_partials_that_were_due_and_not_asked_for_are_counted() -> None:
    driver = started(hold("partial"))
    driver.hear(tone(3.0))
    driver.answer(driver.pending[0], Decoded("one"))
    driver.hear(np.concatenate([tone(0.3), silence(1.0)]))
    counts = driver.protocol.counts
    assert (counts.partials, counts.folded, counts.cancelled) == (1, 2, 1)


def test_counts_read_like_a_log_line() -> None:
    driver = started()
    driver.hear(tone(1.0))
    driver.say("STOP")
    text = str(driver.protocol.counts)
    assert text.startswith("audio 1.0 s, speech 1.0 s, sessions 1, segments 1, sentences 1, partials 1")


def test_a_recognizer_without_hotwords_is_not_given_any_and_the_operator_is_told_once() -> None:
    driver = Driver(capabilities=replace(CAPABILITIES, hotwords="none"))
    driver.say("START", "HOTWORDS:a", "HOTWORDS:b")
    driver.hear(tone(1.0))
    assert [a["event"] for a in driver.messages[:3]] == ["started", "hotwords_set", "hotwords_set"]
    assert driver.jobs[0].options.hotwords == ()
    assert len(driver.of(m.Warned)) == 1


def test_a_limit_met_while_a_final_is_locked_ends_the_session_by_itself() -> None:
    """Nobody needs to say anything more: what the end asks for is handed out at once."""
    driver = Driver(hold("final", "eager"), replace(FIXED, limits=Limits(sentences=1)))  # type: ignore[arg-type]
    driver.say("START")
    driver.hear(speech_pattern([(1.0, 1.0), (1.0, 0.1)]))
    (job,) = [job for job in driver.pending if job.kind in ("final", "eager")][:1]
    driver.decode = spans
    driver.answer(job, spans(job))
    assert driver.of(m.Closing)
    assert driver.protocol.state is State.ENDED
    assert len(driver.sentences) == 2

"""RealtimeASRSession without a socket, as somebody who builds a service of their own uses it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from realtime_server.core.jobs import Decoded, DecodeJob, Job, Probabilities, Samples, ScoreJob
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.fake import FakeEngine, FakeScorer, Fault
from realtime_server.errors import EngineError
from realtime_server.realtime.event_log import KEPT_EVENTS, ReaderTooSlowError
from realtime_server.realtime.session import Clocks, RealtimeASRSession
from tests.audio import pcm16, silence, speech_pattern, tone
from tests.realtime.harness import (
    BY_CLIENT,
    FIXED,
    PATIENCE_S,
    SENTENCE,
    Message,
    WatchedScorer,
    eventually,
    texts,
)

QUICK = Clocks(deadline_s=1.0, deadline_factor=0.0)  # the scorer's jobs must meet it on a busy machine
STALL = Clocks(stall_s=0.2)


def session(
    engine: Engine | None = None,
    scorer: Scorer | None = None,
    settings: SessionSettings = FIXED,
    **options: Clocks,
) -> RealtimeASRSession:
    return RealtimeASRSession(engine or FakeEngine(), scorer or FakeScorer(), settings, **options)


async def read(live: RealtimeASRSession) -> list[Message]:
    """Everything up to the end."""
    async with asyncio.timeout(PATIENCE_S):
        return [json.loads(message) async for message in live.messages()]


async def transcribe(live: RealtimeASRSession, *frames: str | bytes | Samples) -> list[Message]:
    """START, some frames, STOP, the end; return the messages."""
    for frame in ("START", *frames, "STOP"):
        live.feed(pcm16(frame) if isinstance(frame, np.ndarray) else frame)
    live.end()
    return await read(live)


def final(messages: Sequence[Message]) -> Message:
    (one,) = (message for message in messages if message.get("is_final"))
    return one


def errors(messages: Sequence[Message]) -> list[str]:
    return [message["error"] for message in messages if message.get("event") == "error"]


async def test_the_documented_use() -> None:
    engine, scorer, pcm_bytes = FakeEngine(), FakeScorer(), pcm16(tone(1.0))
    messages = []
    async with RealtimeASRSession(engine, scorer) as live:
        live.feed("START")
        live.feed(pcm_bytes)
        live.feed("STOP")
        live.end()
        async for message in live.messages():
            messages.append(json.loads(message))
    assert messages[0] == {"event": "started"}
    assert texts(messages[-2]) == ["one two"]
    assert messages[-1] == {"event": "stopped"}


async def test_messages_come_while_audio_goes_on() -> None:
    async with session() as live:
        messages = live.messages()
        live.feed("START")
        assert json.loads(await anext(messages)) == {"event": "started"}
        live.feed(pcm16(SENTENCE))
        while not texts(result := json.loads(await anext(messages))):
            assert result["is_final"] is False
        assert texts(result) == ["one two"]
        await messages.aclose()


@pytest.mark.parametrize("ending", ["end", "end twice", "aclose"])
async def test_after_the_end_nothing_more_is_taken(ending: str) -> None:
    before = asyncio.all_tasks()
    async with session() as live:
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        if ending == "aclose":
            await live.aclose()
        else:
            for _ in ending.split():
                live.end()
        live.feed(pcm16(tone(5.0)))
        live.feed("START")
        live.feed("HOTWORDS:late")
        live.end()
        messages = await read(live)
        await live.wait_ended()
        live.feed("START")
    assert not any(message.get("event") == "hotwords_set" for message in messages)
    assert [message["duration_ms"] for message in messages if message.get("is_final")] in ([], [1000])
    assert asyncio.all_tasks() == before


async def test_audio_that_comes_after_the_end_costs_no_text_at_any_rate() -> None:
    """A client speaks on while the server stops: its resampler has given out its last."""
    async with session(FakeEngine(decode_s=0.05)) as live:
        live.feed('START {"protocol": 2, "sample_rate": 8000}')
        live.feed(pcm16(tone(1.0)))  # two seconds at that rate
        live.end()
        live.feed(pcm16(tone(0.2)))
        live.end()
        messages = await read(live)
    assert live.closing
    assert live.closing.close_code == 1012
    (told,) = (message for message in messages if message["type"] == "final")
    assert [sentence["text"] for sentence in told["sentences"]] == ["one two three four"]
    assert told["duration_ms"] == 2000


async def test_the_end_is_reached_though_nobody_reads() -> None:
    async with session() as live:
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        live.end()
        async with asyncio.timeout(PATIENCE_S):
            await live.wait_ended()
        assert "sentences 1" in live.summary


async def test_a_session_that_is_left_frees_what_it_holds() -> None:
    engine, scorer = FakeEngine(decode_s=60.0), WatchedScorer()
    async with session(engine, scorer) as live:
        live.feed("START")
        live.feed(pcm16(tone(1.01)))
        await eventually(lambda: engine.running and scorer.streams)
    assert (engine.running, engine.waiting, scorer.streams) == (0, 0, 0)


async def test_start_in_a_running_session_aborts_its_decodes() -> None:
    engine = FakeEngine(decode_s=60.0)
    async with session(engine) as live:
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        await eventually(lambda: engine.running)
        live.feed("START")
        await eventually(lambda: engine.cancelled and not engine.running)
        assert engine.waiting == 0


async def test_unread_events_are_bounded_and_missing_ones_are_told() -> None:
    async with session() as live:
        for _ in range(KEPT_EVENTS + 1):
            live.feed("STOP")
        with pytest.raises(ReaderTooSlowError, match="1 events were dropped"):
            await anext(live.messages())


async def test_waiting_until_the_answers_are_read() -> None:
    async with session() as live:
        for _ in range(3):
            live.feed("STOP")
        await live.wait_read(3)
        waiting = asyncio.create_task(live.wait_read(2))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        messages = live.messages()
        await anext(messages)
        await waiting
        for _ in range(9):
            live.feed("STOP")
        waiting = asyncio.create_task(live.wait_read(2))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await messages.aclose()
        await waiting


# --- an engine with faults --------------------------------------------------------------------------------


async def test_one_failure_is_repaired_in_silence() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(kind="final", nth=1))
    async with session(engine) as live:
        messages = await transcribe(live, tone(1.0))
        assert "decode_failures 1" in live.summary
    assert texts(final(messages)) == ["one two"]
    assert errors(messages) == []


async def test_an_engine_that_always_fails_is_visible_and_the_session_goes_on() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    async with session(engine) as live:
        live.feed("START")
        live.feed(pcm16(SENTENCE))
        await eventually(lambda: "errors 1" in live.summary)
        engine.faults.clear()
        messages = await transcribe_on(live, SENTENCE)
    assert errors(messages) == [
        "the audio from 0.0 to 1.2 s could not be recognised: the fake engine was told to fail"
    ]
    assert texts(final(messages)) == ["five six"]


async def transcribe_on(live: RealtimeASRSession, audio: Samples) -> list[Message]:
    live.feed(pcm16(audio))
    live.feed("STOP")
    live.end()
    return await read(live)


async def test_an_engine_that_never_answers_is_visible_and_later_speech_is_recognised() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with session(engine, clocks=QUICK) as live:
        live.feed("START")
        live.feed(pcm16(SENTENCE))
        await eventually(lambda: "segments 1" in live.summary)
        engine.faults.clear()
        await eventually(lambda: "errors 1" in live.summary)
        assert engine.running == 0
        messages = await transcribe_on(live, SENTENCE)
    (error,) = errors(messages)
    assert error == "the audio from 0.0 to 1.2 s could not be recognised: no answer within 1.0 s"
    assert texts(final(messages)) == ["five six"]


@pytest.mark.parametrize("kind", ["partial", "eager"])
async def test_partials_and_eager_decodes_that_hang_cost_nothing_but_themselves(kind: str) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None, kind="partial" if kind == "partial" else "eager"))
    async with session(engine) as live:
        messages = await transcribe(live, tone(1.0), silence(0.3), tone(1.0))
    assert texts(final(messages)) == ["one two three four five"]
    assert errors(messages) == []


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ValueError("a bug"), "internal error (ValueError)"),
        (TimeoutError("its own"), "internal error (TimeoutError)"),
        (asyncio.CancelledError(), "the engine dropped the job"),
        (EngineError(""), "EngineError"),
    ],
)
async def test_whatever_an_engine_raises_the_session_goes_on(
    fault: BaseException, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Engine(FakeEngine):
        async def transcribe(self, job: DecodeJob, on_text: object = None) -> Decoded:
            raise fault

    async with session(Engine()) as live:
        messages = await transcribe(live, tone(1.0))
    assert errors(messages) == [f"the audio from 0.0 to 1.0 s could not be recognised: {told}"]
    assert final(messages)["sentences"] == []
    assert any(record.exc_info for record in caplog.records) is told.startswith("internal")


async def test_a_backlog_of_its_own_does_not_let_a_decode_expire() -> None:
    engine = FakeEngine(slots=1, decode_s=0.1)
    async with session(engine, clocks=QUICK) as live:
        messages = await transcribe(live, speech_pattern([(0.5, 0.8)] * 15))  # 1.5 s of decodes
    assert len(texts(final(messages))) == 15
    assert errors(messages) == []


async def test_a_lost_decode_expires_though_later_ones_are_answered() -> None:
    engine = FakeEngine(slots=2, decode_s=0.01)
    engine.faults.inject(Fault(error=None, kind="final", nth=1))
    settings = replace(FIXED, endpointing=replace(FIXED.endpointing, eager_ms=None))
    async with session(engine, settings=settings, clocks=QUICK) as live:
        live.feed("START")
        speaking = asyncio.create_task(keep_speaking(live))
        await eventually(lambda: "errors 1" in live.summary)
        speaking.cancel()
        messages = await transcribe_on(live, silence(0.1))
    assert [error.split(" could")[0] for error in errors(messages)] == ["the audio from 0.0 to 0.7 s"]
    assert texts(final(messages))[0] == "four"


async def keep_speaking(live: RealtimeASRSession) -> None:
    while True:
        live.feed(pcm16(speech_pattern([(0.5, 0.8)])))
        await asyncio.sleep(0.02)


async def test_finals_of_one_backlog_do_not_fill_the_queue_of_the_engine() -> None:
    engine = FakeEngine(slots=2, decode_s=0.02)
    async with session(engine) as live:
        live.feed("START")
        live.feed(pcm16(speech_pattern([(0.5, 0.8)] * 12)))
        waiting = []
        for _ in range(40):
            await asyncio.sleep(0.005)
            waiting.append(engine.waiting)
        assert max(waiting) <= 1  # a partial may wait; finals do so in the session


async def test_every_answer_is_observed() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(kind="final", nth=1))
    seen: list[tuple[str, str]] = []

    def observe(job: Job, error: EngineError | None) -> None:
        seen.append((job.kind if isinstance(job, DecodeJob) else "score", type(error).__name__))

    async with RealtimeASRSession(engine, FakeScorer(), FIXED, observe=observe) as live:
        await transcribe(live, tone(0.3))
    assert [what for what in seen if what[0] != "score"] == [("final", "EngineError"), ("final", "NoneType")]
    assert ("score", "NoneType") in seen


# --- a scorer with faults ---------------------------------------------------------------------------------


@pytest.mark.parametrize("never", [False, True])
async def test_a_scorer_that_fails_ends_the_session_with_its_final_and_an_error(never: bool) -> None:
    scorer = FakeScorer()
    async with session(scorer=scorer, clocks=QUICK) as live:
        live.feed("START")
        live.feed(pcm16(tone(1.2)))
        await eventually(lambda: "partials 1" in live.summary)
        scorer.faults.inject(Fault(error=None) if never else Fault())
        live.feed(pcm16(tone(1.2)))
        messages = await read(live)
        assert live.closing
        assert live.closing.close_code == 1011
    *_, last, error = messages
    assert last["is_final"] is True
    assert texts(last)[0].startswith("one two")
    assert error["error"].startswith("voice activity detection failed: ")


async def test_a_fault_of_our_own_ends_the_session_visibly(caplog: pytest.LogCaptureFixture) -> None:
    class Nonsense(FakeScorer):
        async def score(self, job: ScoreJob) -> Probabilities:
            return "nonsense"  # type: ignore[return-value]

    async with session(scorer=Nonsense()) as live:
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        messages = await read(live)
        live.feed("STOP")
        live.end()
        assert live.closing
        assert (live.closing.close_code, live.closing.reason) == (1011, "internal error")
    assert messages == [{"event": "started"}]
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


# --- a client that falls silent ---------------------------------------------------------------------------


async def test_half_a_sentence_is_locked_once_when_no_more_comes() -> None:
    engine = FakeEngine()
    async with session(engine, clocks=STALL) as live:
        messages = live.messages()
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        while not (result := json.loads(await anext(messages))).get("sentences"):
            pass
        assert texts(result) == ["one two"]
        assert result["is_final"] is False
        await asyncio.sleep(0.05)
        live.feed(pcm16(tone(1.0)))
        live.feed("STOP")
        while not (result := json.loads(await anext(messages))).get("is_final"):
            pass
        assert len(texts(result)) == 2
        assert sum(job.kind == "final" for job in engine.jobs) == 2
        await messages.aclose()


async def test_a_stall_behind_a_slow_commit_locks_what_came_after_it() -> None:
    engine = FakeEngine(decode_s=0.25)
    async with session(engine, settings=BY_CLIENT, clocks=Clocks(stall_s=0.1)) as live:
        messages = live.messages()
        live.feed("START")
        live.feed(pcm16(tone(0.5)))
        live.feed("COMMIT")
        live.feed(pcm16(tone(0.5)))  # half a sentence, kept until the commit is answered
        async with asyncio.timeout(PATIENCE_S):
            while not (result := json.loads(await anext(messages))).get("is_final"):
                pass
            assert texts(result) == ["one"]
            while not (result := json.loads(await anext(messages))).get("sentences"):
                pass
        assert texts(result) == ["two"]
        await messages.aclose()


async def test_silence_without_a_session_is_no_stall() -> None:
    async with session(clocks=Clocks(stall_s=0.01)) as live:
        live.feed(pcm16(tone(0.1)))
        await asyncio.sleep(0.03)
        assert (await transcribe(live))[-2]["duration_ms"] == 0


# --- giving up --------------------------------------------------------------------------------------------


async def test_giving_up_tells_what_is_known_and_what_is_lost() -> None:
    engine, scorer = FakeEngine(), WatchedScorer()
    async with session(engine, scorer) as live:
        live.feed("START")
        live.feed(pcm16(SENTENCE))
        live.feed(pcm16(tone(2.0)))
        await eventually(lambda: "partials 3" in live.summary)
        engine.faults.inject(Fault(error=None))
        live.feed(pcm16(tone(1.0)))
        live.end()
        await eventually(lambda: engine.running)
        live.give_up("the server stops")
        messages = await read(live)
        assert live.closing
        assert live.closing.close_code == 1012
    last = final(messages)
    assert texts(last)[0] == "one two"
    assert texts(last)[1].startswith("five six")
    (error,) = errors(messages)
    assert error.endswith("could not be recognised: the server stops")
    await eventually(lambda: engine.running == 0)


async def test_giving_up_on_a_scorer_that_never_answers() -> None:
    scorer = FakeScorer()
    scorer.faults.inject(Fault(error=None))
    async with session(scorer=scorer) as live:
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        live.end()
        live.give_up("the server stops")
        messages = await read(live)
    assert final(messages)["sentences"] == []


async def test_giving_up_on_nothing() -> None:
    async with session() as live:
        live.give_up("why not")
        live.end()
        assert await read(live) == []


# --- what the client is told, and the log -----------------------------------------------------------------


async def test_what_was_said_and_heard_is_logged_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "realtime_server")
    async with session() as live:
        await transcribe(live, "LANGUAGE:Klingon", "tell nobody", tone(1.0))
    quiet = "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.INFO)
    loud = "\n".join(r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG)
    for text in ("one two", "Klingon", "tell nobody"):
        assert text not in quiet
        assert text in loud


async def test_limits_are_told_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    async with session(settings=replace(FIXED, limits=Limits(session_s=1.0))) as live:
        await transcribe(live, tone(2.0))
    assert "the session reached its limit of 1 s of audio" in caplog.text


async def test_closing_waits_for_decodes_that_take_their_time_to_stop() -> None:
    """An engine may be closed right after its sessions: nothing of theirs may still run in it."""

    class Reluctant(FakeEngine):
        stopped = 0

        async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.02)
                self.stopped += 1
            raise AssertionError

    engine = Reluctant()
    async with session(engine) as live:
        live.feed("START")
        live.feed(pcm16(tone(1.0)))
        await eventually(lambda: bool(live._tasks))
        await asyncio.sleep(0.01)
        live.feed("START")
    assert engine.stopped == 1
    assert live._tasks == set()

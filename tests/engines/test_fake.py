"""The fakes keep the contract of engines/base.py, and every fault can be injected."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.jobs import (
    Decoded,
    DecodeJob,
    DecodeKind,
    DecodingOptions,
    Priority,
    Samples,
    ScoreJob,
    Task,
)
from realtime_server.core.segments import HOP, SAMPLE_RATE
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.fake import CAPABILITIES, FakeEngine, FakeScorer, Fault
from realtime_server.engines.fake_hearing import SLOT, hear, spell
from realtime_server.errors import EngineError, UnsupportedError
from tests.audio import pcm16, silence, speech_pattern, tone

WORDS = DecodingOptions(words=True)


def decode_job(
    audio: Samples,
    *,
    start: int = 0,
    kind: DecodeKind = "final",
    priority: Priority = Priority.FINAL,
    prefix_text: str = "",
    options: DecodingOptions = WORDS,
) -> DecodeJob:
    return DecodeJob(
        id=1,
        session="s",
        epoch=1,
        channel=0,
        kind=kind,
        priority=priority,
        segment=0,
        start=start,
        end=start + audio.size,
        audio=audio,
        prefix_text=prefix_text,
        options=options,
    )


def score_job(
    samples: Samples, *, session: str = "s", epoch: int = 1, first: bool = False, last: bool = False
) -> ScoreJob:
    return ScoreJob(id=1, session=session, epoch=epoch, channel=0, samples=samples, first=first, last=last)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# The text it hears


def test_hears_one_word_per_half_second_since_start() -> None:
    decoded = hear(decode_job(tone(2.0), start=3 * SLOT))
    assert decoded.text == "four five six seven"
    assert decoded.words is not None
    assert [(word.start_ms, word.end_ms) for word in decoded.words] == [
        (0, 500),
        (500, 1000),
        (1000, 1500),
        (1500, 2000),
    ]
    assert decoded.language == "en"
    assert decoded.finish == "stop"


def test_pauses_have_no_words() -> None:
    decoded = hear(decode_job(np.concatenate([silence(1.0), speech_pattern([(1.0, 1.0), (0.5, 0.3)])])))
    assert decoded.text == "three four seven"


def test_silence_is_gated() -> None:
    assert hear(decode_job(silence(1.0))) == Decoded("", words=(), finish="gated")
    assert hear(decode_job(silence(0.0), options=DecodingOptions())).words is None


@pytest.mark.parametrize("start", [0, 3000, 4000, 5000, 7999])
def test_any_loud_window_has_a_word_inside_it(start: int) -> None:
    decoded = hear(decode_job(np.concatenate([silence(0.03), tone(0.05)]), start=start))
    assert decoded.words is not None
    (word,) = decoded.words
    assert 30 <= word.start_ms < word.end_ms <= 80


@given(st.lists(st.tuples(st.floats(0.1, 1.5), st.floats(0.0, 1.5)), min_size=1, max_size=4), st.data())
def test_text_grows_with_the_audio(parts: list[tuple[float, float]], data: st.DataObject) -> None:
    audio = speech_pattern(parts)
    start = data.draw(st.integers(0, 3 * SAMPLE_RATE))
    cut = data.draw(st.integers(0, audio.size))
    partial = hear(decode_job(audio[:cut], start=start)).text.split()
    assert hear(decode_job(audio, start=start)).text.split()[: len(partial)] == partial


@given(st.integers(0, 2 * SLOT), st.integers(SLOT, 4 * SLOT), st.integers(SLOT, 4 * SLOT))
def test_adjacent_windows_neither_repeat_nor_lose_a_word(start: int, left: int, right: int) -> None:
    left, right = left // HOP * HOP, right // HOP * HOP
    audio = tone((left + right) / SAMPLE_RATE)
    parts = (
        hear(decode_job(audio[:left], start=start)),
        hear(decode_job(audio[left:], start=start + left)),
    )
    assert " ".join(part.text for part in parts) == hear(decode_job(audio, start=start)).text


def test_prefix_is_kept_and_continued() -> None:
    assert hear(decode_job(tone(2.0), prefix_text="one two")).text == "one two three four"
    assert hear(decode_job(tone(2.0), prefix_text="eins")).text == "eins two three four"


def test_options_fill_the_answer() -> None:
    decoded = hear(decode_job(tone(1.0), options=DecodingOptions(language="ja", logprobs=True)))
    assert decoded.language == "ja"
    assert decoded.token_logprobs == (-0.1, -0.1)
    assert decoded.words is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "zero"),
        (19, "nineteen"),
        (20, "twenty"),
        (99, "ninety-nine"),
        (100, "one-hundred"),
        (1234, "twelve-hundred-thirty-four"),
    ],
)
def test_spell(number: int, text: str) -> None:
    assert spell(number) == text


def test_spelled_numbers_are_distinct() -> None:
    assert len({spell(number) for number in range(20_000)}) == 20_000


# Script and pace


async def test_script_answers_by_arrival_then_the_default() -> None:
    engine: Engine = FakeEngine(script=["你好", "", Decoded("x", finish="length"), EngineError("scripted")])
    await engine.warmup()
    job = decode_job(tone(0.5))
    assert (await engine.transcribe(job)).text == "你好"
    assert (await engine.transcribe(job)).text == ""
    assert (await engine.transcribe(job)).finish == "length"
    with pytest.raises(EngineError, match="scripted"):
        await engine.transcribe(job)
    assert (await engine.transcribe(job)).text == "one"


async def test_script_may_be_a_function() -> None:
    engine = FakeEngine(script=lambda job: f"{job.kind} at {job.start}")
    assert (
        await engine.transcribe(decode_job(tone(0.1), kind="partial", start=160))
    ).text == "partial at 160"


async def test_on_text_gets_growing_text() -> None:
    seen: list[str] = []
    await FakeEngine().transcribe(decode_job(tone(1.5)), on_text=seen.append)
    assert seen == ["one", "one two", "one two three"]


async def test_decode_time_depends_on_the_audio() -> None:
    engine = FakeEngine(slots=3, decode_s=0.005, decode_s_per_s=0.02)
    done: list[float] = []

    async def decode(seconds: float) -> None:
        await engine.transcribe(decode_job(tone(seconds)))
        done.append(seconds)

    await asyncio.gather(decode(2.0), decode(1.0), decode(0.1))
    assert done == [0.1, 1.0, 2.0]


async def test_jobs_are_kept_up_to_a_bound() -> None:
    engine = FakeEngine(keep_jobs=2)
    jobs = [decode_job(tone(0.1), start=start) for start in range(3)]
    for job in jobs:
        await engine.transcribe(job)
    assert list(engine.jobs) == jobs[1:]


# Slots


async def test_slots_are_served_by_priority_then_arrival() -> None:
    engine = FakeEngine(slots=1)
    engine.faults.inject(Fault(error=None, nth=1))  # the first come keeps its slot until it is cancelled
    assert engine.capabilities.concurrency == 1
    order: list[str] = []

    async def decode(name: str, priority: Priority) -> None:
        await engine.transcribe(decode_job(tone(0.1), priority=priority))
        order.append(name)

    async with asyncio.TaskGroup() as group:
        first = group.create_task(decode("first come", Priority.FILE))
        for name, priority in [
            ("refresh a", Priority.REFRESH),
            ("refresh b", Priority.REFRESH),
            ("final a", Priority.FINAL),
            ("eager", Priority.EAGER),
            ("final b", Priority.FINAL),
        ]:
            group.create_task(decode(name, priority))
        await settle()
        assert (engine.running, engine.waiting) == (1, 5)
        first.cancel()
    assert order == ["final a", "final b", "eager", "refresh a", "refresh b"]
    assert (engine.running, engine.waiting, engine.cancelled) == (0, 0, 1)


async def test_cancelling_frees_the_place_at_once() -> None:
    engine = FakeEngine(slots=1)
    engine.faults.inject(Fault(error=None, nth=1))
    stuck, waiting, patient = (
        asyncio.create_task(engine.transcribe(decode_job(tone(0.5)))) for _ in range(3)
    )
    await settle()
    assert (engine.running, engine.waiting) == (1, 2)
    waiting.cancel()
    await settle()
    assert (engine.running, engine.waiting, engine.cancelled) == (1, 1, 1)
    stuck.cancel()
    assert (await patient).text == "one"
    assert (engine.running, engine.waiting, engine.cancelled) == (0, 0, 2)


async def test_a_slot_handed_to_a_job_cancelled_in_the_same_turn_is_handed_on() -> None:
    engine = FakeEngine(slots=1)
    engine.faults.inject(Fault(error=None, nth=1))
    stuck, admitted, third = (asyncio.create_task(engine.transcribe(decode_job(tone(0.5)))) for _ in range(3))
    await settle()
    stuck.cancel()
    await asyncio.sleep(0)  # the slot goes to `admitted`, which has not run yet
    admitted.cancel()
    assert (await third).text == "one"
    assert (engine.running, engine.waiting, engine.cancelled) == (0, 0, 2)


async def test_a_job_cancelled_before_a_slot_is_free_is_passed_over() -> None:
    engine = FakeEngine(slots=1)
    engine.faults.inject(Fault(error=None, nth=1))
    stuck, gone, third = (asyncio.create_task(engine.transcribe(decode_job(tone(0.5)))) for _ in range(3))
    await settle()
    stuck.cancel()
    gone.cancel()
    assert (await third).text == "one"
    assert (engine.running, engine.waiting, engine.cancelled) == (0, 0, 2)


# Faults


async def test_nth_job_of_a_kind_fails() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(kind="final", nth=2))
    final, partial = decode_job(tone(0.1)), decode_job(tone(0.1), kind="partial")
    for job in (final, partial, partial):
        await engine.transcribe(job)
    with pytest.raises(EngineError, match="told to fail"):
        await engine.transcribe(final)
    await engine.transcribe(final)
    assert engine.running == 0


async def test_every_job_fails_until_cleared() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=MemoryError("full")))
    for _ in range(2):
        with pytest.raises(MemoryError, match="full"):
            await engine.transcribe(decode_job(tone(0.1)))
    engine.faults.clear()
    await engine.transcribe(decode_job(tone(0.1)))


async def test_closing_ends_running_and_waiting_jobs() -> None:
    engine = FakeEngine(slots=2)
    engine.faults.inject(Fault(error=None))
    tasks = [asyncio.create_task(engine.transcribe(decode_job(tone(0.1)))) for _ in range(4)]
    await settle()
    tasks[3].cancel()
    await engine.aclose()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [EngineError] * 3 + [asyncio.CancelledError]
    assert (engine.running, engine.waiting) == (0, 0)
    with pytest.raises(EngineError, match="closed"):
        await engine.transcribe(decode_job(tone(0.1)))
    with pytest.raises(EngineError, match="closed"):
        await engine.warmup()
    await engine.aclose()


async def test_a_dead_engine_answers_nothing_and_says_so() -> None:
    engine = FakeEngine(slots=1)
    engine.faults.inject(Fault(error=None, nth=1))
    tasks = [asyncio.create_task(engine.transcribe(decode_job(tone(0.1)))) for _ in range(2)]
    await settle()
    assert engine.healthy
    engine.die()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [EngineError] * 2
    assert not engine.healthy
    engine.faults.clear()
    with pytest.raises(EngineError, match="has died"):
        await engine.transcribe(decode_job(tone(0.1)))
    await engine.aclose()
    assert not engine.healthy


# What it refuses

POOR = replace(
    CAPABILITIES,
    languages=None,
    hotwords="none",
    words=False,
    logprobs=False,
    prefix=False,
    translate=False,
    longest_s=1.0,
)
TRANSLATE: Task = "translate"


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (decode_job(tone(1.1), options=DecodingOptions()), "more than 1 s of audio"),
        (decode_job(tone(0.1), prefix_text="a", options=DecodingOptions()), "a prefix"),
        (decode_job(tone(0.1), options=DecodingOptions(hotwords=("a",))), "hotwords"),
        (decode_job(tone(0.1), options=DecodingOptions(words=True)), "word times"),
        (decode_job(tone(0.1), options=DecodingOptions(logprobs=True)), "log-probabilities"),
        (decode_job(tone(0.1), options=DecodingOptions(task=TRANSLATE)), "translation"),
        (decode_job(tone(0.1), options=DecodingOptions(language="en")), "the language 'en'"),
    ],
)
async def test_refuses_what_its_capabilities_lack(job: DecodeJob, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        await FakeEngine(capabilities=POOR).transcribe(job)
    await FakeEngine(capabilities=POOR).transcribe(decode_job(tone(1.0), options=DecodingOptions()))


async def test_a_job_whose_audio_is_not_its_window_is_a_bug() -> None:
    with pytest.raises(ValueError, match="1600 samples"):
        await FakeEngine().transcribe(replace(decode_job(tone(0.1)), end=1))


# The scorer


async def score_all(scorer: Scorer, audio: Samples, cuts: list[int]) -> list[float]:
    edges = [0, *sorted(cuts), audio.size]
    answers: list[float] = []
    for n, (start, end) in enumerate(itertools.pairwise(edges)):
        job = score_job(audio[start:end], first=n == 0, last=n == len(edges) - 2)
        answers.extend((await scorer.score(job)).tolist())
    return answers


@given(st.lists(st.integers(0, 8000), max_size=6), st.integers(0, 159), st.integers(0, 3))
async def test_scores_do_not_depend_on_the_packets(cuts: list[int], rest: int, look_ahead: int) -> None:
    audio = np.concatenate([silence(0.1), tone(0.3), silence(0.1), tone(rest / SAMPLE_RATE)])
    scores = await score_all(FakeScorer(look_ahead=look_ahead), audio, [min(cut, audio.size) for cut in cuts])
    assert scores == [0.0] * 10 + [1.0] * 30 + [0.0] * 10


async def test_look_ahead_is_held_back_until_the_last_job() -> None:
    scorer = FakeScorer(look_ahead=2)
    scores = await scorer.score(score_job(tone(0.06), first=True))
    assert (scores.dtype.name, scores.size) == ("float32", 4)
    assert (await scorer.score(score_job(tone(0.0), last=True))).size == 2


async def test_threshold() -> None:
    assert (
        await FakeScorer(0.5).score(score_job(tone(0.01, level=0.3), first=True, last=True))
    ).tolist() == [0.0]


async def test_streams_are_separate_first_resets_and_forget_drops() -> None:
    scorer = FakeScorer()
    half = tone(0.005)
    await scorer.score(score_job(half, first=True))
    await scorer.score(score_job(half, session="t", first=True))
    assert (await scorer.score(score_job(half, epoch=2, first=True))).size == 0
    assert (await scorer.score(score_job(half, first=True))).size == 0
    scorer.forget("s")
    scorer.forget("unknown")
    assert (await scorer.score(score_job(half))).size == 0
    assert (await scorer.score(score_job(half, session="t"))).size == 1


async def test_scorer_faults_and_close() -> None:
    scorer = FakeScorer()
    scorer.faults.inject(Fault(nth=1))
    scorer.faults.inject(Fault(error=None, nth=2))
    with pytest.raises(EngineError, match="told to fail"):
        await scorer.score(score_job(tone(0.01), first=True))
    pending = asyncio.create_task(scorer.score(score_job(tone(0.01))))
    await settle()
    assert not pending.done()
    await scorer.aclose()
    with pytest.raises(EngineError, match="closed"):
        await pending
    with pytest.raises(EngineError, match="closed"):
        await scorer.score(score_job(tone(0.01)))


def test_pcm16_clips_and_rounds() -> None:
    assert pcm16(np.array([0.0, 1.0, -2.0], dtype=np.float32)) == b"\x00\x00\xff\x7f\x01\x80"

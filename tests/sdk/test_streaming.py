"""Streams: a result for each chunk, fixed text that only grows, and the same cost per chunk however long it goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core.jobs import Decoded, DecodeJob, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.fake import CAPABILITIES, FakeEngine, Fault
from realtime_server.engines.fake_hearing import hear
from realtime_server.errors import AudioError, ConfigurationError, EngineError, UnsupportedError
from realtime_server.sdk import AutoModelVLLM, FunASRNanoStreamingVLLM
from tests.audio import pcm16, silence, speech_pattern, tone
from tests.offline.recordings import recording

Result = dict[str, Any]
TALK = speech_pattern([(3.0, 2.5), (2.0, 1.0)])
TEXT = "one two three four five six twelve thirteen fourteen fifteen"


def check(results: list[Result]) -> None:
    """What holds for any stream."""
    assert [result["is_final"] for result in results] == [False] * (len(results) - 1) + [True]
    assert [result["chunk_idx"] for result in results] == list(range(1, len(results) + 1))
    for result in results:
        assert result["text"].startswith(result["fixed_text"])
    for before, after in pairwise(results):
        assert after["fixed_text"].startswith(before["fixed_text"])
        assert after["audio_duration_ms"] >= before["audio_duration_ms"]
    assert results[-1]["fixed_text"] == results[-1]["text"]


@pytest.fixture(scope="module")
def model() -> Iterator[FunASRNanoStreamingVLLM]:
    with FunASRNanoStreamingVLLM.from_pretrained(engine="fake", chunk_ms=720, rollback_chars=8) as model:
        yield model


def of(engine: FakeEngine, **arguments: Any) -> FunASRNanoStreamingVLLM:
    return FunASRNanoStreamingVLLM(engine=engine, vad="level", **arguments)


def test_a_stream_gives_a_result_for_each_chunk_and_the_last_says_everything(
    model: FunASRNanoStreamingVLLM,
) -> None:
    results = model.generate(TALK)
    check(results)
    assert [result["audio_duration_ms"] for result in results] == [*range(720, 8500, 720), 8500]
    assert results[1]["text"].startswith("one two")
    assert results[-1]["text"] == TEXT
    assert [sentence["text"] for sentence in results[-1]["sentences"]] == [TEXT[:27], TEXT[28:]]
    assert "sentences" not in results[0]
    fixed = [len(result["fixed_text"].split()) for result in results]
    assert fixed[3] >= 2  # it does not wait for the end of the segment


def test_it_streams_results_come_before_the_audio_is_over(model: FunASRNanoStreamingVLLM) -> None:
    asked = 0

    def microphone() -> Iterator[Samples]:
        nonlocal asked
        for start in range(0, len(TALK), 1600):
            asked += 1
            yield TALK[start : start + 1600]

    stream = model.streaming_generate(microphone())
    first = [next(stream) for _ in range(3)]
    assert asked == 22  # 2.16 s
    assert first[-1]["text"].startswith("one two three")
    check([*first, *stream])


@pytest.mark.parametrize("kind", ["array", "int16", "path", "bytes", "pieces", "pcm", "awaited"])
async def test_audio_of_every_kind_says_the_same(
    kind: str, model: FunASRNanoStreamingVLLM, tmp_path: Path
) -> None:
    data = recording("wav", 2.0)
    (tmp_path / "talk.wav").write_bytes(data)
    samples = tone(2.0)
    cuts = list(pairwise([0, 1, 999, 5000, 5000, 20_000, len(samples)]))

    async def awaited() -> AsyncIterator[Samples]:
        for start, end in cuts:
            await asyncio.sleep(0)
            yield samples[start:end]

    sources: dict[str, Callable[[], Any]] = {
        "array": lambda: samples,
        "int16": lambda: np.frombuffer(pcm16(samples), "<i2"),
        "path": lambda: str(tmp_path / "talk.wav"),
        "bytes": lambda: data,
        "pieces": lambda: (samples[start:end] for start, end in cuts),
        "pcm": lambda: [pcm16(samples)[2 * start : 2 * end] for start, end in cuts],
        "awaited": awaited,
    }
    expected = ["one", "one two three", "one two three four"]
    for results in (
        list(model.streaming_generate(sources[kind]())),
        [result async for result in model.astreaming_generate(sources[kind]())],
        await model.agenerate(sources[kind]()),
    ):
        check(results)
        assert [result["text"] for result in results] == expected


@given(st.lists(st.integers(0, 30_000), max_size=6), st.sampled_from([300, 720, 1500]))
@settings(max_examples=15)
def test_how_audio_is_cut_changes_nothing(
    model: FunASRNanoStreamingVLLM, sizes: list[int], chunk_ms: int
) -> None:
    edges = [0, *(min(edge, len(TALK)) for edge in accumulate(sizes)), len(TALK)]
    pieces = (TALK[start:end] for start, end in pairwise(edges))
    results = model.generate(pieces, chunk_ms=chunk_ms)
    check(results)
    assert results == model.generate(TALK, chunk_ms=chunk_ms)
    assert results[-1]["text"] == TEXT


class Counting(FakeEngine):
    """Counts the seconds of audio that it is given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(keep_jobs=0, **options)
        self.seconds = 0.0

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        self.seconds += job.audio.size / SAMPLE_RATE
        return await super().transcribe(job, on_text)


@pytest.mark.parametrize(
    ("pattern", "prefix"), [((600.0, 0.0), False), ((9.0, 2.5), True), ((2.0, 0.7), False)]
)  # seconds of speech and of pause
def test_a_chunk_costs_the_same_at_minute_ten_as_at_minute_one(
    pattern: tuple[float, float], prefix: bool
) -> None:
    engine = Counting(capabilities=replace(CAPABILITIES, longest_s=30.0, prefix=prefix))
    speech, pause = pattern
    audio = speech_pattern([pattern] * max(1, round(600 / (speech + pause))))
    costs, before = [], 0.0
    with of(engine) as model:
        for _ in model.streaming_generate(audio):
            costs.append(engine.seconds - before)
            before = engine.seconds
    minutes = [sum(costs[start : start + 83]) for start in range(0, 10 * 83, 83)]
    assert max(costs) <= 2 * 30 + 8  # at most two segments that end, and a window
    assert max(minutes[1:]) <= 1.15 * min(minutes[1:-1])
    assert max(minutes) < 83 * 0.72 * 12  # a window of 8 s, and each segment once or twice


# What real recognizers do and a fake does not: partials and finals that differ.
SPOKEN = {
    "English": ("It was the best of times, it was the worst of times, it was the age of wisdom".split(), " "),
    "Mandarin": (list("今天天气很好，我们去公园散步，然后回家吃饭，晚上一起看电影吧。"), ""),
    "Korean": (
        "안녕하세요 여러분 오늘은 날씨가 정말 좋습니다 우리 같이 공원에서 산책을 하고 저녁을 먹읍시다".split(),
        " ",
    ),
    "Thai": (list("วันนี้อากาศดีมากเราไปเดินเล่นกันเถอะ"), ""),
    "mixed": ("我 用 GPT 测 试 一 下 machine learning 的 效 果 怎 么 样".split(), ""),
}


@pytest.mark.parametrize("language", SPOKEN)
def test_fixed_text_only_grows_in_every_language(language: str) -> None:
    words, space = SPOKEN[language]
    dice = np.random.default_rng(0)

    def unsure(job: DecodeJob) -> str:
        count = hear(job).text.count(" ") + 1
        heard = words[:count]
        if job.kind == "partial":  # the end moves, and now and then a word in the middle
            heard = [*heard[:-1], heard[-1][:2] if space else ""]
            if dice.random() < 0.3 and len(heard) > 3:
                heard[int(dice.integers(len(heard)))] = "x" if space else "呃"
        else:
            heard = [heard[0].upper(), *heard[1:]]
        return space.join(heard)

    with of(FakeEngine(script=unsure, capabilities=replace(CAPABILITIES, prefix=False))) as model:
        results = model.generate(tone(0.5 * len(words)))
    check(results)
    grown = [result["fixed_text"] for result in results[:-1]]
    assert len(set(grown)) >= 3  # while people speak
    assert max(map(len, grown)) >= 8
    final = results[-1]["text"]
    if space:
        assert all(f"{final} ".startswith(f"{text} ") or text == "" for text in map(str.rstrip, grown))
    assert len(final) >= 0.8 * len(space.join(words))


def test_rollback_is_the_callers_choice() -> None:
    with of(FakeEngine(), rollback_chars=0) as model:
        fixed = {
            chars: [result["fixed_text"] for result in model.generate(tone(4.0), rollback_chars=chars)]
            for chars in (0, 8, 1000)
        }
        assert [result["fixed_text"] for result in model.generate(tone(4.0))] == fixed[0]
    assert sum(map(len, fixed[0])) > sum(map(len, fixed[8])) > sum(map(len, fixed[1000]))
    assert set(fixed[1000][:-1]) == {""}


def test_silence_has_no_text(model: FunASRNanoStreamingVLLM) -> None:
    results = model.generate(silence(3.0))
    check(results)
    assert {result["text"] for result in results} == {""}
    assert results[-1]["sentences"] == []
    (only,) = model.generate(np.zeros(0, np.float32))
    assert (only["is_final"], only["audio_duration_ms"], only["chunk_idx"]) == (True, 0, 1)


def test_what_is_asked_for_reaches_the_engine() -> None:
    engine = FakeEngine()
    with of(engine) as model:
        model.generate(tone(1.0), language="中文", hotwords=["张三"], max_new_tokens=9, itn=False)
    for job in engine.jobs:
        assert (job.options.language, job.options.hotwords) == ("zh", ("张三",))
        assert (job.options.max_new_tokens, job.options.itn) == (9, False)


def test_a_failure_of_one_decode_costs_no_words() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(kind="final", nth=1))
    engine.faults.inject(Fault(kind="partial", nth=2))
    with of(engine) as model:
        results = model.generate(tone(3.0))
    check(results)
    assert results[-1]["text"] == "one two three four five six"


def test_a_segment_that_is_lost_is_flagged_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    with of(engine) as model, caplog.at_level(logging.WARNING):
        results = model.generate(tone(1.0))
    assert [sentence["flags"] for sentence in results[-1]["sentences"]] == [["failed"]]
    assert "could not be recognised" in caplog.text


def test_a_recognizer_that_dies_ends_the_stream() -> None:
    engine = FakeEngine()
    with of(engine) as model:
        stream = model.streaming_generate(tone(3.0))
        next(stream)
        engine.die()
        with pytest.raises(EngineError, match="died"):
            list(stream)


def test_a_scorer_that_fails_ends_the_stream() -> None:
    with of(FakeEngine()) as model:
        scorer: Any = model._host.recognizer.scorer
        stream = model.streaming_generate(tone(3.0))
        next(stream)
        scorer.faults.inject(Fault())
        with pytest.raises(EngineError, match="voice activity detection failed"):
            list(stream)


def test_a_stream_that_nobody_reads_on_is_forgotten(model: FunASRNanoStreamingVLLM) -> None:
    scorer: Any = model._host.recognizer.scorer
    stream = model.streaming_generate(tone(3.0))
    next(stream)
    assert scorer._rest
    stream.close()  # type: ignore[attr-defined]
    end_s = time.monotonic() + 20
    while scorer._rest and time.monotonic() < end_s:
        time.sleep(0.005)
    assert not scorer._rest


async def test_cancelling_reaches_the_engine() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with of(engine) as model:
        task = asyncio.create_task(model.agenerate(tone(3.0)))
        while not engine.jobs:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while engine.running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_streams_run_side_by_side(model: FunASRNanoStreamingVLLM) -> None:
    results = await asyncio.gather(*(model.agenerate(tone(n / 2)) for n in range(1, 7)))
    assert [len(result[-1]["text"].split()) for result in results] == [1, 2, 3, 4, 5, 6]


def test_live_audio_gets_fewer_partials_from_a_slow_recognizer() -> None:
    def partials(audio: Any) -> int:
        engine = FakeEngine(decode_s=0.05)
        with of(engine, chunk_ms=60) as model:
            check(model.generate(audio))
        return sum(job.kind == "partial" for job in engine.jobs)

    audio = tone(1.2)
    assert partials(audio) > partials(iter([audio]))


def test_a_recognizer_is_shared_with_that_of_recordings() -> None:
    with AutoModelVLLM(engine="fake") as files:
        stream = FunASRNanoStreamingVLLM(engine=files, chunk_ms=500)
        assert len(stream.generate(tone(1.0))) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"langauge": "en"},
            TypeError,
            r"streaming_generate\(\) got an unexpected keyword argument 'langauge'",
        ),
        ({"spk": True}, TypeError, "unexpected keyword argument 'spk'"),
        ({"chunk_ms": 10}, ConfigurationError, "chunk_ms must be 60 at least, not 10"),
        ({"rollback_chars": -1}, ConfigurationError, "rollback_chars must not be negative, not -1"),
        ({"language": "Klingon"}, ConfigurationError, "unknown language"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(
    arguments: Any, error: type[Exception], words: str, model: FunASRNanoStreamingVLLM
) -> None:
    with pytest.raises(error, match=words):
        model.streaming_generate(tone(1.0), **arguments)
    with pytest.raises(error, match=words):
        model.astreaming_generate(tone(1.0), **arguments)


def test_what_the_recognizer_cannot_do_is_refused() -> None:
    with (
        of(FakeEngine(capabilities=replace(CAPABILITIES, languages=frozenset({"en"})))) as model,
        pytest.raises(UnsupportedError, match="the language 'zh'"),
    ):
        model.streaming_generate(tone(1.0), language="zh")


def test_wrong_arguments_of_the_constructor_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'chunks'"):
        FunASRNanoStreamingVLLM.from_pretrained(engine="fake", chunks=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="chunk_ms"):
        FunASRNanoStreamingVLLM(engine="fake", chunk_ms=0)


async def test_a_file_that_is_missing_is_told(model: FunASRNanoStreamingVLLM) -> None:
    with pytest.raises(AudioError, match="No such file"):
        model.generate("no/such/file.wav")
    with pytest.raises(AudioError, match="No such file"):
        await model.agenerate("no/such/file.wav")
    with pytest.raises(TypeError):
        model.generate(3)


async def test_a_stream_may_live_within_a_running_loop() -> None:
    async with await FunASRNanoStreamingVLLM.afrom_pretrained(engine="fake", chunk_ms=500) as model:
        assert len(await model.agenerate(tone(1.0))) == 3

"""The engine around a model of vLLM's, which is a scripted one here: texts, languages, room, cancelling, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, DecodingOptions, Priority, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.engines.speech_to_text import LEAST, SpeechToTextEngine, load, prepared
from realtime_server.errors import ConfigurationError, EngineError, UnsupportedError
from tests.engines import speech_classes as classes
from tests.engines.speech_classes import MARKS, Base, model_of

ROOM = 448


@dataclass(frozen=True)
class Sampling:
    """What the engine asks for."""

    max_tokens: int
    logprobs: bool = False
    stream: bool = False
    allowed_ids: Sequence[int] | None = None


class ScriptedHost:
    """A vLLM that says `text`, a token each letter, once `gate` is open; `language` where only such are allowed."""

    def __init__(self) -> None:
        self.text, self.finish, self.language = "one two", "stop", "<|zh|>"
        self.gate = asyncio.Event()
        self.gate.set()
        self.prompts: list[Any] = []
        self.asked: list[tuple[str, Sampling, int]] = []
        self.aborted = 0
        self.healthy = False
        self.closed = False

    async def start(self) -> None:
        self.healthy = True

    async def render(self, prompt: Any) -> Any:
        """Count a token for each letter."""
        self.prompts.append(prompt)
        if "decoder_prompt" in prompt:
            decoder = prompt["decoder_prompt"]
            text = decoder if isinstance(decoder, str) else decoder["prompt"]
            if len(text) > 2 * ROOM:
                raise UnsupportedError("vLLM refuses this input: too long")
            return {"decoder_prompt": {"prompt_token_ids": [0] * len(text)}}
        return prompt if "prompt" not in prompt else {"prompt_token_ids": [0] * len(prompt["prompt"])}

    async def generate(
        self, prompt: Any, params: Any, *, request_id: str, priority: int = 0,
        on_output: Callable[[Any], None] | None = None,
    ) -> Any:  # fmt: skip
        self.asked.append((request_id, params, priority))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        if params.allowed_ids is not None:
            return answer("", [MARKS[self.language]], None, "length")
        ids = [*map(ord, self.text), *([0] if self.finish == "stop" else [])]
        for end in range(1, len(self.text) + 1) if on_output else ():
            on_output(answer(self.text[:end], ids[:end], None, None))  # type: ignore[misc] # it is one
        scores = [{token: SimpleNamespace(logprob=-0.5)} for token in ids] if params.logprobs else None
        return answer(self.text, ids, scores, self.finish)

    async def aclose(self) -> None:
        self.closed = True


def answer(text: str, ids: list[int], scores: Any, finish: str | None) -> Any:
    """What vLLM calls a RequestOutput."""
    return SimpleNamespace(
        outputs=[SimpleNamespace(text=text, token_ids=ids, logprobs=scores, finish_reason=finish)]
    )


def engine_of(
    model_class: type[Base], *, room: int = ROOM, **options: Any
) -> tuple[SpeechToTextEngine, ScriptedHost]:
    host = ScriptedHost()
    engine = SpeechToTextEngine(
        model_of(model_class), host, SpeechOptions(model="m", **options), device="cpu", room=room, width=8,
        make_sampling=Sampling,
    )  # fmt: skip
    return engine, host


def sound(seconds: float) -> Samples:
    return np.full(round(seconds * SAMPLE_RATE), 0.1, np.float32)


def job(
    seconds: float = 1.0, kind: DecodeKind = "final", priority: Priority = Priority.FINAL, prefix: str = "",
    **options: Any,
) -> DecodeJob:  # fmt: skip
    audio = sound(seconds)
    return DecodeJob(
        1, "s", 1, 0, kind, priority, 0, 0, audio.size, audio, prefix, DecodingOptions(**options)
    )


async def test_a_named_language_is_told_and_answered() -> None:
    engine, host = engine_of(classes.EncoderDecoder)
    assert await engine.transcribe(job(language="en")) == Decoded("one two", language="en")
    assert host.prompts[0]["decoder_prompt"]["prompt"] == "<|start|><|en|><|transcribe|>"
    ((_, sampling, priority),) = host.asked
    assert sampling == Sampling(max_tokens=32)
    assert priority == Priority.FINAL


async def test_a_language_that_is_not_named_is_detected_by_a_decode_of_its_own() -> None:
    engine, host = engine_of(classes.EncoderDecoder)
    assert (await engine.transcribe(job(priority=Priority.REFRESH))).language == "zh"
    (first, detecting, priority), (second, _, _) = host.asked
    assert detecting == Sampling(1, allowed_ids=[MARKS["<|en|>"], MARKS["<|zh|>"]])
    assert priority == Priority.REFRESH
    assert first != second
    assert host.prompts[1]["decoder_prompt"]["prompt"] == "<|start|><|zh|><|transcribe|>"


async def test_a_class_that_detects_nothing_names_no_language() -> None:
    engine, host = engine_of(classes.Chatty)
    host.text = "language English: one"
    assert await engine.transcribe(job()) == Decoded("one")
    assert len(host.asked) == 1


async def test_a_language_that_is_assumed_and_not_used_is_not_answered() -> None:
    engine, _ = engine_of(classes.Deaf)
    assert (await engine.transcribe(job())).language is None


async def test_translation_is_asked_for() -> None:
    engine, host = engine_of(classes.EncoderDecoder)
    await engine.transcribe(job(language="zh", task="translate"))
    assert host.prompts[0]["decoder_prompt"]["prompt"] == "<|start|><|zh|><|translate|>"


async def test_scores_are_those_of_the_answer_without_its_end() -> None:
    engine, host = engine_of(classes.Chatty)
    assert (await engine.transcribe(job(logprobs=True))).token_logprobs == (-0.5,) * 7
    host.finish = "length"
    decoded = await engine.transcribe(job(logprobs=True))
    assert (decoded.token_logprobs, decoded.finish) == ((-0.5,) * 7, "length")


async def test_text_grows_without_tags_and_half_characters() -> None:
    engine, host = engine_of(classes.Chatty)
    host.text = "language English: 一\ufffd"
    told: list[str] = []
    decoded = await engine.transcribe(job(), told.append)
    assert told == ["一"]
    assert decoded.text == "一"
    assert host.asked[0][1].stream


async def test_an_answer_that_vllm_broke_off_is_an_error() -> None:
    engine, host = engine_of(classes.Chatty)
    host.finish = "abort"
    with pytest.raises(EngineError, match="vLLM ended the answer: abort"):
        await engine.transcribe(job())


# --- what is not taken ------------------------------------------------------------------------------------


async def test_next_to_no_audio_is_no_speech() -> None:
    engine, host = engine_of(classes.Chatty)
    assert await engine.transcribe(job(0.02)) == Decoded("", finish="gated")
    assert not host.prompts


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
async def test_audio_that_is_no_numbers_is_refused(value: float) -> None:
    engine, host = engine_of(classes.Chatty)
    bad = job()
    bad.audio[7] = value
    with pytest.raises(EngineError, match="not numbers"):
        await engine.transcribe(bad)
    assert not host.prompts


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"seconds": 31}, "more than 30 s of audio"),
        ({"prefix": "one"}, "a prefix"),
        ({"words": True}, "word times"),
        ({"task": "translate"}, "translation"),
        ({"language": "fr"}, "the language 'fr'"),
    ],
)
async def test_what_the_model_cannot_is_refused(wish: dict[str, Any], words: str) -> None:
    engine, _ = engine_of(classes.Chatty)
    with pytest.raises(UnsupportedError, match=words):
        await engine.transcribe(job(**wish))


async def test_what_a_class_raises_fails_its_own_job_only() -> None:
    class Broken(classes.Chatty):
        @classmethod
        def get_generation_prompt(cls, params: Any) -> Any:
            if params.audio.size > SAMPLE_RATE:
                raise KeyError("no such token")
            return super().get_generation_prompt(params)

    engine, _ = engine_of(Broken)
    with pytest.raises(EngineError, match="the model's own code failed: 'no such token'"):
        await engine.transcribe(job(2))
    assert (await engine.transcribe(job(1))).text == "one two"


# --- the room ---------------------------------------------------------------------------------------------


async def test_an_answer_may_be_as_long_as_its_audio_has_it() -> None:
    engine, host = engine_of(classes.EncoderDecoder)
    for seconds, wish, most in ((2, None, 48), (2, 5, 5), (30, None, ROOM - 29)):
        await engine.transcribe(job(seconds, language="en", max_new_tokens=wish))
        assert host.asked[-1][1].max_tokens == most


async def test_hotwords_that_leave_no_room_are_left_out_from_the_last_on(caplog: Any) -> None:
    engine, host = engine_of(classes.EncoderDecoder)
    words = tuple(f"word{n:03}" for n in range(100))
    for _ in range(2):
        assert (await engine.transcribe(job(language="en", hotwords=words))).text == "one two"
    said = host.prompts[-1]["decoder_prompt"]["prompt"]
    assert "word000" in said
    assert "word099" not in said
    assert len(said) + host.asked[-1][1].max_tokens <= ROOM
    assert sum("the last are left out" in message for message in caplog.messages) == 1


async def test_audio_that_leaves_no_room_is_refused() -> None:
    engine, _ = engine_of(classes.EncoderDecoder, room=40)
    with pytest.raises(UnsupportedError, match="the prompt takes 29 of 40 tokens"):
        await engine.transcribe(job(language="en"))


async def test_a_room_that_is_too_small_is_told_at_the_start() -> None:
    engine, _ = engine_of(classes.EncoderDecoder, room=30)
    with pytest.raises(
        ConfigurationError,
        match=r"--max-model-len 30: it must be larger, or --max-segment-seconds 30 smaller",
    ):
        await engine.warmup()


async def test_embeddings_are_checked_before_vllm_gets_them() -> None:
    pytest.importorskip("torch")
    import torch

    class Rows(classes.Embedding):
        made = torch.zeros(4, 8)

        @classmethod
        def get_generation_prompt(cls, params: Any) -> Any:
            if params.language is None:
                raise ValueError
            return {"prompt_embeds": cls.made}

    engine, host = engine_of(Rows)
    assert (await engine.transcribe(job(language="de"))).text == "one two"
    for rows, words in ((torch.zeros(4, 9), "9 wide"), (torch.full((4, 8), torch.nan), "not numbers")):
        Rows.made = rows
        with pytest.raises(EngineError, match=words):
            await engine.transcribe(job(language="de"))
    assert len(host.asked) == 1


# --- its life ---------------------------------------------------------------------------------------------


async def test_the_longest_segment_is_tried_at_the_start() -> None:
    class Named(classes.Embedding):
        @classmethod
        def get_generation_prompt(cls, params: Any) -> Any:
            return (
                {"prompt": f"{params.language}~"}
                if params.language
                else super().get_generation_prompt(params)
            )

    engine, host = engine_of(Named, segment_s=20.0)
    assert not engine.healthy
    await engine.warmup()
    assert engine.healthy
    assert [sampling.logprobs for _, sampling, _ in host.asked] == [False, True, False]
    assert all(prompt == {"prompt": "de~"} for prompt in host.prompts)
    await engine.aclose()
    assert host.closed


async def test_partials_and_files_are_bounded_and_finals_are_not() -> None:
    engine, host = engine_of(classes.Chatty, concurrency=4)
    host.gate.clear()
    for priority, most in ((Priority.REFRESH, 2), (Priority.FILE, 4), (Priority.FINAL, 9)):
        begun = len(host.asked)
        tasks = [asyncio.create_task(engine.transcribe(job(priority=priority))) for _ in range(9)]
        async with asyncio.timeout(20):
            while len(host.asked) < begun + most:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.002)
        await asyncio.sleep(0.02)
        assert len(host.asked) == begun + most
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert host.aborted == len(host.asked)
    host.gate.set()
    for priority in (Priority.REFRESH, Priority.FILE):
        assert (await engine.transcribe(job(priority=priority))).text == "one two"


def test_capabilities_are_what_the_class_does() -> None:
    can = engine_of(classes.EncoderDecoder)[0].capabilities
    assert (can.words, can.prefix, can.logprobs, can.translate, can.hotwords) == (
        False,
        False,
        True,
        True,
        "soft",
    )
    assert (can.longest_s, can.partial_window_s) == (30.0, 8.0)
    assert engine_of(classes.Deaf)[0].capabilities.hotwords == "full"
    assert engine_of(classes.Instructed)[0].capabilities.hotwords == "none"


# --- audio ------------------------------------------------------------------------------------------------


def test_audio_is_bounded_and_filled_up() -> None:
    made = prepared(np.array([2.0, -3.0, 0.5], np.float32), SAMPLE_RATE)
    assert made[:3].tolist() == [1.0, -1.0, 0.5]
    assert made.size == LEAST
    assert not made[3:].any()
    long = sound(2)
    assert np.array_equal(prepared(long, SAMPLE_RATE), long)


def test_audio_comes_at_the_models_own_rate() -> None:
    pytest.importorskip("soxr")
    time_s = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    made = prepared(np.sin(2 * np.pi * 440 * time_s).astype(np.float32), 8000)
    assert (made.size, made.dtype) == (8000, np.float32)
    assert np.argmax(np.abs(np.fft.rfft(made))) == 440


def test_a_model_must_be_named() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^--engine vllm needs --model: a folder, or a model's name at the hub$"
    ):
        load(SpeechOptions())

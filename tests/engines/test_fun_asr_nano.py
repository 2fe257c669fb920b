"""The engine around its language model, which is a scripted one here: texts, words, places, cancelling, closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, DecodingOptions, Priority  # noqa: E402
from realtime_server.engines.fun_asr_nano import (  # noqa: E402
    LANGUAGES,
    MLT_LANGUAGES,
    FunAsrNanoEngine,
    stop_tokens,
)
from realtime_server.engines.nano_options import NanoOptions  # noqa: E402
from realtime_server.errors import EngineError, UnsupportedError  # noqa: E402
from realtime_server.models.prompt import FolderTokenizer  # noqa: E402
from tests.engines.scripted_llm import ScriptedLlm  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nano.write_folder(tmp_path_factory.mktemp("model"))


def load(folder: Path, **options: Any) -> FunAsrNanoEngine:
    return FunAsrNanoEngine.load(
        NanoOptions(model=str(folder), device="cpu", **options),
        "cpu",
        lambda c: ScriptedLlm(c.text_tokenizer()),
    )


@pytest_asyncio.fixture
async def engine(folder: Path) -> AsyncIterator[FunAsrNanoEngine]:
    engine = load(folder, concurrency=4)
    await engine.llm.start()
    yield engine
    await engine.aclose()


def llm_of(engine: FunAsrNanoEngine) -> ScriptedLlm:
    assert isinstance(engine.llm, ScriptedLlm)
    return engine.llm


def job(
    seconds: float = 1.0, kind: DecodeKind = "final", priority: Priority = Priority.FINAL, prefix: str = "",
    **options: Any,
) -> DecodeJob:  # fmt: skip
    audio = nano.noise(seconds)
    return DecodeJob(
        1, "s", 1, 0, kind, priority, 0, 0, audio.size, audio, prefix, DecodingOptions(**options)
    )


async def settle(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


async def test_a_final_is_the_text_of_its_tokens(engine: FunAsrNanoEngine) -> None:
    assert await engine.transcribe(job(language="zh")) == Decoded("one two", language="zh")
    (sampling,) = llm_of(engine).sampling
    assert sampling.max_tokens == 32
    assert not sampling.logprobs


async def test_wishes_are_passed_on(engine: FunAsrNanoEngine) -> None:
    llm_of(engine).finish = "length"
    decoded = await engine.transcribe(job(logprobs=True, max_new_tokens=5))
    assert decoded.finish == "length"
    assert decoded.token_logprobs
    assert set(decoded.token_logprobs) == {-0.5}
    assert llm_of(engine).sampling[0].max_tokens == 5


async def test_answers_end_with_the_tokenizers_own_stop_token(engine: FunAsrNanoEngine, folder: Path) -> None:
    await engine.transcribe(job())
    tokenizer = FolderTokenizer(folder / "Qwen3-0.6B")
    assert stop_tokens(tokenizer) == (*tokenizer.encode("<|im_end|>"), *tokenizer.encode("<|endoftext|>"))
    assert llm_of(engine).sampling[0].stop_ids == stop_tokens(tokenizer)


async def test_a_partial_continues_its_prefix(engine: FunAsrNanoEngine) -> None:
    llm_of(engine).text = " three"
    free = job(kind="partial", priority=Priority.REFRESH)
    continued = job(kind="partial", priority=Priority.REFRESH, prefix="one <|im_end|> two\n")
    told: list[str] = []
    assert (await engine.transcribe(free)).text == "three"
    decoded = await engine.transcribe(continued, told.append)
    assert decoded.text == "one |im_end| two three"
    assert told[-1] == decoded.text
    assert all(text.startswith("one |im_end| two") for text in told)
    free_rows, continued_rows = llm_of(engine).rows
    assert len(continued_rows) > len(free_rows)


async def test_bytes_of_a_character_cut_off_are_left_out(engine: FunAsrNanoEngine) -> None:
    llm_of(engine).text = "a"
    engine_decode = FolderTokenizer.decode

    def cut(self: FolderTokenizer, ids: Sequence[int]) -> str:
        return engine_decode(self, ids) + "\ufffd"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderTokenizer, "decode", cut)
        assert (await engine.transcribe(job())).text == "a"


async def test_words_are_timed_in_finals_that_ask(engine: FunAsrNanoEngine) -> None:
    decoded = await engine.transcribe(job(2.0, words=True))
    assert decoded.words is not None
    assert [word.text.strip() for word in decoded.words] == ["one", "two"]
    assert all(0 <= word.start_ms <= word.end_ms <= 2000 for word in decoded.words)
    assert (await engine.transcribe(job(2.0))).words is None
    partial = job(2.0, kind="partial", priority=Priority.REFRESH, words=True)
    assert (await engine.transcribe(partial)).words is None


async def test_a_checkpoint_that_was_taught_a_task_translates(tmp_path: Path) -> None:
    """What it writes was not said: it has no word times."""
    engine = load(nano.write_folder(tmp_path, {"dataset_conf.translate_prompt": "翻译"}))
    assert engine.capabilities.translate
    await engine.llm.start()
    decoded = await engine.transcribe(job(2.0, words=True, task="translate"))
    assert (decoded.text, decoded.words) == ("one two", None)
    assert (await engine.transcribe(job(2.0, words=True))).words
    await engine.aclose()


async def test_a_published_checkpoint_does_not(engine: FunAsrNanoEngine) -> None:
    assert not engine.capabilities.translate
    with pytest.raises(UnsupportedError, match="translation"):
        await engine.transcribe(job(task="translate"))


async def test_without_ctc_weights_there_are_no_words(tmp_path: Path) -> None:
    without = nano.write_folder(tmp_path / "model")
    weights = {
        name: value for name, value in nano.random_weights(without).items() if not name.startswith("ctc")
    }
    torch.save(weights, without / "model.pt")
    engine = load(without)
    assert not engine.capabilities.words
    await engine.aclose()


async def test_what_it_can_do(engine: FunAsrNanoEngine, folder: Path, tmp_path: Path) -> None:
    can = engine.capabilities
    assert (can.hotwords, can.words, can.prefix, can.logprobs, can.translate) == (
        "full",
        True,
        True,
        True,
        False,
    )
    assert can.languages == LANGUAGES
    assert (can.longest_s, can.partial_window_s, can.concurrency) == (30.0, 30.0, 4)
    (tmp_path / "Fun-ASR-MLT-Nano").symlink_to(folder)
    other = load(tmp_path / "Fun-ASR-MLT-Nano", longest_s=60.0)
    assert other.capabilities.languages == MLT_LANGUAGES
    assert (other.capabilities.longest_s, other.capabilities.partial_window_s) == (60.0, 30.0)
    await other.aclose()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (job(30.1), UnsupportedError),
        (job(language="xx"), UnsupportedError),
        (job(task="translate"), UnsupportedError),
    ],
)
async def test_what_it_cannot_do_is_refused(
    engine: FunAsrNanoEngine, bad: DecodeJob, error: type[EngineError]
) -> None:
    with pytest.raises(error):
        await engine.transcribe(bad)
    assert not llm_of(engine).rows


async def test_audio_that_is_none_or_not_numbers(engine: FunAsrNanoEngine) -> None:
    assert await engine.transcribe(job(0.0)) == Decoded("", finish="gated")
    assert await engine.transcribe(job(0.024)) == Decoded("", finish="gated")
    bad = job()
    bad.audio[77] = np.nan
    with pytest.raises(EngineError, match="not numbers"):
        await engine.transcribe(bad)
    assert not llm_of(engine).rows


async def test_what_can_wait_is_bounded_and_finals_are_not(engine: FunAsrNanoEngine) -> None:
    llm = llm_of(engine)
    llm.gate.clear()
    kinds: list[tuple[DecodeKind, Priority]] = [
        ("partial", Priority.FIRST_PARTIAL), ("partial", Priority.REFRESH), ("final", Priority.FILE),
    ]  # fmt: skip
    tasks = [asyncio.create_task(engine.transcribe(job(0.5, *kind))) for kind in kinds for _ in range(6)]
    await settle(lambda: len(llm.running) >= 6)
    tasks += [asyncio.create_task(engine.transcribe(job(0.5))) for _ in range(6)]
    tasks += [asyncio.create_task(engine.transcribe(job(0.5, "eager", Priority.EAGER)))]
    await settle(lambda: llm.running.count(Priority.FINAL) == 6)
    await settle(lambda: llm.running.count(Priority.EAGER) == 1)
    assert llm.running.count(Priority.FIRST_PARTIAL) + llm.running.count(Priority.REFRESH) == 2
    assert llm.running.count(Priority.FILE) == 4
    llm.gate.set()
    assert len(await asyncio.gather(*tasks)) == 25


async def test_cancelling_gives_the_place_back(engine: FunAsrNanoEngine) -> None:
    llm = llm_of(engine)
    llm.gate.clear()
    for delay_s in (0.0, 0.001, 0.05):
        tasks = [
            asyncio.create_task(engine.transcribe(job(0.5, "partial", Priority.REFRESH))) for _ in range(5)
        ]
        await asyncio.sleep(delay_s)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
    assert llm.running == []
    tasks = [asyncio.create_task(engine.transcribe(job(0.5, "partial", Priority.REFRESH))) for _ in range(2)]
    await settle(lambda: len(llm.running) == 2)
    llm.gate.set()
    await asyncio.gather(*tasks)


async def test_closing_ends_what_runs(folder: Path) -> None:
    engine = load(folder)
    await engine.llm.start()
    assert engine.healthy
    llm_of(engine).gate.clear()
    task = asyncio.create_task(engine.transcribe(job()))
    await settle(lambda: bool(llm_of(engine).running))
    await engine.aclose()
    with pytest.raises(EngineError):
        await task
    assert not engine.healthy
    with pytest.raises(EngineError, match="shut down"):
        await engine.transcribe(job())


async def test_it_is_as_dead_as_its_language_model(engine: FunAsrNanoEngine) -> None:
    assert engine.healthy
    llm_of(engine).healthy = False
    assert not engine.healthy
    with pytest.raises(EngineError):
        await engine.transcribe(job())


async def test_warming_up_starts_the_language_model(folder: Path) -> None:
    engine = load(folder)
    await engine.warmup()
    assert engine.healthy
    assert {sampling.logprobs for sampling in llm_of(engine).sampling} == {False, True}
    await engine.aclose()

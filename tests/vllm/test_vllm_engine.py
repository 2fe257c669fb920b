"""Fun-ASR-Nano in vLLM says what it says in transformers, and nobody's bad request touches anybody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch

from realtime_server.core.jobs import Decoded, DecodeJob
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
from realtime_server.engines.generation import Generated, Sampling
from realtime_server.engines.vllm_engine import VllmLlm
from realtime_server.errors import EngineError, UnsupportedError
from tests.models.nano import noise
from tests.vllm.engines import MAX_MODEL_LEN, decode, decode_in_turn, job, torch_engine, vllm_engine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]

TOKENS = 16
BYSTANDERS = [job(100 + n) for n in range(20)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(checkpoint_folder: Path, cache: Path) -> AsyncIterator[FunAsrNanoEngine]:
    engine = vllm_engine(checkpoint_folder, cache)
    await engine.warmup()
    yield engine
    await engine.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reference(checkpoint_folder: Path, cache: Path) -> AsyncIterator[FunAsrNanoEngine]:
    engine = torch_engine(checkpoint_folder, cache)
    await engine.warmup()
    yield engine
    await engine.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def undisturbed(engine: FunAsrNanoEngine) -> list[Decoded]:
    """What the bystanders' texts are when nobody else is there."""
    return await decode(engine, BYSTANDERS)


def llm_of(engine: FunAsrNanoEngine) -> VllmLlm:
    llm = engine.llm
    assert isinstance(llm, VllmLlm)
    return llm


MIXED = [
    *(job(n) for n in range(30)),
    *(job(n, language="zh") for n in range(30, 35)),
    *(job(n, language="en", itn=False) for n in range(35, 40)),
    *(job(n, hotwords=("zero", "九")) for n in range(40, 45)),
    *(job(n, kind="partial", prefix="one two") for n in range(45, 50)),
]


async def test_alone_it_equals_transformers(engine: FunAsrNanoEngine, reference: FunAsrNanoEngine) -> None:
    jobs = MIXED[::7]
    assert await decode_in_turn(engine, jobs) == await decode_in_turn(reference, jobs)


async def test_fifty_at_once_equal_transformers(
    engine: FunAsrNanoEngine, reference: FunAsrNanoEngine
) -> None:
    texts = await decode(engine, MIXED)
    assert texts == await decode_in_turn(reference, MIXED)
    assert len({decoded.text for decoded in texts}) > 5, "the jobs are too alike to prove anything"


async def test_fifty_random_prompts_at_once_equal_transformers(
    engine: FunAsrNanoEngine, reference: FunAsrNanoEngine
) -> None:
    generator = torch.Generator().manual_seed(1)
    llm, sampling = llm_of(engine), Sampling(TOKENS, (0, 1, 2))
    prompts = [torch.randn(3 + 4 * n, llm.width, generator=generator) * 0.3 for n in range(50)]
    answers = await asyncio.gather(
        *(llm.generate(rows, sampling, request_id=f"random {n}") for n, rows in enumerate(prompts))
    )
    for rows, answer in zip(prompts, answers, strict=True):
        assert answer == await reference.llm.generate(rows, sampling, request_id="one")
    assert len({answer.ids for answer in answers}) > 25


async def test_log_probabilities_equal_transformers(
    engine: FunAsrNanoEngine, reference: FunAsrNanoEngine
) -> None:
    jobs = [job(n, logprobs=True) for n in range(3)]
    for ours, theirs in zip(await decode(engine, jobs), await decode_in_turn(reference, jobs), strict=True):
        assert ours.text == theirs.text
        assert ours.token_logprobs == pytest.approx(theirs.token_logprobs, abs=1e-3)


async def test_a_partial_continues_its_stable_text(engine: FunAsrNanoEngine) -> None:
    continued = await engine.transcribe(job(7, kind="partial", prefix="one  two\n"))
    assert continued.text.startswith("one two")
    free = await engine.transcribe(job(7, kind="partial"))
    assert not free.text.startswith("one two")


async def test_text_grows_while_it_is_generated(engine: FunAsrNanoEngine) -> None:
    told: list[str] = []
    decoded = await engine.transcribe(job(3, prefix="one"), told.append)
    assert len(told) > 1
    assert all(later.startswith(earlier) for earlier, later in pairwise(told))
    assert decoded.text.startswith(told[-1].strip())
    assert "\ufffd" not in told[-1][-1:]


async def test_the_token_limit_is_told(engine: FunAsrNanoEngine) -> None:
    decoded = await engine.transcribe(job(1, max_new_tokens=2))
    assert decoded.finish == "length"


# --- what must not be submitted --------------------------------------------------------------------------


def silence_with(value: float) -> DecodeJob:
    audio = np.zeros(SAMPLE_RATE, np.float32)
    audio[500] = value
    return job(900, audio=audio)


BAD_JOBS = {
    "NaN": (silence_with(np.nan), EngineError, "not numbers"),
    "infinity": (silence_with(np.inf), EngineError, "not numbers"),
    "too long": (job(900, audio=np.zeros(31 * SAMPLE_RATE, np.float32)), UnsupportedError, "30 s"),
    "too many hotwords": (job(900, hotwords=("word",) * 200), UnsupportedError, "hotwords"),
    "a language it lacks": (job(900, language="xx"), UnsupportedError, "language"),
    "translation": (job(900, task="translate"), UnsupportedError, "translation"),
}


@pytest.mark.parametrize("name", BAD_JOBS)
async def test_a_bad_job_is_refused_and_touches_nobody(
    engine: FunAsrNanoEngine, undisturbed: list[Decoded], name: str
) -> None:
    bad, error, words = BAD_JOBS[name]
    others = asyncio.create_task(decode(engine, BYSTANDERS))
    await asyncio.sleep(0.02)
    with pytest.raises(error, match=words) as caught:
        await engine.transcribe(bad)
    assert type(caught.value) is error
    assert await others == undisturbed
    assert await decode(engine, BYSTANDERS) == undisturbed
    assert engine.healthy


async def test_no_audio_is_no_speech(engine: FunAsrNanoEngine) -> None:
    assert await engine.transcribe(job(900, audio=noise(0.0))) == Decoded("", finish="gated")
    assert await engine.transcribe(job(900, audio=noise(0.02))) == Decoded("", finish="gated")


def table(rows: int, width: int, value: float = 0.1) -> torch.Tensor:
    return torch.full((rows, width), value)


BAD_ROWS: dict[str, tuple[Callable[[int], torch.Tensor], type[EngineError], str]] = {
    "another width": (lambda width: table(20, width + 1), EngineError, "wide"),
    "NaN": (lambda width: table(20, width, float("nan")), EngineError, "not numbers"),
    "infinity": (lambda width: table(20, width, float("-inf")), EngineError, "not numbers"),
    "none": (lambda width: table(0, width), UnsupportedError, "0 of"),
    "too many": (lambda width: table(MAX_MODEL_LEN, width), UnsupportedError, f"{MAX_MODEL_LEN} of"),
    "whole numbers": (lambda width: torch.ones(20, width, dtype=torch.int64), EngineError, "int64"),
    "one dimension": (lambda width: torch.ones(width), EngineError, "shape"),
    "three dimensions": (lambda width: torch.ones(1, 20, width), EngineError, "shape"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
async def test_bad_rows_are_refused_and_touch_nobody(
    engine: FunAsrNanoEngine, undisturbed: list[Decoded], name: str
) -> None:
    make, error, words = BAD_ROWS[name]
    llm = llm_of(engine)
    others = asyncio.create_task(decode(engine, BYSTANDERS))
    await asyncio.sleep(0.02)
    with pytest.raises(error, match=words):
        await llm.generate(make(llm.width), Sampling(4, (0,)), request_id=f"bad {name}")
    assert await others == undisturbed
    assert engine.healthy


# --- cancelling ------------------------------------------------------------------------------------------


async def test_cancelling_aborts_and_touches_nobody(
    engine: FunAsrNanoEngine, undisturbed: list[Decoded]
) -> None:
    begun = asyncio.Event()
    doomed = [
        asyncio.create_task(engine.transcribe(job(n, max_new_tokens=200, seconds=20), lambda _: begun.set()))
        for n in range(4)
    ]
    others = asyncio.create_task(decode(engine, BYSTANDERS))
    await asyncio.wait_for(begun.wait(), 60)
    for task in doomed:
        task.cancel()
    outcomes = await asyncio.gather(*doomed, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 4
    assert await others == undisturbed
    assert llm_of(engine).running == 0


async def test_cancelling_frees_what_the_request_held(engine: FunAsrNanoEngine) -> None:
    """Places for partials come back, whenever a partial is cancelled: waiting, in the encoder, or generating."""
    partials = [job(n, kind="partial", max_new_tokens=200) for n in range(60)]
    for delay_s in (0.0, 0.005, 0.03):
        tasks = [asyncio.create_task(engine.transcribe(each)) for each in partials]
        await asyncio.sleep(delay_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert llm_of(engine).running == 0
    answers = await asyncio.wait_for(
        decode(engine, [replace(each, id=each.id) for each in partials[:40]]), 120
    )
    assert len(answers) == 40


# --- the prefix cache ------------------------------------------------------------------------------------


async def generate(llm: VllmLlm, rows: torch.Tensor, name: str) -> Generated:
    return await llm.generate(rows, Sampling(TOKENS, (0,)), request_id=name)


async def test_a_warm_prefix_cache_changes_nothing(
    engine: FunAsrNanoEngine, reference: FunAsrNanoEngine
) -> None:
    """Same rows again; same beginning with another end; same end with another beginning; then all at once."""
    llm = llm_of(engine)
    generator = torch.Generator().manual_seed(5)
    head, other_head, tail, other_tail = (
        torch.randn(96, llm.width, generator=generator) * 0.3 for _ in range(4)
    )
    prompts = {
        "first": torch.cat([head, tail]),
        "again": torch.cat([head, tail]),
        "another end": torch.cat([head, other_tail]),
        "another beginning": torch.cat([other_head, tail]),
        "only the beginning": head,
    }
    expected = {
        name: await reference.llm.generate(rows, Sampling(TOKENS, (0,)), request_id=name)
        for name, rows in prompts.items()
    }
    assert len({answer.ids for answer in expected.values()}) >= 3
    cold = {name: await generate(llm, rows, f"cold {name}") for name, rows in prompts.items()}
    warm = {name: await generate(llm, rows, f"warm {name}") for name, rows in prompts.items()}
    together = await asyncio.gather(
        *(generate(llm, rows, f"at once {name}") for name, rows in prompts.items())
    )
    assert cold == expected
    assert warm == expected
    assert together == list(expected.values())
    assert llm.cached_rows > 0, "the cache was never used: nothing was shown"


async def test_closing_is_told_to_what_runs(engine: FunAsrNanoEngine) -> None:
    """The last test of this engine: it is closed, and stays so."""
    running = [
        asyncio.create_task(engine.transcribe(job(n, max_new_tokens=200, seconds=20))) for n in range(5)
    ]
    await asyncio.sleep(0.1)
    with suppress(TimeoutError):
        await asyncio.wait_for(engine.aclose(), 60)
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {EngineError, Decoded}
    assert not engine.healthy
    with pytest.raises(EngineError):
        await engine.transcribe(job(1))

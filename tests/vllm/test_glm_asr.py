"""GLM-ASR-Nano in vLLM: our encoder before a Llama, and vLLM's own class for the whole, say what transformers says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from realtime_server.core.jobs import Decoded, DecodeJob
from realtime_server.engines.base import Engine
from realtime_server.engines.glm_asr import GlmAsrEngine
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.engines.speech_to_text import load as load_speech
from realtime_server.engines.vllm_engine import VllmLlm
from realtime_server.models.glm_asr import AFTER, BEFORE, TASK
from realtime_server.models.glm_checkpoint import GlmCheckpoint, GlmConfig
from realtime_server.models.llm_weights import write_llm
from realtime_server.models.prompt import FolderTokenizer
from tests.models import glm
from tests.vllm.engines import CACHE_BYTES, LLM, TOKENS, job, nano_options

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's and transformers' own
]

JOBS = [job(n, seconds=0.5 + 0.61 * n) for n in range(8)]
PROMPT = f"{BEFORE}<|pad|>{AFTER.format(task=TASK)}"
# vLLM's class asks in words of its own, through the folder's chat template: here the template says what we say.
TEMPLATE = (
    "{{ " + json.dumps(PROMPT, ensure_ascii=False) + " }}"
)  # a template's own last newline would be lost


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return glm.write_folder(tmp_path_factory.mktemp("glm"), template=TEMPLATE, lively=True)


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[str]:
    """What transformers' GlmAsr says, one recording at a time, of the same prompt."""
    import transformers

    model = transformers.GlmAsrForConditionalGeneration.from_pretrained(folder).eval()
    extractor = transformers.WhisperFeatureExtractor(
        **{name: value for name, value in glm.FEATURES.items() if "type" not in name}
    )
    return [said_by_transformers(model, extractor, folder, each) for each in JOBS]


def said_by_transformers(model: Any, extractor: Any, folder: Path, one: DecodeJob) -> str:
    tokenizer, config = FolderTokenizer(folder), GlmConfig.read(folder)
    heard = extractor(
        one.audio, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True, padding="max_length"
    )
    count = int(glm_rows(heard["attention_mask"].sum(-1)))
    before, after = (tokenizer.encode(text) for text in PROMPT.split("<|pad|>"))
    ids = torch.tensor([[*before, *[model.config.audio_token_id] * count, *after]])
    with torch.inference_mode():
        said = model.generate(
            input_ids=ids, input_features=heard["input_features"], input_features_mask=heard["attention_mask"],
            do_sample=False, max_new_tokens=TOKENS, eos_token_id=list(config.stop_ids), pad_token_id=260,
        )  # fmt: skip
    return tokenizer.decode(said[0, ids.shape[1] :].tolist()).rstrip("\ufffd").strip()


def glm_rows(frames: torch.Tensor) -> torch.Tensor:
    from transformers.models.glmasr import GlmAsrProcessor

    rows: torch.Tensor = GlmAsrProcessor._get_audio_token_length(None, frames)
    return rows


async def decode(engine: Engine, jobs: list[DecodeJob]) -> list[Decoded]:
    return list(await asyncio.gather(*map(engine.transcribe, jobs)))


# --- our encoder, their Llama ------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def split(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GlmAsrEngine]:
    cache = tmp_path_factory.mktemp("cache")

    def start(checkpoint: GlmCheckpoint) -> VllmLlm:
        written = write_llm(checkpoint.llm_parts(), cache)
        return VllmLlm(written, width=checkpoint.config.llm.width, options=LLM)

    engine = GlmAsrEngine.load(nano_options(folder), "cpu", start)
    await engine.warmup()
    yield engine
    await engine.aclose()


async def test_the_split_form_says_what_transformers_says(split: GlmAsrEngine, expected: list[str]) -> None:
    together = await decode(split, JOBS)
    assert [each.text for each in together] == expected
    assert len(set(expected)) > 4, "the texts are too alike to prove anything"
    assert [await split.transcribe(each) for each in JOBS[::3]] == together[::3], "company changes nothing"


async def test_a_partial_continues_its_stable_text(split: GlmAsrEngine) -> None:
    whole = (await split.transcribe(JOBS[3])).text
    partial = await split.transcribe(job(50, audio=JOBS[3].audio, kind="partial", prefix=whole[:4]))
    assert partial.text.startswith(whole[:4])


async def test_the_split_form_is_closed(split: GlmAsrEngine) -> None:
    """The last of this engine: two do not run at once here."""
    await split.aclose()
    assert not split.healthy


# --- their class for the whole -----------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def whole(folder: Path) -> AsyncIterator[Engine]:
    options = SpeechOptions(
        model=str(folder), device="cpu", concurrency=8, max_model_len=1024, kv_cache_bytes=CACHE_BYTES
    )
    engine = load_speech(options)
    await engine.warmup()
    yield engine
    await engine.aclose()


async def test_vllms_own_class_says_the_same(whole: Engine, expected: list[str]) -> None:
    together = await decode(whole, JOBS)
    assert [each.text for each in together] == expected


async def test_vllms_own_class_takes_neither_language_nor_hotwords(whole: Engine) -> None:
    assert (whole.capabilities.languages, whole.capabilities.hotwords) == (None, "none")

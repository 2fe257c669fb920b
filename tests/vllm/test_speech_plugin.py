"""Our plugin's Fun-ASR-Nano behind `--engine vllm` says what `--engine funasr-nano` says, in both of its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from realtime_server.core.jobs import DecodeJob
from realtime_server.engines.loading import EngineOptions, load_engine
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.engines.speech_to_text import SpeechToTextEngine
from scripts.synthesis import SynthesiserMissingError, held_out
from tests.vllm.engines import CACHE_BYTES, job, torch_engine
from tests.vllm.vllm_server import FOLDER

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]


@pytest.fixture(scope="module")
def jobs() -> list[DecodeJob]:
    """What voices say that training never heard; some with hotwords, told the language, or to be translated."""
    try:
        said = held_out(10)
    except SynthesiserMissingError as error:
        pytest.skip(str(error))
    wishes = [{}, {"task": "translate"}, {"hotwords": ("zero", "九")}, {"language": "zh"}, {"language": "en"}]
    return [
        job(n, audio=each.samples, **{"max_new_tokens": None, **wishes[n % len(wishes)]}) for n, each in enumerate(said)
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["fun-asr-nano", "fun-asr-nano-embeds"])
async def test_its_texts_are_those_of_the_split_engine(
    jobs: list[DecodeJob], form: str, tmp_path: Path
) -> None:
    reference = torch_engine(FOLDER, tmp_path)
    await reference.warmup()
    expected = [await reference.transcribe(each) for each in jobs]
    await reference.aclose()
    arguments = {"config_format": form, "tokenizer": str(FOLDER / "Qwen3-tiny")}
    options = SpeechOptions(
        model=str(FOLDER), device="cpu", concurrency=16, max_model_len=1024, segment_s=20.0, kv_cache_bytes=CACHE_BYTES,
        vllm_args=arguments,
    )  # fmt: skip
    engine = load_engine(EngineOptions(engine="vllm", speech=options))
    assert isinstance(engine, SpeechToTextEngine)
    can = engine.capabilities
    assert can.languages
    assert {"zh", "en", "ja"} <= can.languages
    assert (can.hotwords, can.translate, can.longest_s) == ("full", True, 30.0)
    try:
        await engine.warmup()
        for wanted, each in zip(expected, jobs, strict=True):
            heard = await engine.transcribe(each)
            assert (heard.text, heard.language) == (wanted.text, each.options.language)
    finally:
        await engine.aclose()
    assert len({decoded.text for decoded in expected}) > 5, "they are too alike to prove anything"

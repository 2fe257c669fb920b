"""GLM-ASR-Nano around its language model, which is a scripted one here; and how the doors refuse what it cannot do."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

torch = pytest.importorskip("torch", reason="the GLM-ASR-Nano engine is not installed")
pytest.importorskip("safetensors", reason="reads checkpoints with the package safetensors")

from realtime_server import config, flags  # noqa: E402
from realtime_server.core.endpointing_options import EndpointingOptions  # noqa: E402
from realtime_server.core.jobs import (  # noqa: E402
    Decoded,
    DecodeJob,
    DecodeKind,
    DecodingOptions,
    Priority,
    Samples,
)
from realtime_server.core.settings import SessionSettings  # noqa: E402
from realtime_server.engines.fake import FakeEngine  # noqa: E402
from realtime_server.engines.glm_asr import GlmAsrEngine  # noqa: E402
from realtime_server.engines.nano_audio import NanoAudio  # noqa: E402
from realtime_server.engines.nano_options import NanoOptions  # noqa: E402
from realtime_server.errors import ConfigurationError, EngineError, UnsupportedError  # noqa: E402
from realtime_server.models.audio_llm import AudioLlm, Encoded  # noqa: E402
from realtime_server.models.glm_asr import SHORTEST, GlmAsr  # noqa: E402
from realtime_server.models.glm_checkpoint import GlmCheckpoint  # noqa: E402
from realtime_server.offline.options import FileOptions  # noqa: E402
from tests.core.driver import Driver  # noqa: E402
from tests.engines.scripted_llm import ScriptedLlm  # noqa: E402
from tests.models import glm, nano  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return glm.write_folder(tmp_path_factory.mktemp("model"))


def load(folder: Path, **options: Any) -> GlmAsrEngine:
    return GlmAsrEngine.load(
        NanoOptions(model=str(folder), device="cpu", **options),
        "cpu",
        lambda checkpoint: ScriptedLlm(checkpoint.text_tokenizer()),
    )


@pytest_asyncio.fixture
async def engine(folder: Path) -> AsyncIterator[GlmAsrEngine]:
    engine = load(folder, concurrency=4)
    await engine.llm.start()
    yield engine
    await engine.aclose()


def llm_of(engine: GlmAsrEngine) -> ScriptedLlm:
    assert isinstance(engine.llm, ScriptedLlm)
    return engine.llm


def job(samples: int = 16_000, kind: DecodeKind = "final", prefix: str = "", **options: Any) -> DecodeJob:
    audio = nano.noise(samples / 16_000)
    wish = DecodingOptions(**options)
    return DecodeJob(1, "s", 1, 0, kind, Priority.FINAL, 0, 0, audio.size, audio, prefix, wish)


async def test_a_final_is_the_text_of_its_tokens(engine: GlmAsrEngine) -> None:
    assert await engine.transcribe(job()) == Decoded("one two")
    (sampling,), (rows,) = llm_of(engine).sampling, llm_of(engine).rows
    assert sampling.stop_ids == (260, 262)
    assert sampling.max_tokens == 32
    assert rows.shape == (
        3 + 12 + len(engine._tokenizer.encode("<|end_of_audio|><|user|>\n转录以下音频内容<|assistant|>\n")),
        64,
    )


async def test_a_partial_continues_its_prefix(engine: GlmAsrEngine) -> None:
    decoded = await engine.transcribe(job(kind="partial", prefix="so <|user|> far"))
    assert decoded.text == "so |user| far one two"


async def test_many_at_once(engine: GlmAsrEngine) -> None:
    jobs = [job(SHORTEST + 4_000 * n) for n in range(6)]
    assert await asyncio.gather(*map(engine.transcribe, jobs)) == [Decoded("one two")] * 6
    rows = {len(each) for each in llm_of(engine).rows}
    assert len(rows) == 6, "each has as many rows as its own audio"


class NotedGraphs:
    """In the place of a GraphedEncoder: notes the shapes that are recorded, and those that are used."""

    def __init__(self, model: AudioLlm) -> None:
        self.recorded: list[tuple[int, int]] = []
        self.used: list[tuple[int, int | None]] = []
        self._model = model

    def record(self, rows: int, samples: int) -> None:
        self.recorded.append((rows, samples))

    def encode(self, waveforms: Sequence[Samples], *, words: bool, pad_to: int | None) -> list[Encoded]:
        self.used.append((len(waveforms), pad_to))
        return self._model.encode(waveforms, words=words)


async def test_a_gpu_has_passes_of_one_length(folder: Path) -> None:
    model = GlmAsr.load(GlmCheckpoint.open(folder))
    graphs = NotedGraphs(model)
    audio = NanoAudio(model, graphs=graphs)  # type: ignore[arg-type]  # what it uses of one
    await audio.warmup(480_000)
    assert graphs.recorded == [(rows, 480_000) for rows in (1, 2, 4, 8)]
    await asyncio.gather(*(audio.prompt(job(SHORTEST + 20_000 * n)) for n in range(10)))
    await audio.aclose()
    assert graphs.used == [(8, 480_000), (2, 480_000)], "of any length together, eight at most"


async def test_audio_too_short_for_a_row_is_no_speech(engine: GlmAsrEngine) -> None:
    assert await engine.transcribe(job(SHORTEST - 1)) == Decoded("", finish="gated")
    assert not llm_of(engine).rows
    assert (await engine.transcribe(job(SHORTEST))).text == "one two"


async def test_what_it_can_do(engine: GlmAsrEngine, folder: Path) -> None:
    can = engine.capabilities
    assert (can.languages, can.hotwords, can.words, can.translate, can.schedule) == (
        None,
        "none",
        False,
        False,
        False,
    )
    assert (can.prefix, can.logprobs, can.longest_s, can.concurrency) == (True, True, 30.0, 4)
    longer = load(folder, longest_s=60.0)
    assert longer.capabilities.longest_s == 30.0, "the model's own limit"
    await longer.aclose()


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ({"samples": 480_001}, "more than 30 s"),
        ({"language": "zh"}, "the language 'zh'"),
        ({"hotwords": ("a",)}, "hotwords"),
        ({"words": True}, "word times"),
        ({"task": "translate"}, "translation"),
    ],
)
async def test_what_it_cannot_do_is_refused(engine: GlmAsrEngine, bad: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"does not take {what}"):
        await engine.transcribe(job(**bad))
    assert not llm_of(engine).rows


async def test_audio_that_is_not_numbers_is_refused(engine: GlmAsrEngine) -> None:
    bad = job()
    bad.audio[7] = np.nan
    with pytest.raises(EngineError, match="not numbers"):
        await engine.transcribe(bad)


async def test_warming_up_starts_the_language_model(folder: Path) -> None:
    engine = load(folder)
    assert not engine.healthy
    await engine.warmup()
    assert engine.healthy
    await engine.aclose()
    assert not engine.healthy


# --- how the doors refuse ----------------------------------------------------------------------------------


def test_protocol_1_acknowledges_hotwords_and_warns_once(engine: GlmAsrEngine) -> None:
    driver = Driver(capabilities=engine.capabilities)
    driver.say("HOTWORDS:北京", "HOTWORDS:上海", "START")
    acknowledged = [message["event"] for message in driver.messages]
    assert acknowledged == ["hotwords_set", "hotwords_set", "started"]
    warned = [event for event in driver.events if type(event).__name__ == "Warned"]
    assert [event.message for event in warned] == ["this recognizer cannot use hotwords: they are ignored"]  # type: ignore[attr-defined]
    driver.hear(np.tile(nano.noise(2.0), 2))
    assert all(not each.options.hotwords for each in driver.jobs)


def test_protocol_1_refuses_a_language_and_goes_on(engine: GlmAsrEngine) -> None:
    driver = Driver(capabilities=engine.capabilities)
    driver.say("LANGUAGE:中文", "LANGUAGE:auto", "START")
    assert driver.messages[0]["event"] == "error"
    assert "cannot be told the language '中文'" in driver.messages[0]["error"]
    assert [message["event"] for message in driver.messages[1:]] == ["language_set", "started"]


async def test_a_file_with_hotwords_or_a_language_is_answered_400(engine: GlmAsrEngine) -> None:
    pytest.importorskip("fastapi", reason="the HTTP service is not installed")
    harness = pytest.importorskip("tests.http.harness")
    async with harness.serving(FakeEngine(capabilities=engine.capabilities)) as files:
        assert (await files.post()).status_code == 200
        for fields in ({"hotwords": "a"}, {"language": "en"}):
            refused = await files.post(**fields)
            assert refused.status_code == 400
            assert "this recognizer cannot" in refused.text


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--language", "zh"], "--language zh: this recognizer cannot be told that language"),
        (["--hotword-file", "WORDS"], "--hotword-file: this recognizer cannot use hotwords"),
        (["--endpointing", "dynamic"], "--endpointing dynamic: this recognizer bears no silence schedule"),
        (["--max-segment-seconds", "45"], "--max-segment-seconds 45: this recognizer takes at most 30 s"),
    ],
)
def test_the_command_line_refuses(
    engine: GlmAsrEngine, tmp_path: Path, given: list[str], complaint: str
) -> None:
    (tmp_path / "WORDS").write_text("北京\n", "utf-8")
    given = [str(tmp_path / "WORDS") if each == "WORDS" else each for each in given]
    with pytest.raises(ConfigurationError, match=complaint):
        config.fit_engine(serve("--engine", "glm-asr", *given), engine.capabilities)


def serve(*given: str) -> config.ServeConfig:
    parser = ArgumentParser()
    flags.add_arguments(parser)
    return config.read_arguments(parser.parse_args(given))


def test_segments_end_after_a_fixed_silence(engine: GlmAsrEngine) -> None:
    can = engine.capabilities
    fitted = config.fit_engine(serve("--engine", "glm-asr"), can)
    assert (fitted.session.endpointing.mode, fitted.endpointing) == ("fixed", "fixed:800")
    assert FileOptions().endpointing_for(can).mode == "fixed"
    chosen = EndpointingOptions(mode="fixed", silence_ms=500)
    assert FileOptions(endpointing=chosen).endpointing_for(can).silence_ms == 500
    driver = Driver(settings=SessionSettings(), capabilities=can)
    driver.say("START")
    assert driver.events[-1].setup.endpointing.mode == "fixed"  # type: ignore[attr-defined]

"""Any model of vLLM's as a recognizer: a real Whisper, whose requests leave each other alone, until its vLLM dies."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from realtime_server import weights
from realtime_server.cli import main
from realtime_server.core.jobs import Decoded, DecodeJob, Samples
from realtime_server.core.messages import SegmentLocked
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.engines.speech_to_text import SpeechToTextEngine
from realtime_server.errors import EngineError, UnsupportedError, WeightsError
from realtime_server.realtime.session import Clocks, RealtimeASRSession
from tests.audio import pcm16
from tests.vllm.engines import job
from tests.vllm.whisper import ASK_NOT, BEST_OF_TIMES, read

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]

PATIENCE_S = 120.0
FRAME = SAMPLE_RATE // 10
HURRY_S = 0.04  # from frame to frame: 2.5 times the pace of speech


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(whisper_folder: Path) -> AsyncIterator[SpeechToTextEngine]:
    options = SpeechOptions(model=str(whisper_folder), device="cpu", concurrency=8, kv_cache_bytes=512 << 20)
    engine = load_engine(EngineOptions(engine="vllm", speech=options))
    assert isinstance(engine, SpeechToTextEngine)
    await engine.warmup()
    yield engine
    await engine.aclose()


@pytest.fixture(scope="module")
def reading() -> Samples:
    """Ten seconds of Dickens."""
    try:
        return read(weights.find("recordings") / "two_cities.wav", seconds=10)
    except WeightsError as error:
        pytest.skip(str(error))


def whole(number: int, audio: Samples, **options: object) -> DecodeJob:
    """A final whose text is as long as the audio has it."""
    return job(number, audio=audio, **{"max_new_tokens": None, **options})


async def decode(engine: SpeechToTextEngine, jobs: Sequence[DecodeJob]) -> list[Decoded]:
    return list(await asyncio.gather(*map(engine.transcribe, jobs)))


# --- what it hears ----------------------------------------------------------------------------------------


async def test_capabilities_are_those_of_the_class(engine: SpeechToTextEngine) -> None:
    can = engine.capabilities
    assert can.languages
    assert {"en", "zh", "de"} < can.languages
    assert (can.translate, can.logprobs, can.words, can.prefix) == (True, True, False, False)
    assert can.longest_s == 30.0


async def test_hotwords_are_not_offered_while_the_class_spells_its_mark_in_letters(
    engine: SpeechToTextEngine, whisper_folder: Path
) -> None:
    """vLLM puts a free prompt behind "<|prev|>", which Whisper's tokenizer does not have: it spoils the text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(whisper_folder / "tokenizer.json"))
    assert tokenizer.token_to_id("<|prev|>") is None
    assert engine.capabilities.hotwords == "none"
    with pytest.raises(UnsupportedError, match="hotwords"):
        await engine.transcribe(job(1, seconds=1, hotwords=("Kennedy",)))


async def test_the_reading_is_understood_and_its_language_detected(
    engine: SpeechToTextEngine, reading: Samples
) -> None:
    told: list[str] = []
    decoded = await engine.transcribe(whole(1, reading, logprobs=True), told.append)
    assert BEST_OF_TIMES in decoded.text.lower()
    assert (decoded.language, decoded.finish) == ("en", "stop")
    assert decoded.token_logprobs
    assert max(decoded.token_logprobs) <= 0
    assert all(later.startswith(earlier) for earlier, later in pairwise(told))
    assert told[-1] == decoded.text


async def test_shared_clips_are_understood_in_their_languages(
    engine: SpeechToTextEngine, shared_data: Path
) -> None:
    english, chinese = shared_data / "en" / "jfk.flac", shared_data / "zh" / "audioeval-zh-nihao_shijie.wav"
    jobs = [whole(1, read(english)), whole(2, read(chinese)), whole(3, read(chinese), task="translate")]
    heard = await decode(engine, jobs)
    assert [(decoded.text, decoded.language) for decoded in heard] == [
        (ASK_NOT, "en"), ("你好世界", "zh"), ("Hello world", "zh"),
    ]  # fmt: skip


async def test_live_it_has_partials_and_a_locked_sentence_with_its_language(
    engine: SpeechToTextEngine, reading: Samples
) -> None:
    scorer = load_scorer(EngineOptions(), "fsmn")
    async with RealtimeASRSession(
        engine, scorer, SessionSettings(), clocks=Clocks(deadline_s=120.0)
    ) as session:
        session.feed("START")
        for start in range(0, reading.size, FRAME):
            session.feed(pcm16(reading[start : start + FRAME]))
            await asyncio.sleep(HURRY_S)
        session.feed("STOP")
        session.end()
        messages = [json.loads(message) async for message in session.messages()]
        locked = [event for event in session.log.read(0) if isinstance(event, SegmentLocked)]
    await scorer.aclose()
    sentences = [sentence for event in locked for sentence in event.sentences]
    assert BEST_OF_TIMES in " ".join(sentence.text for sentence in sentences).lower()
    assert {sentence.language for sentence in sentences} == {"en"}
    assert any(message.get("partial") for message in messages)
    assert [message["is_final"] for message in messages if "is_final" in message][-1]


# --- together, and among bad company ----------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bystanders(engine: SpeechToTextEngine, reading: Samples) -> list[tuple[DecodeJob, Decoded]]:
    """Windows of many lengths, and what each says when nobody else is there."""
    windows = [(0.0, 1.5), (1.0, 10.0), (3.0, 6.5), (7.0, 8.2)]
    jobs = [
        whole(n, reading[round(SAMPLE_RATE * start) : round(SAMPLE_RATE * end)])
        for n, (start, end) in enumerate(windows)
    ]
    jobs.append(whole(len(jobs), reading, language="en"))
    return [(each, await engine.transcribe(each)) for each in jobs]


async def test_mixed_lengths_at_once_give_the_texts_of_one_at_a_time(
    engine: SpeechToTextEngine, bystanders: list[tuple[DecodeJob, Decoded]]
) -> None:
    jobs, alone = zip(*bystanders, strict=True)
    assert len({decoded.text for decoded in alone}) >= 4, "they are too alike to prove anything"
    assert await decode(engine, jobs) == list(alone)


async def test_cancelled_and_refused_requests_touch_nobody(
    engine: SpeechToTextEngine, reading: Samples, bystanders: list[tuple[DecodeJob, Decoded]]
) -> None:
    jobs, alone = zip(*bystanders, strict=True)
    begun = asyncio.Event()
    doomed = [
        asyncio.create_task(engine.transcribe(whole(90 + n, reading, language="en"), lambda _: begun.set()))
        for n in range(3)
    ]
    others = asyncio.create_task(decode(engine, jobs))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    for task in doomed:
        task.cancel()
    with pytest.raises(UnsupportedError, match="more than 30 s of audio"):
        await engine.transcribe(whole(99, np.tile(reading, 4)))
    poisoned = reading.copy()
    poisoned[1000] = np.nan
    with pytest.raises(EngineError, match="not numbers"):
        await engine.transcribe(whole(99, poisoned))
    loud = whole(98, (reading * 1e30).astype(np.float32), max_new_tokens=4)
    assert isinstance(await engine.transcribe(loud), Decoded)
    outcomes = await asyncio.gather(*doomed, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
    assert await others == list(alone)
    assert engine.healthy


async def test_the_token_limit_is_told(engine: SpeechToTextEngine, reading: Samples) -> None:
    decoded = await engine.transcribe(whole(1, reading, language="en", max_new_tokens=2))
    assert decoded.finish == "length"


async def test_every_job_is_told_that_vllm_died(engine: SpeechToTextEngine, reading: Samples) -> None:
    """The last test of this engine."""
    (process,) = [each for each in multiprocessing.active_children() if "EngineCore" in each.name]
    begun = asyncio.Event()
    long = replace(whole(1, reading, language="en"), audio=reading)
    waiting = [asyncio.create_task(engine.transcribe(long, lambda _: begun.set())) for _ in range(12)]
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    process.kill()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_S)
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Decoded)]
    assert failed, "all of them were faster than the signal"
    assert {str(outcome) for outcome in failed} == {"vLLM's engine has died"}
    assert not engine.healthy
    with pytest.raises(EngineError, match="has died"):
        await asyncio.wait_for(engine.transcribe(long), PATIENCE_S)


# --- models that will not do ------------------------------------------------------------------------------


def sentence_of(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What `serve` says before it gives up."""
    command = ["serve", "--vad", "level", "--port", "0", "--engine", "vllm", "--device", "cpu", *flags]
    assert main(command) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("realtime-server: ")]
    (line,) = lines
    return line.removeprefix("realtime-server: ")


def test_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence_of(capsys) == "--engine vllm needs --model: a folder, or a model's name at the hub"


def test_a_model_that_is_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    said = sentence_of(capsys, "--model", "/no/such/folder")
    assert (
        said == "--model /no/such/folder: it is no folder here, and no name of a model on a hub (owner/name)"
    )
    said = sentence_of(capsys, "--model", "nobody/nothing")
    assert said.startswith("--model nobody/nothing: vLLM cannot use it: ")


def test_a_folder_without_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = sentence_of(capsys, "--model", str(tmp_path))
    assert said.startswith(f"--model {tmp_path}: vLLM cannot use it: ")


def test_a_model_of_another_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 64, "vocab_size": 128,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    said = sentence_of(capsys, "--model", str(tmp_path))
    assert said == (
        f"--model {tmp_path}: Qwen3ForCausalLM is no speech-to-text model of vLLM's; "
        "it needs one that implements SupportsTranscription, such as Whisper"
    )


def test_an_argument_that_vllm_does_not_have(
    capsys: pytest.CaptureFixture[str], whisper_folder: Path
) -> None:
    said = sentence_of(capsys, "--model", str(whisper_folder), "--vllm-arg", "no-such-thing=1")
    assert said.startswith("--vllm-arg no-such-thing: vLLM 0.")
    assert said.endswith(" has no such argument")


def test_hotwords_that_the_model_cannot_use(
    capsys: pytest.CaptureFixture[str], whisper_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("Kennedy\n")
    said = sentence_of(capsys, "--model", str(whisper_folder), "--hotword-file", str(tmp_path / "words.txt"))
    assert said == "--hotword-file: this recognizer cannot use hotwords"

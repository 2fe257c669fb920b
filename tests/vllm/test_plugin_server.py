"""vLLM's own server with the plugin and a trained Fun-ASR-Nano, asked by OpenAI's client: both forms.

The checkpoint is tests/data/tiny-fun-asr-nano; what is said comes from voices that its training never heard. The texts
are those of our own engine, whose language model runs in transformers here: one vLLM at a time is enough.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import shutil
import subprocess
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
import soxr
from websockets.asyncio.client import connect

from realtime_server.core.jobs import DecodingOptions, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
from realtime_server.vllm_plugin.answers import cleaned
from realtime_server.vllm_plugin.folder import opened
from scripts.synthesis import SynthesiserMissingError, Utterance, held_out
from scripts.tiny_language import Style, written
from tests.audio import pcm16
from tests.vllm.engines import decode_in_turn, job, torch_engine
from tests.vllm.plugin import FunAsrNanoAudio, split_audio
from tests.vllm.vllm_server import FOLDER, NAME, PAGE, VllmServer

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # vLLM's own

UTTERANCES = 24
DEADLINE_S = 120.0
WISHES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "language": {"language": "zh"},
    "hotwords": {"hotwords": ("Caylyn", "林晓宇")},
    "translation": {"task": "translate"},
}
TRANSCRIBED = [name for name in WISHES if name != "translation"]
PAGES_WISH = {"language": "zh", "hotwords": ("开放时间", "Qwen")}
LONG_IN = {None: " ", "en": " ", "zh": ""}  # what joins clips, by language


@pytest.fixture(scope="module")
def unseen() -> list[Utterance]:
    try:
        return held_out(UTTERANCES)
    except SynthesiserMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def own_texts(unseen: list[Utterance], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What our own engine says, one after the other, by wish."""

    async def listen_to_all() -> dict[str, list[str]]:
        engine = torch_engine(FOLDER, tmp_path_factory.mktemp("own"))
        await engine.warmup()
        texts = {}
        for name, wish in WISHES.items():
            texts[name] = await listen(engine, [heard(each) for each in unseen], **wish)
        texts["page"] = await listen(engine, [heard(unseen[0])], **PAGES_WISH)
        for code in LONG_IN:
            texts[f"long {code}"] = await listen(engine, clips_of(long_recording(unseen)), language=code)
        await engine.aclose()
        return texts

    return asyncio.run(listen_to_all())


async def listen(engine: FunAsrNanoEngine, clips: list[Samples], **wish: Any) -> list[str]:
    jobs = [job(n, audio=clip, max_new_tokens=None, **wish) for n, clip in enumerate(clips)]
    return [cleaned(decoded.text) for decoded in await decode_in_turn(engine, jobs)]


def long_recording(unseen: list[Utterance]) -> Samples:
    """41 seconds, with a pause after each utterance."""
    pause = np.zeros(SAMPLE_RATE, np.float32)
    return np.concatenate([part for each in unseen[:9] for part in (heard(each), pause)])


def clips_of(samples: Samples) -> list[Samples]:
    """What vLLM cuts a recording into for our classes."""
    config = FunAsrNanoAudio.get_speech_to_text_config(None, "transcribe")
    clips: list[Samples] = split_audio(
        samples, SAMPLE_RATE, config.max_audio_clip_s, config.overlap_chunk_second,
        config.min_energy_split_window_size,
    )  # fmt: skip
    return clips


@pytest.fixture(scope="module", params=["fun-asr-nano", "fun-asr-nano-embeds"])
def server(request: pytest.FixtureRequest, own_texts: dict[str, list[str]]) -> Iterator[VllmServer]:
    with VllmServer(request.param) as server:
        yield server


@pytest.fixture
def client(server: VllmServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S
    ) as client:
        yield client


def heard(utterance: Utterance) -> Samples:
    """As it is after it was a file."""
    return np.frombuffer(pcm16(utterance.samples), "<i2").astype(np.float32) / np.float32(32768)


def recording(samples: Samples, rate: int = SAMPLE_RATE, channels: int = 1) -> tuple[str, bytes]:
    """A file of sound at 16 kHz, resampled."""
    if rate != SAMPLE_RATE:
        samples = soxr.resample(samples, SAMPLE_RATE, rate).astype(np.float32)
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm16(np.repeat(samples, channels)))
    return "sound.wav", stream.getvalue()


def ask(client: openai.OpenAI, samples: Samples, **wishes: Any) -> str:
    return str(client.audio.transcriptions.create(model=NAME, file=recording(samples), **wishes).text)


def ask_all(client: openai.OpenAI, clips: list[Samples], **wishes: Any) -> list[str]:
    """All at once."""
    with ThreadPoolExecutor(len(clips)) as pool:
        return list(pool.map(lambda clip: ask(client, clip, **wishes), clips))


def stream(client: openai.OpenAI, samples: Samples, **wishes: Any) -> list[dict[str, Any]]:
    """Events of a streamed answer, as vLLM has them: OpenAI's client knows others, and passes these on."""
    events = client.audio.transcriptions.create(model=NAME, file=recording(samples), stream=True, **wishes)
    return [event.model_dump() for event in events]


def deltas(events: list[dict[str, Any]]) -> list[str]:
    return [choice["delta"].get("content", "") for event in events for choice in event["choices"]]


# --- texts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", TRANSCRIBED)
def test_texts_are_those_of_our_own_engine_whatever_shares_their_batch(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]], wish: str
) -> None:
    clips = [heard(utterance) for utterance in unseen]
    assert max(map(len, clips)) > 4 * min(map(len, clips)), "the lengths should differ"
    wishes = dict(WISHES[wish])
    if "hotwords" in wishes:
        wishes = {"extra_body": {"hotwords": ", ".join(wishes["hotwords"])}}
    assert ask_all(client, clips, **wishes) == own_texts[wish]


def test_the_texts_do_depend_on_the_audio_and_the_wishes(own_texts: dict[str, list[str]]) -> None:
    assert len(set(own_texts["nothing"])) > UTTERANCES // 2
    assert own_texts["nothing"] != own_texts["hotwords"]


def test_translations_are_those_of_our_own_engine(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    """The tiny checkpoint was taught to translate; its translations are English, and mostly right."""
    mandarin = [n for n, utterance in enumerate(unseen) if utterance.units[0].language == "zh"]
    texts = [
        client.audio.translations.create(model=NAME, file=recording(heard(unseen[n]))).text for n in mandarin
    ]
    assert texts == [own_texts["translation"][n] for n in mandarin]
    assert all(text.isascii() for text in texts)
    right = [
        text == written(unseen[n].units, Style(translated=True))
        for text, n in zip(texts, mandarin, strict=True)
    ]
    assert sum(right) >= 0.6 * len(right), texts


def test_a_streamed_translation_adds_up_to_the_whole(
    server: VllmServer, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    """OpenAI's client streams no translations; vLLM does."""
    number = next(n for n, utterance in enumerate(unseen) if utterance.units[0].language == "zh")
    answer = httpx2.post(
        f"{server.url}/v1/audio/translations",
        data={"model": NAME, "stream": "true", "to_language": "en"},
        files={"file": recording(heard(unseen[number]))}, timeout=DEADLINE_S,
    )  # fmt: skip
    told = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert told.pop() == "[DONE]"
    assert "".join(deltas([json.loads(each) for each in told])) == own_texts["translation"][number]


def test_a_recording_gets_the_same_text_alone_and_again(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    assert [ask(client, heard(unseen[0])) for _ in range(2)] == own_texts["nothing"][:1] * 2


@pytest.mark.parametrize("name", ["中文", "Chinese", "zh-CN"])
def test_languages_come_by_name(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]], name: str
) -> None:
    assert ask(client, heard(unseen[1]), language=name) == own_texts["language"][1]


def test_a_prompt_is_taken_for_hotwords(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    moved = [n for n, text in enumerate(own_texts["hotwords"]) if text != own_texts["nothing"][n]]
    assert moved
    assert ask(client, heard(unseen[moved[0]]), prompt="Caylyn, 林晓宇") == own_texts["hotwords"][moved[0]]


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (48_000, 2)])
def test_recordings_are_resampled(
    client: openai.OpenAI, unseen: list[Utterance], rate: int, channels: int
) -> None:
    answer = client.audio.transcriptions.create(model=NAME, file=recording(heard(unseen[0]), rate, channels))
    assert answer.text


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("code", "joint"), LONG_IN.items())
def test_a_long_recording_is_cut_and_joined_as_its_language_wants(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]],
    code: str | None, joint: str, streamed: bool,
) -> None:  # fmt: skip
    """Each clip has a prompt of its own: the text is that of our own engine, clip by clip."""
    expected = own_texts[f"long {code}"]
    assert len(expected) > 1
    wish = {"language": code} if code else {}
    sound = long_recording(unseen)
    text = "".join(deltas(stream(client, sound, **wish))) if streamed else ask(client, sound, **wish)
    assert text == joint.join(expected)


# --- streams ---------------------------------------------------------------------------------------------


def test_a_streamed_answer_adds_up_to_the_whole(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    for utterance, text in zip(unseen[:6], own_texts["nothing"], strict=False):
        events = stream(client, heard(utterance))
        assert "".join(deltas(events)) == text
        assert len(deltas(events)) > 2
        assert not any("\ufffd" in delta or "<|" in delta for delta in deltas(events))
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_usage_counts_the_prompt_and_the_audio_once_more(
    client: openai.OpenAI, unseen: list[Utterance]
) -> None:
    """vLLM adds `get_num_audio_tokens` to a prompt that holds the audio already; the page says so."""
    *_, last = stream(client, heard(unseen[0]), extra_body={"stream_include_usage": True})
    folder = opened(str(FOLDER))
    rows = folder.audio_rows(len(heard(unseen[0])))
    around = len(folder.prompt_ids(DecodingOptions())) - 1
    assert last["usage"]["prompt_tokens"] == around + 2 * rows
    assert last["usage"]["completion_tokens"] > 0


# --- the page's own clients ------------------------------------------------------------------------------


def on_this_server(program: str, server: VllmServer, file: Path) -> str:
    """A program of the page, with the names that things have here."""
    address = server.url.removeprefix("http://")
    for theirs, ours in (("localhost:8000", address), ("talk.wav", str(file)), ("FOLDER", NAME)):
        assert theirs in program
        program = program.replace(theirs, ours)
    return program


@pytest.fixture
def talk(unseen: list[Utterance], tmp_path: Path) -> Path:
    path = tmp_path / "recording.wav"
    path.write_bytes(recording(heard(unseen[0]))[1])
    return path


def test_the_pages_program_gets_an_answer(
    server: VllmServer, talk: Path, own_texts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"```python\n(from openai import.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(on_this_server(program, server, talk), {})
    assert capsys.readouterr().out.strip() == own_texts["page"][0]


def test_the_pages_curl_gets_an_answer(
    server: VllmServer, talk: Path, own_texts: dict[str, list[str]]
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    (command,) = re.findall(r"^curl .*(?:\\\n.*)*$", PAGE.read_text("utf-8"), re.MULTILINE)
    done = subprocess.run(
        ["sh", "-c", on_this_server(command, server, talk)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert json.loads(done.stdout)["text"] == own_texts["nothing"][0], done.stderr


# --- what cannot be done ---------------------------------------------------------------------------------


def test_a_translation_into_another_language_is_refused(
    client: openai.OpenAI, unseen: list[Utterance]
) -> None:
    with pytest.raises(openai.BadRequestError, match="into English alone"):
        client.audio.translations.create(
            model=NAME, file=recording(heard(unseen[0])), extra_body={"to_language": "de"}
        )


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"language": "Klingon"}, "Klingon"),
        ({"extra_body": {"to_language": "en"}}, "takes no to_language"),
        ({"response_format": "verbose_json"}, "verbose_json"),
        ({"response_format": "diarized_json"}, "diarized_json"),
        ({"response_format": "srt"}, "response_format"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(
    client: openai.OpenAI, unseen: list[Utterance], wishes: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        ask(client, heard(unseen[0]), **wishes)


def float_recording(value: float) -> tuple[str, bytes]:
    """A file of 32-bit floats, which can hold anything."""
    import soundfile

    samples = np.zeros(SAMPLE_RATE, np.float32)
    samples[100] = value
    stream = io.BytesIO()
    soundfile.write(stream, samples, SAMPLE_RATE, format="WAV", subtype="FLOAT")
    return "sound.wav", stream.getvalue()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_unfit_audio_is_refused_and_touches_nobody(
    client: openai.OpenAI, unseen: list[Utterance], own_texts: dict[str, list[str]], value: float
) -> None:
    clips = [heard(utterance) for utterance in unseen[:8]]
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(ask_all, client, clips)
        with pytest.raises(openai.BadRequestError, match="not numbers, or far too large"):
            client.audio.transcriptions.create(model=NAME, file=float_recording(value))
        assert others.result() == own_texts["nothing"][:8]


def test_what_is_no_recording_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.audio.transcriptions.create(model=NAME, file=("sound.wav", b"no recording" * 100))
    with pytest.raises(openai.BadRequestError, match=r"no sound|[Ii]nvalid|[Ee]mpty"):
        client.audio.transcriptions.create(model=NAME, file=recording(np.empty(0, np.float32)))


def test_a_transcription_only_model_does_not_chat(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "hello"}])


def test_it_is_still_healthy(server: VllmServer) -> None:
    assert server.healthy


# --- live ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live_server(own_texts: dict[str, list[str]]) -> Iterator[VllmServer]:
    with VllmServer("fun-asr-nano-realtime") as server:
        yield server


async def speak(server: VllmServer, *streams: Samples) -> list[dict[str, Any]]:
    """What /v1/realtime answers to streams, each begun and ended by a commit, on one connection."""
    told = []
    async with connect(f"{server.url.replace('http', 'ws')}/v1/realtime", compression=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "model": NAME}))
        for samples in streams:
            await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
            pcm = pcm16(samples)
            for start in range(0, len(pcm), 6400):
                audio = base64.b64encode(pcm[start : start + 6400]).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            await socket.send(json.dumps({"type": "input_audio_buffer.commit", "final": True}))
            told.append([])
            async with asyncio.timeout(DEADLINE_S):
                async for message in socket:
                    told[-1].append(json.loads(message))
                    if told[-1][-1]["type"] in ("transcription.done", "error"):
                        break
    return told


async def test_live_streams_are_answered_with_the_texts_of_our_own_engine(
    live_server: VllmServer, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    """Those of one piece: what follows a pause is read with what was before it, which no other endpoint does."""
    whole = [n for n in range(UTTERANCES) if len(heard(unseen[n])) < 4 * SAMPLE_RATE][:4]
    answers = await speak(live_server, *(heard(unseen[n]) for n in whole))
    for number, messages in zip(whole, answers, strict=True):
        told = [message["delta"] for message in messages if message["type"] == "transcription.delta"]
        assert messages[-1]["type"] == "transcription.done", messages
        assert len(told) > 2
        assert cleaned("".join(told)) == cleaned(messages[-1]["text"]) == own_texts["nothing"][number]


async def test_a_live_stream_is_answered_piece_by_piece(
    live_server: VllmServer, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    pause = np.zeros(SAMPLE_RATE, np.float32)
    first, second = heard(unseen[0]), heard(unseen[3])
    (messages,) = await speak(live_server, np.concatenate([first, pause, second]))
    assert messages[-1]["type"] == "transcription.done"
    text = messages[-1]["text"]
    assert text.startswith(own_texts["nothing"][0])
    assert len(text) > len(own_texts["nothing"][0])


def test_the_live_server_transcribes_recordings_too(
    live_server: VllmServer, unseen: list[Utterance], own_texts: dict[str, list[str]]
) -> None:
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key="none", timeout=DEADLINE_S) as client:
        assert ask(client, heard(unseen[0])) == own_texts["nothing"][0]


def test_the_pages_live_program_gets_an_answer(
    live_server: VllmServer, talk: Path, own_texts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"```python\n(import asyncio.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(on_this_server(program, live_server, talk), {})
    assert cleaned(capsys.readouterr().out) == own_texts["nothing"][0]

"""A real Whisper behind `serve --engine vllm`: live over the WebSocket, and recordings over HTTP, with one engine."""

from __future__ import annotations

import io
import json
import re
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from realtime_server import weights
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError
from tests.audio import pcm16
from tests.live_server import LiveServer
from tests.vllm.whisper import ASK_NOT, BEST_OF_TIMES, read

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

READY_S, PATIENCE_S = 300.0, 300.0  # of the server, of an answer: how fast a machine is is not what is tested
WHOLE_S = 60.0  # more than the reading lasts


class Speech(LiveServer):
    """`serve --engine vllm`, with recordings over HTTP."""

    def __init__(self, model: Path) -> None:
        super().__init__(
            "--engine", "vllm", "--model", str(model), "--device", "cpu", "--http-port", "0",
            "--deadline-seconds", str(PATIENCE_S), ready_s=READY_S,
        )  # fmt: skip

    def post(self, path: str, recording: bytes, **fields: Any) -> Any:
        """What the server answers a form with, from JSON."""
        found = re.search(r"recordings are taken at (http://[^/]+)/", self.log)
        assert found, self.log
        with httpx2.Client(base_url=found[1], timeout=PATIENCE_S) as client:
            answer = client.post(path, files={"file": ("talk.wav", recording)}, data=fields)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text)


@pytest.fixture(scope="module")
def server(whisper_folder: Path) -> Iterator[Speech]:
    with Speech(whisper_folder) as server:
        yield server
        assert server.stop() == 0, server.log


@pytest.fixture(scope="module")
def reading() -> Samples:
    """44 seconds of Dickens."""
    try:
        return read(weights.find("recordings") / "two_cities.wav", seconds=WHOLE_S)
    except WeightsError as error:
        pytest.skip(str(error))


def wav(samples: Samples) -> bytes:
    """The samples as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(pcm16(samples))
    return file.getvalue()


def sentences(messages: list[dict[str, Any]], *, partials: bool = True) -> str:
    """The final's text; there were partials on the way to it, unless it is short."""
    assert any(message.get("partial") for message in messages) or not partials
    (final,) = (message for message in messages if message.get("is_final"))
    return " ".join(sentence["text"] for sentence in final["sentences"])


def test_two_people_are_understood_live(server: Speech, reading: Samples, tmp_path: Path) -> None:
    paths = [tmp_path / "one.wav", tmp_path / "two.wav"]
    for path, seconds in zip(paths, (8, 5), strict=True):
        path.write_bytes(wav(reading[: seconds * SAMPLE_RATE]))
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(server.stream, paths)
    assert BEST_OF_TIMES in sentences(one).lower()
    assert "it was the best of times" in sentences(two).lower()


def test_shared_clips_are_understood_live(server: Speech, shared_data: Path) -> None:
    paths = [shared_data / "en" / "jfk.flac", shared_data / "zh" / "audioeval-zh-nihao_shijie.wav"]
    with ThreadPoolExecutor(2) as pool:
        english, chinese = pool.map(server.stream, paths)
    assert sentences(english) == ASK_NOT
    assert sentences(chinese, partials=False) == "你好世界"


def told_live(server: Speech, audio: Samples) -> list[dict[str, Any]]:
    """Every message of a session in protocol 2, which says the languages of sentences."""
    pcm, told = pcm16(audio), []
    with connect(server.url, compression=None) as socket:
        socket.send(f"START {json.dumps({'protocol': 2})}")
        for start in range(0, len(pcm), 6400):
            socket.send(pcm[start : start + 6400])
        socket.send("STOP")
        while not told or told[-1]["type"] not in ("stopped", "error"):
            told.append(json.loads(socket.recv(PATIENCE_S)))
    return told


def test_live_sentences_name_the_language_that_was_detected(server: Speech, reading: Samples) -> None:
    said = [each for each in told_live(server, reading[: 8 * SAMPLE_RATE]) if each["type"] == "sentence"]
    assert BEST_OF_TIMES in " ".join(each["text"] for each in said).lower()
    assert {each["language"] for each in said} == {"en"}


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [("en/jfk.flac", ASK_NOT, "en"), ("zh/audioeval-zh-nihao_shijie.wav", "你好世界", "zh")],
)
def test_live_sentences_of_shared_clips_name_their_languages(
    server: Speech, shared_data: Path, name: str, text: str, language: str
) -> None:
    said = [each for each in told_live(server, read(shared_data / name)) if each["type"] == "sentence"]
    assert " ".join(each["text"] for each in said) == text
    assert {each["language"] for each in said} == {language}


def test_a_recording_longer_than_the_models_clip_is_heard_to_its_end(
    server: Speech, reading: Samples
) -> None:
    heard = server.post("/v1/audio/transcriptions", wav(reading), response_format="verbose_json")
    assert heard["duration"] > 40
    assert heard["language"] == "en"
    text = heard["text"].lower()
    assert BEST_OF_TIMES in text
    assert "superlative degree of comparison only" in text
    assert all(segment["end"] - segment["start"] <= 30 for segment in heard["segments"])


def test_languages_of_recordings_are_detected_and_translated(server: Speech, shared_data: Path) -> None:
    english, chinese = (
        wav(read(shared_data / name)) for name in ("en/jfk.flac", "zh/audioeval-zh-nihao_shijie.wav")
    )
    for recording, text, language in ((english, ASK_NOT, "en"), (chinese, "你好世界", "zh")):
        heard = server.post("/v1/audio/transcriptions", recording, response_format="verbose_json")
        assert (heard["text"], heard["language"]) == (text, language)
    assert server.post("/v1/audio/translations", chinese)["text"] == "Hello world"

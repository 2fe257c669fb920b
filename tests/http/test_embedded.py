"""The CPU recognizer over HTTP: the same text as without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer
from realtime_server.offline.audio_file import read_recording
from realtime_server.offline.recording import to_pcm16
from realtime_server.offline.transcriber import process_audio
from tests.http.process import FilesServer

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def server() -> Iterator[FilesServer]:
    with FilesServer("--engine", "embedded", "--vad", "fsmn") as server:
        yield server


async def test_the_same_text_in_every_way(server: FilesServer, shared_data: Path) -> None:
    path = shared_data / "en" / "jfk.flac"
    recording = read_recording(path)
    engine, scorer = load_engine(EngineOptions()), load_scorer(EngineOptions(), "fsmn")
    try:
        text = (await process_audio(recording, engine=engine, scorer=scorer)).text
    finally:
        await engine.aclose()
        await scorer.aclose()
    assert "ask not what your country can do for you" in text

    with server.openai() as client, path.open("rb") as file:
        assert client.audio.transcriptions.create(file=file, model="whisper-base").text == text
    asr = server.post("/asr", path.read_bytes()).json()
    assert asr["text"] == text
    assert "".join(word["word"] for word in asr["segments"][0]["words"]).replace(" ", "") == text.replace(
        " ", ""
    )

    async with connect(server.files_url.replace("http", "ws") + "/ws") as ws:
        await ws.send("START")
        await ws.send(to_pcm16(recording.read(0, len(recording))).tobytes())
        await ws.send("STOP")
        messages = [json.loads(await ws.recv()) for _ in range(3)]
    assert " ".join(sentence["text"] for sentence in messages[1]["sentences"]) == text

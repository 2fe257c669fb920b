"""Real speech, streamed at the pace of speech through the real server by the real client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from realtime_server import weights
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, Samples
from realtime_server.core.postprocess import clean
from realtime_server.core.segments import SAMPLE_RATE, SAMPLES_PER_MS
from realtime_server.demo import load_client
from realtime_server.engines.embedded import EmbeddedEngine
from realtime_server.resources import find_resource
from tests.live.recordings import Recording, fetched, shared
from tests.live_server import LiveServer

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

CLIENT = str(find_resource("clients/client_python.py"))
AT_ONCE = 3  # streams: enough to be done soon, few enough for two cores
DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer("--engine", "embedded") as server:
        yield server


def stream(server: LiveServer, recordings: Sequence[Recording], language: str) -> list[dict[str, Any]]:
    """Stream recordings at pace 1.0, a few at a time; return their final results."""

    def run(recording: Recording) -> dict[str, Any]:
        command = [sys.executable, CLIENT, "--server", server.url, "--file", str(recording.path)]
        command += ["--pace", "1.0", "--json", "--language", language]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        messages = [json.loads(line) for line in done.stdout.splitlines()]
        (final,) = [message for message in messages if message.get("is_final")]
        assert not [message for message in messages if message.get("event") == "error"]
        return dict(final)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, recordings))


def text_of(result: dict[str, Any], joint: str = " ") -> str:
    return joint.join(sentence["text"] for sentence in result["sentences"])


def check_english(recordings: Sequence[Recording], results: Sequence[dict[str, Any]]) -> None:
    normal = EnglishTextNormalizer()
    said = [normal(recording.text) for recording in recordings]
    heard = [normal(text_of(result)) for result in results]
    rate = jiwer.wer(said, heard)
    print(f"word error rate {100 * rate:.1f} % over {sum(len(text.split()) for text in said)} words")
    assert rate <= 0.05, list(zip(said, heard, strict=True))


def check_mandarin(recordings: Sequence[Recording], results: Sequence[dict[str, Any]]) -> None:
    normal = BasicTextNormalizer()

    def bare(text: str) -> str:
        return normal(text.translate(DIGITS)).replace(" ", "")

    said = [bare(recording.text) for recording in recordings]
    heard = [bare(text_of(result, "")) for result in results]
    rate = jiwer.cer(said, heard)
    print(f"character error rate {100 * rate:.1f} % over {sum(map(len, said))} characters")
    assert rate <= 0.40, list(zip(said, heard, strict=True))


def audio_of(path: Path) -> Samples:
    """The samples as the client sends them."""
    client = load_client()
    pcm = b"".join(client.cut_frames(client.decode(path)))
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


async def check_offline(recordings: Sequence[Recording], results: Sequence[dict[str, Any]], language: str | None) -> None:
    """Decode the locked segments again, alone and at leisure: every word must be the same."""
    engine = EmbeddedEngine(weights.find("whisper-base"), workers=1)
    try:
        for recording, result in zip(recordings, results, strict=True):
            audio = audio_of(recording.path)
            for sentence in result["sentences"]:
                start, end = sentence["start"] * SAMPLES_PER_MS, sentence["end"] * SAMPLES_PER_MS
                decoded = await engine.transcribe(DecodeJob(
                    id=0, session="", epoch=1, channel=0, kind="final", priority=Priority.FILE, segment=0,
                    start=start, end=end, audio=audio[start:end], prefix_text="",
                    options=DecodingOptions(language=language),
                ))  # fmt: skip
                seconds = (end - start) / SAMPLE_RATE
                assert clean(decoded.text, seconds=seconds, finish=decoded.finish).text == sentence["text"]
    finally:
        await engine.aclose()


async def test_fetched_english(server: LiveServer) -> None:
    recordings = fetched("en")
    results = stream(server, recordings, "auto")
    check_english(recordings, results)
    await check_offline(recordings, results, None)


async def test_fetched_mandarin(server: LiveServer) -> None:
    recordings = fetched("zh")
    results = stream(server, recordings, "zh")
    check_mandarin(recordings, results)
    await check_offline(recordings, results, "zh")


async def test_shared_english(server: LiveServer, shared_data: Path) -> None:
    recordings = shared(shared_data, "en/jfk", "en/realtimestt", "en/librispeech")
    assert len(recordings) == 6
    results = stream(server, recordings, "auto")
    check_english(recordings, results)
    await check_offline(recordings, results, None)


async def test_shared_mandarin(server: LiveServer, shared_data: Path) -> None:
    # The lecture has no transcript, only segments.
    recordings = shared(shared_data, "zh/", leave_out=("zh/funasr-vad_example.wav",))
    assert len(recordings) == 9
    results = stream(server, recordings, "zh")
    check_mandarin(recordings, results)
    await check_offline(recordings, results, "zh")

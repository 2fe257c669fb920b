"""A call of two clips, one on each track, which cross: each channel has its own words, by the real recognizer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
from whisper_normalizer.english import EnglishTextNormalizer

from benchmarks.recordings import Recording, fetched, shared
from realtime_server.demo import load_client
from tests.clients.tap import CLIENT
from tests.conftest import SHARED
from tests.live_server import LiveServer

pytest.importorskip("fastapi")
pytest.importorskip("soxr")

pytestmark = pytest.mark.embedded

RATE = 16_000
LATER_S = 1.0  # the other side begins while the caller speaks
WORDS = EnglishTextNormalizer()


def samples_of(recording: Recording) -> Any:
    client = load_client()
    return np.frombuffer(b"".join(client.cut_frames(client.decode(recording.path))), "<i2")


def write_call(path: Path, caller: Any, other: Any) -> Path:
    length = max(len(caller), len(other) + round(LATER_S * RATE)) + RATE
    call = np.zeros((length, 2), np.int16)
    call[: len(caller), 0] = caller
    start = round(LATER_S * RATE)
    call[start : start + len(other), 1] = other
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(call.astype("<i2").tobytes())
    return path


def pair_of(kind: str) -> list[Recording]:
    """The caller's words and the other side's."""
    if kind == "fetched":
        clips = {recording.path.stem: recording for recording in fetched("en")}
        return [clips["quick_brown_fox"], clips["hello_world"]]
    if not (SHARED / "MANIFEST.tsv").is_file():
        pytest.skip("the shared recordings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    return shared(SHARED, "en/ps-austen-0870", "en/ps-austen-0890")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer("--engine", "embedded", "--http-port", "0") as server:
        yield server


@pytest.mark.parametrize("kind", ["fetched", "shared"])
def test_each_channel_has_its_own_words_where_both_speak(
    kind: str, server: LiveServer, tmp_path: Path
) -> None:
    pair = pair_of(kind)
    found = re.search(r"recordings are taken at http(://[^/]+)/", server.log)
    assert found
    path = write_call(tmp_path / "call.wav", *map(samples_of, pair))
    command = [sys.executable, str(CLIENT), "--server", f"ws{found[1]}", "--file", str(path), "--pace", "0"]
    done = subprocess.run(
        [*command, "--language", "en", "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    sentences = [message for message in map(json.loads, done.stdout.splitlines()) if "text" in message]
    assert len(pair) == 2
    spans = [[(s["start_ms"], s["end_ms"]) for s in sentences if s["channel"] == n] for n in (0, 1)]
    assert spans[1][0][0] < spans[0][-1][1], "they do not cross"
    for channel, recording in enumerate(pair):
        heard = " ".join(s["text"] for s in sentences if s["channel"] == channel)
        rate = jiwer.wer(WORDS(recording.text), WORDS(heard))
        print(f"{kind}, channel {channel}: word error rate {100 * rate:.1f} %: {heard}")
        assert rate <= 0.15, heard

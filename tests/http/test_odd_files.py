"""Files that are odd, broken or made to break decoders: a text or a clean refusal, soon, and the server lives on."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.http.process import TALK_WAV, TEXT, FilesServer
from tests.offline.recordings import mp4_index_bomb, silent_flac

WITHIN_S = 2.0
# Those that brought decoders down elsewhere, and what is said of them here.
REFUSED = {
    "ps-awful.wav": "undecodable",  # a header of random bytes: 1 092 676 Hz
    "ps-evil.wav": "undecodable",  # lengths that lead nowhere
    "ps-bad.wav": "undecodable",  # a header that ends too early
    "ps-null.wav": "empty",  # a header of nothing
    "funasr-tmp-46bytes.wav": "empty",
    "azure-missing_wav_header.wav": "undecodable",  # samples that pretend to be a WAV file
    "scipy-test-44100Hz-le-1ch-4bytes-incomplete-chunk.wav": "undecodable",
    "scipy-test-44100Hz-le-1ch-4bytes-early-eof-no-data.wav": "undecodable",
}
TAKEN = ("ina-0021.mp3", "lhotse-big_buck_bunny_small.mp4", "scipy-test-44100Hz-le-1ch-4bytes-early-eof.wav")


def test_odd_files(files: FilesServer, shared_data: Path) -> None:
    seen = {}
    for path in sorted((shared_data / "odd").iterdir()):
        begun_s = time.monotonic()
        answer = files.post("/asr", path.read_bytes())
        took_s = time.monotonic() - begun_s
        assert answer.status_code in (200, 400), (path.name, answer.text)
        assert took_s < WITHIN_S, path.name
        seen[path.name] = answer.json().get("error", {}).get("code")
    assert len(seen) > 30
    assert {name: seen[name] for name in REFUSED} == REFUSED
    assert {seen[name] for name in TAKEN} == {None}
    assert files.post("/asr").json()["text"] == TEXT


def test_a_header_that_claims_222_s(files: FilesServer) -> None:
    at = TALK_WAV.index(b"data") + 4
    claims = TALK_WAV[:at] + struct.pack("<I", 222 * 32_000) + TALK_WAV[at + 4 :]
    begun_s = time.monotonic()
    answer = files.post("/asr", claims)
    assert (answer.status_code, answer.json()["text"], answer.json()["duration"]) == (200, TEXT, 8.0)
    assert time.monotonic() - begun_s < WITHIN_S


@pytest.mark.parametrize(
    ("make", "status", "code"),
    [
        (lambda: mp4_index_bomb(100_000_000), 400, "empty"),  # 4.5 kB for which gigabytes are asked
        (lambda: silent_flac(8.0, 48_000), 413, "too_long"),  # hours in little
        (lambda: b"#EXTM3U\nhttp://127.0.0.1:1/a.ts\n", 400, "undecodable"),  # a list that names an address
        (lambda: b"ffconcat version 1.0\nfile /etc/passwd\n", 400, "undecodable"),  # one that names a file
    ],
    ids=["memory bomb", "hours of silence", "playlist", "concat"],
)
def test_files_that_were_made_to_harm(
    files: FilesServer, make: Callable[[], bytes], status: int, code: str
) -> None:
    data = make()
    begun_s = time.monotonic()
    answer = files.post("/asr", data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert time.monotonic() - begun_s < 5 * WITHIN_S
    assert "Traceback" not in files.log
    assert files.post("/asr", TALK_WAV).json()["text"] == TEXT

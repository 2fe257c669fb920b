"""The call client, run as users run it, against a server of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from realtime_server.core.audio import SampleReader
from realtime_server.core.jobs import Samples
from realtime_server.core.setup import AudioFormat
from tests.audio import pcm16, silence, tone
from tests.clients.tap import CLIENT, load_tap

pytest.importorskip("fastapi")
pytest.importorskip("soxr")

from tests.http.process import FilesServer

CALLER = np.concatenate([tone(1.0), silence(2.0)])
OTHER = np.concatenate([silence(1.0), tone(1.0), silence(1.0)])


@pytest.fixture(scope="module")
def server() -> Iterator[FilesServer]:
    with FilesServer("--endpointing", "fixed:500") as server:
        yield server


def write_wav(path: Path, *channels: Samples, rate: int = 16_000, width: int = 2) -> Path:
    rows = np.stack([np.frombuffer(pcm16(samples), "<i2") for samples in channels], axis=1)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(rows.tobytes())
    return path


def run(server: FilesServer, path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    address = server.files_url.replace("http", "ws")
    command = [sys.executable, str(CLIENT), "--server", address, "--file", str(path), "--pace", "0", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_mulaw_is_what_the_server_reads() -> None:
    samples = np.arange(-32768, 32768, 7)
    coded = load_tap().encode_mulaw(samples)
    read = SampleReader(AudioFormat("mulaw", 8000, 1)).receive_bytes(coded)[0] * 32768
    assert np.all(
        np.abs(read - samples) <= np.abs(samples) / 32 + 4
    )  # half a step of its 16 for each power of two
    assert load_tap().encode_mulaw(np.zeros(2, np.int16)) == b"\xff\xff"
    again = SampleReader(AudioFormat("mulaw", 8000, 1)).receive_bytes(
        load_tap().encode_mulaw(np.rint(read).astype(np.int32))
    )
    assert np.array_equal(again[0] * 32768, read)


def test_a_stereo_call_is_printed_by_tracks(server: FilesServer, tmp_path: Path) -> None:
    done = run(server, write_wav(tmp_path / "call.wav", CALLER, OTHER), "--watch", "--parameter", "desk=7")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(" ", 1) for line in sorted(done.stdout.splitlines())]
    assert [said for _, said in lines] == ["inbound] one two", "outbound] three four"]
    assert [abs(float(at[1:]) - 0.7 * number) < 0.2 for number, (at, _) in enumerate(lines)] == [True, True]


def test_a_mono_call_at_8_khz_as_messages(server: FilesServer, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "call.wav", CALLER[::2], rate=8_000)
    done = run(server, path, "--json", "--session", "desk-7", "--language", "en")
    messages: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert messages[0]["settings"]["language"] == "en"
    assert messages[0]["settings"]["channels"] == 1
    assert [message["text"] for message in messages if message["type"] == "sentence"] == ["one two"]
    assert run(server, path).stdout == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--session", "a/b"), 1, "name has 1 to 64"),
        (("--pace", "-1"), 2, "--pace"),
        (("--parameter", "a"), 2, "NAME=VALUE"),
        (("--server", "http://localhost"), 2, "--server"),
        (("--server", "ws://127.0.0.1:9"), 1, "start it with: make run ARGS='--http-port 8899'"),
        (("--file", "/nowhere.wav"), 2, "/nowhere.wav: No such file"),
    ],
)
def test_what_cannot_be(
    server: FilesServer, tmp_path: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    done = run(server, write_wav(tmp_path / "call.wav", CALLER), *words)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


async def test_a_viewer_that_is_refused_does_not_wait_for_a_session_of_any_name() -> None:
    asked = list[str]()

    def refuse(connection: ServerConnection, request: Request) -> Response:
        asked.append(request.path)
        return connection.respond(HTTPStatus.FORBIDDEN, "no")

    async def handle(connection: ServerConnection) -> None:
        """Never reached."""

    tap = load_tap()
    async with serve(handle, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        options = tap.Options(Path(), f"ws://127.0.0.1:{port}", 0, None, {}, True, False, None)
        with pytest.raises(Exception, match="desk404 refuses: not allowed"):
            await anext(tap.view(options, "desk404"))
    assert asked == ["/sessions/desk404"]


def test_a_file_of_another_kind_is_refused(server: FilesServer, tmp_path: Path) -> None:
    done = run(server, write_wav(tmp_path / "call.wav", CALLER, width=1))
    assert (done.returncode, "16 bits" in done.stderr) == (2, True)
    (tmp_path / "call.txt").write_text("hello")
    assert run(server, tmp_path / "call.txt").returncode == 2

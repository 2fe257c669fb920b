"""The server's beginning and end, its address, and what is not imported without it."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from realtime_server import cli, config, flags
from realtime_server.cli import main
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.errors import ConfigurationError
from realtime_server.http.options import HttpOptions
from realtime_server.http.serving import listen
from realtime_server.offline.audio_source import AudioLimits
from realtime_server.offline.calls import Deadlines
from tests.http.harness import serving
from tests.http.process import FAKE, FIVE_MINUTES, TALK_WAV, TEXT, FilesServer
from tests.realtime.harness import eventually

# --- the end ----------------------------------------------------------------------------------------------


async def test_the_end_waits_for_what_runs_and_refuses_what_comes() -> None:
    engine = FakeEngine(decode_s=0.3)
    async with serving(engine) as files:
        # A connection that is open already: new ones are no more accepted once the last request has ended.
        await files.http.get("/health")
        running = files.posting()
        streaming = files.posting("/v1/audio/transcriptions", stream="true")
        await eventually(lambda: files.service.running == 2)
        stopping = asyncio.create_task(files.stop())
        await eventually(lambda: files.service.draining)
        refused = await files.post()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
        assert refused.headers["retry-after"] == "5"
        assert (await running).json()["text"] == TEXT
        assert "transcript.text.done" in (await streaming).text
        await stopping


@pytest.mark.parametrize("stream", [False, True])
async def test_the_end_does_not_wait_for_ever(stream: bool) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with serving(engine, options=HttpOptions(shutdown_s=0.1)) as files:
        running = files.posting("/v1/audio/transcriptions", stream=str(stream).lower())
        await eventually(lambda: engine.running)
        await files.stop()
        answer = await running
        assert answer.status_code == (200 if stream else 503)
        assert "the server is stopping" in answer.text
        assert engine.cancelled


async def test_the_end_does_not_wait_for_an_upload() -> None:
    async with serving(options=HttpOptions(shutdown_s=0.1)) as files:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        head = "POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        writer.write(f"{head}Content-Length: 5000\r\n\r\n--x\r\n".encode())
        await eventually(lambda: files.service.running == 1)
        await files.stop()
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
        writer.close()


def test_sigterm_while_recordings_are_transcribed() -> None:
    with FilesServer("--fake-decode-ms", "20") as server, ThreadPoolExecutor(2) as pool:
        work = [pool.submit(server.post, "/asr", FIVE_MINUTES) for _ in range(2)]
        while httpx2.get(f"{server.files_url}/health").json()["files"] < 2:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        assert [task.result().status_code for task in work] == [200, 200]
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.log


def test_sigterm_with_too_little_time() -> None:
    with FilesServer("--fake-decode-ms", "100000", "--shutdown-seconds", "0.2") as server:
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(server.post, "/asr", TALK_WAV)
            while httpx2.get(f"{server.files_url}/health").json()["files"] < 1:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            assert work.result().status_code == 503
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.log


# --- the beginning ----------------------------------------------------------------------------------------


def test_without_the_flag_nothing_of_it_is_imported() -> None:
    code = """
import argparse, sys
from realtime_server import cli, config, flags
parser = argparse.ArgumentParser(); flags.add_arguments(parser)
config.read_arguments(parser.parse_args([]))
heavy = {"fastapi", "starlette", "uvicorn", "pydantic", "av", "soundfile", "soxr"}
print(sorted(heavy & set(sys.modules)), sorted(name for name in sys.modules if "realtime_server.http." in name))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] ['realtime_server.http.options']\n"


@pytest.mark.parametrize(
    ("missing", "extra"), [("fastapi", "http"), ("uvicorn", "http"), ("python_multipart", "http"), ("av", "files")]
)  # fmt: skip
def test_a_package_that_is_missing(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == missing else True)
    assert main(["serve", *FAKE, "--port", "0", "--http-port", "0"]) == 2
    error = capsys.readouterr().err
    assert f"--http-port: the package '{missing}' is not installed; run: " in error
    assert f"[{extra}]" in error


def test_no_folder_for_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert main(["serve", *FAKE, "--port", "0", "--http-port", "0"]) == 2
    assert "set TMPDIR to a folder with room" in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", *FAKE, "--port", "0", "--http-port", str(port)]) == 2
        words = (
            f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --http-port or --host"
        )
        assert capsys.readouterr().err == f"realtime-server: {words}\n"
        with pytest.raises(ConfigurationError, match=re.escape(words)):
            listen("127.0.0.1", port)


def test_both_ports_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *FAKE, "--port", "8899", "--http-port", "8899"]) == 2
    assert "--http-port 8899: --port has it already" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "", "::1"])
def test_addresses(host: str) -> None:
    sockets = listen(host, 0)
    try:
        assert len({opened.getsockname()[1] for opened in sockets}) == 1
        assert all(opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for opened in sockets)
    finally:
        for opened in sockets:
            opened.close()


@pytest.mark.parametrize(
    ("host", "why"), [("192.0.2.1", "[A-Z][a-z ]+"), ("a..b", "that is no name of a host")]
)
def test_an_address_that_is_not_of_this_machine(host: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^cannot listen on {host}:0: {why}; choose another"):
        listen(host, 0)


# --- flags and the environment ----------------------------------------------------------------------------


def test_limits_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALTIME_SERVER_MAX_FILE_SECONDS", "3")
    monkeypatch.setenv("REALTIME_SERVER_HTTP_PORT", "0")
    monkeypatch.setenv("REALTIME_SERVER_MAX_FILES", "5")
    server = FilesServer()
    with server:
        assert server.post("/asr").status_code == 413
        with server.http() as client:
            assert client.get("/health").json()["max_files"] == 5


def test_an_environment_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REALTIME_SERVER_MAX_FILE_BYTES", "much")
    with pytest.raises(SystemExit):
        main(["serve", *FAKE])
    words = (
        "--max-file-bytes: expected a whole number above zero, not much (from REALTIME_SERVER_MAX_FILE_BYTES)"
    )
    assert words in capsys.readouterr().err
    monkeypatch.setenv("REALTIME_SERVER_MAX_FILE_BYTES", "")
    with pytest.raises(SystemExit):
        main(["serve", "--max-file-seconds", "0"])
    assert "argument --max-file-seconds: expected" in capsys.readouterr().err


def test_flags_become_options() -> None:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)

    def read(*words: str) -> HttpOptions | None:
        return config.read_arguments(parser.parse_args(words)).http

    assert read() is None
    assert read("--http-port", "8899") == HttpOptions()
    words = (
        "--http-port=0",
        "--max-files=3",
        "--max-file-bytes=4",
        "--max-file-seconds=5",
        "--file-workers=6",
    )
    found = read(*words, "--deadline-seconds=7", "--shutdown-seconds=8", "--host=localhost")
    assert found == HttpOptions(
        host="localhost", port=0, max_files=3, shutdown_s=8.0, deadlines=Deadlines(base_s=7.0),
        limits=AudioLimits(file_bytes=4, duration_s=5.0, processes=6),
    )  # fmt: skip


def test_odd_options() -> None:
    with pytest.raises(ConfigurationError, match="max_files must be above zero"):
        HttpOptions(max_files=0)
    with pytest.raises(ConfigurationError, match="port must be"):
        HttpOptions(port=70_000)


def test_the_help_names_the_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name in ("HTTP_PORT", "MAX_FILES", "MAX_FILE_BYTES", "MAX_FILE_SECONDS", "FILE_WORKERS"):
        assert f"REALTIME_SERVER_{name}" in text

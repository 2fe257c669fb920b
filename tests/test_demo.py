"""`realtime-server demo`, whole with the fake engine, and its parts."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile

from realtime_server import demo, weights
from realtime_server.cli import main
from realtime_server.engines.loading import ENGINES
from realtime_server.errors import ConfigurationError, RealtimeServerError

DEMO = (sys.executable, "-m", "realtime_server", "demo")


def write_tone(path: Path, seconds: float) -> Path:
    samples = 8000 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * 16_000)) / 16_000)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return path


def port_in(output: str) -> int:
    found = re.search(r"on port (\d+)", output)
    assert found
    return int(found[1])


def is_running(port: int) -> bool:
    """Tell whether a server was left behind, be it still loading (seen in /proc) or listening."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # that process has just ended
            if f"--vad level --host 127.0.0.1 --port {port}" in file.read_text().replace("\0", " "):
                return True
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- the whole demo ---------------------------------------------------------------------------------------


def test_every_step_is_told_and_the_server_is_gone_afterwards(tmp_path: Path) -> None:
    tone = write_tone(tmp_path / "tone.wav", 2)
    done = subprocess.run(
        [*DEMO, "--engine", "fake", "--file", tone, "--pace", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for step in ("1/4 ", "2/4 ", "3/4 ", "4/4 ", "The whole transcript:\n\none two three"):
        assert step in done.stdout
    assert not is_running(port_in(done.stdout))
    suggested = done.stdout.splitlines()[-1].strip()
    assert suggested.endswith("serve --engine fake --vad level")
    helped = subprocess.run(f"{suggested} --help", shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert helped.returncode == 0


def test_a_recording_without_speech_is_no_success(tmp_path: Path) -> None:
    silence = tmp_path / "silence.wav"
    soundfile.write(silence, np.zeros(16_000, np.int16), 16_000)
    done = subprocess.run(
        [*DEMO, "--engine", "fake", "--file", silence, "--pace", "0"], capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == b"no speech was heard\n"


def test_a_file_that_is_no_audio_ends_both_processes() -> None:
    done = subprocess.run(
        [*DEMO, "--engine", "fake", "--file", __file__], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "as audio" in done.stderr
    assert not is_running(port_in(done.stdout))


@pytest.mark.parametrize(
    ("step", "code"), [("2/4", 130), ("...", 0)], ids=["while the server starts", "while streaming"]
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_ends_both_processes(
    tmp_path: Path, step: str, code: int, number: signal.Signals
) -> None:
    tone = write_tone(tmp_path / "tone.wav", 60)
    process = await asyncio.create_subprocess_exec(
        *DEMO, "--engine", "fake", "--file", str(tone), stdout=-1, stderr=-1
    )
    assert process.stdout is not None
    output = ""
    async with asyncio.timeout(60):
        while step not in output:
            output += (await process.stdout.readline()).decode()
        process.send_signal(number)
        rest, _ = await process.communicate()
    output += rest.decode()
    assert process.returncode == code
    assert ("The whole transcript:\n\none" in output) == (code == 0)
    assert not is_running(port_in(output))


def child_of(pid: int) -> int:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # that process has just ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                return int(stat.parent.name)
    raise AssertionError


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the server in /proc")
async def test_a_server_that_dies_while_streaming_is_told(tmp_path: Path) -> None:
    tone = write_tone(tmp_path / "tone.wav", 60)
    process = await asyncio.create_subprocess_exec(
        *DEMO, "--engine", "fake", "--file", str(tone), stdout=-1, stderr=-1
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while b"..." not in await process.stdout.readline():
            pass
        os.kill(child_of(process.pid), signal.SIGKILL)
        _, err = await process.communicate()
    assert process.returncode == 1
    assert b"the connection was lost" in err
    assert b"the server ended with code -9. It said:" in err


@pytest.mark.embedded
def test_the_first_words_of_the_recording_are_recognized(tmp_path: Path) -> None:
    with soundfile.SoundFile(weights.find("recordings") / demo.RECORDING) as whole:
        soundfile.write(tmp_path / "cut.wav", whole.read(int(6.3 * whole.samplerate)), whole.samplerate)
    done = subprocess.run(
        [*DEMO, "--file", tmp_path / "cut.wav"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    heard = done.stdout.partition("The whole transcript:")[2].partition("\n\n")[2].partition("\n\n")[0]
    said = "It was the best of times, it was the worst of times, it was the age of wisdom."
    assert demo.count_errors(said, heard) == 0


# --- its parts --------------------------------------------------------------------------------------------


def test_defaults() -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    assert vars(parser.parse_args([])) == {"file": None, "port": 0, "engine": "embedded", "pace": 1.0}


def test_the_client_is_found() -> None:
    assert demo.load_client().Options().server == "ws://localhost:10095"


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--engine", "nonsense", "invalid choice: 'nonsense' (choose from "),
        ("--pace", "-3", "expected a number from 0 to 1000, not -3"),
        ("--pace", "nan", "expected a number from 0 to 1000, not nan"),
        ("--port", "70000", "expected a whole number from 0 to 65535, not 70000"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    flag: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", flag, value])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: argument {flag}: {words}" in err


def test_help_names_the_recognizers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    out = capsys.readouterr().out
    assert [engine for engine in ENGINES if engine not in out] == []


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["demo", "--port", str(port)]) == 2
    words = "Address already in use; choose another --port"
    assert capsys.readouterr() == ("", f"realtime-server: cannot listen on 127.0.0.1:{port}: {words}\n")


def test_a_missing_file_is_told_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        demo.run(argparse.Namespace(file=Path("nowhere.wav"), port=0, engine="fake", pace=1.0))


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("It was the best.", "it was the BEST", 0),
        ("it was the best", "it was best", 1),
        ("it was the best", "it was not the best", 1),
        ("it was the best", "it is the rest", 2),
        ("it was", "", 2),
        ("", "it was", 2),
        ("don't", "dont", 1),
    ],
)
def test_word_errors(said: str, heard: str, errors: int) -> None:
    assert demo.count_errors(said, heard) == errors


def test_the_known_text_is_the_opening_of_the_novel() -> None:
    words = demo.words_of(demo.TEXT)
    assert (len(words), words[:6], words[-1]) == (119, ["it", "was", "the", "best", "of", "times"], "only")


class Health(BaseHTTPRequestHandler):
    """Answers in turn what it is told to."""

    answers: Iterator[int]

    def do_GET(self) -> None:
        self.send_response(next(type(self).answers) if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_the_server_is_waited_for_until_it_is_healthy() -> None:
    Health.answers = iter([503, 200])
    with (
        HTTPServer(("127.0.0.1", 0), Health) as server,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
    ):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        demo._wait_until_ready(process, server.server_port, io.StringIO())
        server.shutdown()
        thread.join()
        process.communicate(b"\n")
    assert next(Health.answers, None) is None


def test_a_server_that_dies_is_quoted() -> None:
    words = r"ended with code 2. It said:\nno such model"
    died = subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"])
    with died as process, pytest.raises(RealtimeServerError, match=words):
        demo._wait_until_ready(process, 1, io.StringIO("no such model"))


def test_a_server_that_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "READY_S", 0.0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(RealtimeServerError, match=r"not ready in time. It said:\nloading"):
            demo._wait_until_ready(process, 1, io.StringIO("loading"))
        process.communicate(b"\n")

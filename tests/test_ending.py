"""The end: parts that do not close, threads that hang, signals that come early."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from realtime_server import ending
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer
from tests.audio import tone
from tests.http.process import wav

PATIENCE_S = 60.0


class Unclosable(FakeEngine):
    """An engine whose close fails."""

    async def aclose(self) -> None:
        raise ValueError("a bug")


class Hanging(FakeEngine):
    """An engine whose close waits until it is released, in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.release.wait)


async def test_what_cannot_be_closed_is_logged_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scorer, embedder = FakeScorer(), FakeEmbedder()
    assert await ending.close_all({"recognizer": Unclosable(), "scorer": scorer, "embedder": embedder})
    assert "recognizer: could not be closed" in caplog.text
    assert "a bug" in caplog.text
    for part in (scorer, embedder):
        assert part._closed.is_set()


async def test_what_hangs_is_named_after_a_while_and_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ending, "CLOSE_S", 0.02)
    engine, scorer = Hanging(), FakeScorer()
    assert not await ending.close_all({"recognizer": engine, "scorer": scorer})
    assert scorer._closed.is_set()
    assert "after 0.02 s, for: recognizer" in caplog.text
    engine.release.set()


async def test_a_thread_that_nobody_waits_for_counts_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ending, "CLOSE_S", 0.02)
    release = threading.Event()
    thread = asyncio.create_task(asyncio.to_thread(release.wait))
    await asyncio.sleep(0)
    assert not await ending.close_all({"recognizer": FakeEngine()})
    assert "for: a thread" in caplog.text
    release.set()
    await thread


# --- signals before anybody listens -----------------------------------------------------------------------

# The command, told to stop while a module is imported (WHEN is its name) or its recognizer is loaded ("load").
EARLY = """
import os, signal, sys
number, when, *sys.argv[1:] = int(sys.argv[1]), *sys.argv[2:]
if signal.getsignal(number) is signal.SIG_IGN:  # as under nohup
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == when:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Finder())
from realtime_server.__main__ import main

def load(options):
    from realtime_server.engines.fake import FakeEngine
    os.kill(os.getpid(), number)
    return FakeEngine()

if when == "load":
    from realtime_server.engines.loading import ENGINES
    ENGINES["fake"] = load
sys.exit(main())
"""
SERVE = ("serve", "--engine", "fake", "--vad", "level", "--port", "0")
TRANSCRIBE = ("transcribe", "talk.wav", "--engine", "fake", "--vad", "level")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["realtime_server.cli", "realtime_server.engines.loading", "load"])
@pytest.mark.parametrize(("command", "codes"), [(SERVE, (0, 0)), (TRANSCRIBE, (143, 130))])
def test_a_signal_at_the_beginning_has_the_code_of_a_later_one(
    command: tuple[str, ...], codes: tuple[int, int], when: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "talk.wav").write_bytes(wav(tone(1.0)))
    told = run_early(number, when, *command, folder=tmp_path)
    assert told.returncode == codes[number == signal.SIGINT]
    assert "Traceback" not in told.stderr


def test_commands_that_listen_for_no_signal_end_as_programs_do(tmp_path: Path) -> None:
    told = run_early(signal.SIGTERM, "realtime_server.cli", "models", "list", folder=tmp_path)
    assert told.returncode == -signal.SIGTERM
    told = run_early(signal.SIGINT, "realtime_server.cli", "models", "list", folder=tmp_path)
    assert told.returncode == 130


def test_a_platform_that_cannot_hold_signals_back_runs_the_command(tmp_path: Path) -> None:
    program = "import signal; del signal.pthread_sigmask; from realtime_server.__main__ import main; main()"
    code = [sys.executable, "-c", program, "models", "list"]
    told = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no SIGHUP here")
@pytest.mark.parametrize("when", ["realtime_server.cli", "realtime_server.engines.loading", "load"])
def test_a_server_that_is_told_at_the_beginning_to_read_its_files_again_goes_on(
    when: str, tmp_path: Path
) -> None:
    command = early(signal.SIGHUP, when, *SERVE)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        log = ""
        for line in process.stderr:
            log += line
            if "ready: " in line:
                process.terminate()
        assert process.wait(PATIENCE_S) == 0, log
    assert log.count("there is nothing to read again") == 1


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no SIGHUP here")
@pytest.mark.parametrize("command", [TRANSCRIBE, ("models", "list")])
def test_commands_that_read_nothing_again_end_with_their_terminal(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "talk.wav").write_bytes(wav(tone(1.0)))
    told = run_early(signal.SIGHUP, "realtime_server.cli", *command, folder=tmp_path)
    assert told.returncode == -signal.SIGHUP


def run_early(number: int, when: str, *command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = early(number, when, *command)
    return subprocess.run(code, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def early(number: int, when: str, *command: str) -> list[str]:
    return [sys.executable, "-c", EARLY, str(int(number)), when, *command]


# --- recordings on the command line -----------------------------------------------------------------------

STUCK = """
import asyncio, sys, threading
from realtime_server import cli, ending
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.engines.loading import ENGINES

class Stuck(FakeEngine):
    async def aclose(self):
        await asyncio.to_thread(threading.Event().wait)

def load(options):
    engine = Stuck()
    if "fails" in sys.argv[1]:
        engine.faults.inject(Fault())
    if "dead" in sys.argv[1]:
        engine.die()
    return engine

ENGINES["fake"] = load
ending.CLOSE_S = 0.3
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [("well", 0, ""), ("fails", 1, "1 of 1 recordings failed"), ("dead", 1, "realtime-server: ")],
)
def test_a_recognizer_that_does_not_close_is_not_waited_for(
    how: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "talk.wav").write_bytes(wav(tone(1.0)))
    told = subprocess.run(
        [sys.executable, "-c", STUCK, how, *TRANSCRIBE],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert told.returncode == code, told.stderr
    assert told.stdout.strip() == ("one two" if how == "well" else "")
    assert "ending without waiting any longer, after 0.3 s, for: recognizer" in told.stderr
    assert said in told.stderr

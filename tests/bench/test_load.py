"""The command, small: a real server with the fake engine, short takes, no weights."""

from __future__ import annotations

import json
import wave
from collections.abc import Sequence
from pathlib import Path

import pytest

from realtime_server.bench import load
from realtime_server.bench.options import Load
from realtime_server.bench.speech import Recording
from realtime_server.cli import main
from realtime_server.errors import ConfigurationError
from tests.audio import pcm16, silence, speech_pattern
from tests.live_server import LiveServer

SERVE = ("--engine", "fake", "--vad", "level", "--endpointing", "fixed:300")
SHORT = ("--seconds", "4", "--stagger", "0.2", "--stop-every", "2.5", "--pause-ms", "450")
LAG, STOP = "text_lag_p95_ms", "stop_to_final_p95_ms"


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two utterances."""
    return write(tmp_path_factory.mktemp("audio") / "talk.wav", pcm16(speech_pattern([(1.5, 0.5)] * 2)))


def write(path: Path, pcm: bytes) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(pcm)
    return path


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, object]], str]:
    """The exit code, the lines of JSON, and the rest."""
    code = main(["bench", *words])
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if not line.startswith("{")]
    return code, [json.loads(line) for line in lines if line.startswith("{")], "\n".join(told)


def test_a_server_is_started_and_climbed(audio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SHORT, "--audio", str(audio), "--clients", "1,2")
    code, (one, two, held), told = bench(capsys, *words, "--", *SERVE)
    assert code == 0
    assert (one["clients"], two["clients"], held["clients_that_held"]) == (1, 2, 2)
    for step in (one, two):
        assert step["errors"] == 0
        assert step["takes_with_a_final_percent"] == 100
        assert 0 < float(str(step[LAG])) < 1000
        assert float(str(step["partials_per_client"])) >= 1
        assert 0 < float(str(step["first_partial_from_speech_onset_p50_ms"])) < 1500
        assert "client_cpu_of_a_core_percent" in step
    assert "1 client  2 clients  bound" in told
    assert "held: 2, the most that were tried" in told


def test_a_running_server_is_climbed_until_a_bound_is_missed(
    audio: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LiveServer(*SERVE, "--fake-decode-ms", "20") as server:
        words = (
            "--server",
            server.url,
            *SHORT,
            "--audio",
            str(audio),
            "--load",
            "call",
            "--max-stop-ms",
            "0",
        )
        code, found, told = bench(capsys, *words, "--seconds", "6")
    assert code == 1
    assert [line.get("clients") for line in found] == [1, None]
    assert "held: none; not 1: STOP to final, p95" in told
    assert told.splitlines()[-1].startswith(
        ("missed: load: clients that held: 0, at least 1", "other processes")
    )


def test_without_a_pace_it_is_told_how_much_is_recognized(
    audio: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--pace", "0", *SHORT, "--audio", str(audio), str(audio), "--clients", "2")
    code, (step, _), _ = bench(capsys, *words, "--", *SERVE)
    assert code == 0
    assert float(str(step["audio_recognized_s_per_s"])) > 1
    assert LAG not in step


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--server", "ws://localhost:1", "--", "--engine", "fake"), "cannot be given flags"),
        (("--server", "localhost"), "no address"),
        (("--clients", "1,2", "--at-least", "4"), "so many clients are not tried"),
        (("--seconds", "1"), "--stagger"),
        (("--audio", "nowhere.wav"), "nowhere.wav"),
    ],
)
def test_what_cannot_be_is_refused(
    words: Sequence[str], said: str, audio: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--audio", str(audio), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_recording_without_speech_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "quiet.wav", pcm16(silence(1.0)))
    assert main(["bench", "--audio", str(path)]) == 2
    assert "no speech is heard in" in capsys.readouterr().err


def test_clients_beyond_the_utterances_say_what_others_say() -> None:
    recording = Recording(speech_pattern([(1.0, 0.5)] * 2), ((0, 1000), (1500, 2500)))
    takes = load.takes_of(Load(seconds=6, stop_every_s=2), recording, 5)
    assert len(takes) == 5
    assert takes[0] is takes[2] is takes[4]
    assert takes[0] is not takes[1]


def test_clients_that_would_say_nothing_are_refused() -> None:
    recording = Recording(speech_pattern([(1.0, 0.5)]), ((0, 1000),))
    with pytest.raises(ConfigurationError, match="say nothing"):
        load.takes_of(Load(seconds=0.5, stagger_s=0), recording, 1)

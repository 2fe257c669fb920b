"""A small run with the fake engine, and what is refused."""

from __future__ import annotations

import json

import pytest

from benchmarks import memory
from benchmarks.__main__ import run_one
from benchmarks.posting import files_host, form_of
from realtime_server.bench.serving import ServerError, served

pytestmark = pytest.mark.embedded  # the recordings, and FSMN-VAD


def test_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_one("memory", memory, "--hours 0.02 --speakers off".split()) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["segments_without_speakers"] > 3
    assert told["server_most_mb_without_speakers"] >= told["server_before_mb_without_speakers"] > 50
    assert told["its_decoder_most_mb_without_speakers"] > 10
    assert "speakers_with_speakers" not in told


def test_what_the_server_refuses_is_no_figure() -> None:
    with (
        served(["--engine", "fake", "--vad", "level", "--http-port", "0"]) as server,
        pytest.raises(ServerError, match="the recording was refused: 400"),
    ):
        memory._post(files_host(server), form_of(b"this is no recording"))
    with served(["--engine", "fake", "--vad", "level"]) as server, pytest.raises(ServerError, match="no rec"):
        files_host(server)

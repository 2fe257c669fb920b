"""What docs/calls.md shows is true: its program runs, its parameters and flags exist."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import connect

from realtime_server import flags
from realtime_server.core.call_messages import CallStarted
from realtime_server.core.call_start import PARAMETERS, name_of, start_command
from realtime_server.core.jobs import Samples
from realtime_server.core.setup import StartRequest
from realtime_server.core.start_request import read_start
from tests.audio import pcm16, silence, tone
from tests.live_server import LiveServer

pytestmark = pytest.mark.skipif(not find_spec("soxr"), reason="8 kHz needs soxr")

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "calls.md").read_text(encoding="utf-8")
CALLER = np.concatenate([tone(1.0), silence(2.0)])[::2]
OTHER = np.concatenate([silence(1.0), tone(1.0), silence(1.0)])[::2]
BOTH = np.stack([CALLER, OTHER], axis=1).reshape(-1)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer("--engine", "fake", "--vad", "level", "--endpointing", "fixed:500") as server:
        yield server


@pytest.mark.parametrize(
    ("audio", "encoding", "channels", "said"),
    [
        (CALLER, "pcm_s16le", 1, ["0 one two"]),
        (CALLER, "mulaw", 1, ["0 one two"]),
        (BOTH, "mulaw", 2, ["0 one two", "1 three four"]),
    ],
)
def test_its_program_runs(
    server: LiveServer, tmp_path: Path, audio: Samples, encoding: str, channels: int, said: list[str]
) -> None:
    from tests.clients.tap import load_tap

    (program,) = blocks("python")
    (tmp_path / "call_raw.py").write_text(program)
    data = pcm16(audio)
    if encoding == "mulaw":
        data = load_tap().encode_mulaw(np.frombuffer(data, "<i2"))
    command = [sys.executable, str(tmp_path / "call_raw.py"), server.url, "0", encoding, str(channels)]
    run = subprocess.run(command, input=data, capture_output=True, timeout=60, check=True)
    assert sorted(run.stderr.decode().splitlines()) == said
    assert run.stdout == b""


def test_metadata_before_stereo_audio_is_a_start(server: LiveServer) -> None:
    (line,) = [line for block in blocks("text") for line in block.splitlines()]
    start = shlex.split(line)[-1]
    with connect(server.url) as socket:
        socket.send(start)
        socket.send(pcm16(BOTH))
        socket.send("STOP")
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1]["type"] != "stopped":
            messages.append(json.loads(socket.recv(20)))
    assert {(m["channel"], m["text"]) for m in messages if m["type"] == "sentence"} == {
        (0, "one two"),
        (1, "three four"),
    }


def test_its_twiml_begins_a_call() -> None:
    (text,) = blocks("xml")
    stream = ET.fromstring(text).find("Start/Stream")
    assert stream is not None
    assert stream.attrib["url"].endswith("/twilio")
    parameters = {each.attrib["name"]: each.attrib["value"] for each in stream}
    assert set(parameters) <= {"token", "session", *PARAMETERS}
    call = CallStarted("MZ", "CA", ("inbound", "outbound"), parameters)
    assert name_of(call) == "desk-7"
    assert isinstance(read_start(start_command(call).removeprefix("START ")), StartRequest)
    (table,) = re.findall(r"\| parameter \| meaning \|\n(.*?)\n\n", PAGE, re.DOTALL)
    named = {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {"token", "session", *PARAMETERS}


def test_its_flags_exist() -> None:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    (command,) = [block for block in blocks("bash") if block.startswith("realtime-server serve")]
    parser.parse_args(shlex.split(command)[2:])
    known = {flag for action in parser._actions for flag in action.option_strings}
    assert set(re.findall(r"`(--[a-z-]+)`", PAGE)) <= known
    example = json.loads(blocks("json")[0])
    assert {"type", "session", "seq", "text", "call"} <= set(example)

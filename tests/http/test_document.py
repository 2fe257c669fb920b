"""What docs/http.md says is true: its examples run, its tables are complete."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from realtime_server.http.asr import FIELDS
from realtime_server.http.openai_api import ALIASES, FORMATS, TRANSCRIPTIONS, TRANSLATIONS
from realtime_server.http.options import HttpOptions
from tests.http.process import TALK_WAV, TEXTS, FilesServer

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
PYTHON, SHELL, ANSWERS = (
    re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for kind in ("python", "sh", "json")
)
COMMANDS = [command for block in SHELL for command in re.split(r"(?<!\\)\n", block.strip())]


@pytest.fixture
def here(files: FilesServer, tmp_path: Path) -> Path:
    (tmp_path / "talk.wav").write_bytes(TALK_WAV)
    return tmp_path


def local(text: str, files: FilesServer) -> str:
    address = files.files_url.removeprefix("http://")
    assert "localhost:8899" in text
    return text.replace("localhost:8899", address)


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_its_programs_run(number: int, files: FilesServer, here: Path) -> None:
    code = local(PYTHON[number], files)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=60, check=True
    )
    assert "one two" in ran.stdout
    assert "eight" in ran.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command: str, files: FilesServer, here: Path) -> None:
    ran = subprocess.run(
        ["sh", "-ec", local(command, files)], cwd=here, capture_output=True, text=True, timeout=60, check=True
    )
    assert "error" not in ran.stdout
    assert "/models" in command or all(text in ran.stdout for text in TEXTS)


def test_its_answers_have_the_shape_of_real_ones(files: FilesServer) -> None:
    verbose, asr, error = map(json.loads, ANSWERS)
    path = "/v1/audio/transcriptions"
    assert shape(files.post(path, response_format="verbose_json").json()) == shape(verbose)
    assert shape(files.post("/asr", spk="true").json()) == shape(asr)
    assert files.post(path, model="whisper-9").json() == error


def shape(value: object) -> object:
    """The value with types in place of what is not a container, and lists by their first element."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value)


def test_it_names_everything() -> None:
    for field in (*TRANSCRIPTIONS, *TRANSLATIONS, *FIELDS):
        assert f"`{field.name}[]`" in PAGE if field.many else f"`{field.name}`" in PAGE, field.name
    for name in (*ALIASES, *FORMATS):
        assert f"`{name}`" in PAGE, name
    assert f"| `--max-files` | {HttpOptions().max_files} |" in PAGE

"""What docs/sdk.md shows works as it stands there, with the fake recognizer in the place of the real ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from realtime_server.cli import main
from realtime_server.engines import loading
from realtime_server.sdk import arguments
from tests.audio import pcm16, tone
from tests.offline.recordings import recording

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [
    "[audio1] one two\n[audio2] one two\n",
    "",
    "0 1000 one two\n",
    "[720ms] Confirmed: \n",
    " | one\n",
    "one two one two\n",
]  # by program: what it begins with


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with what the examples name; every recognizer is the fake one."""
    for name in (
        "audio.wav",
        "audio1.wav",
        "audio2.wav",
        "talk.mp3",
        "recordings/one.wav",
        "recordings/two.wav",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(recording("wav", 1.0))
    (tmp_path / "talk.pcm").write_bytes(pcm16(tone(1.0)))
    (tmp_path / "wav.scp").write_text("utt1 audio1.wav\nutt2 audio2.wav\n")
    monkeypatch.chdir(tmp_path)

    def load(options: loading.EngineOptions) -> Any:
        return loading.FakeEngine(slots=2)

    def hear(options: loading.EngineOptions, kind: str) -> Any:
        return loading.FakeScorer()

    monkeypatch.setattr("realtime_server.sdk.host.load_engine", load)
    monkeypatch.setattr("realtime_server.sdk.host.load_scorer", hear)
    return tmp_path


def test_every_program_is_tried() -> None:
    assert len(PROGRAMS) == len(SHOWN)
    assert arguments.DEFAULT_ENGINE in PAGE


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_its_programs_run(number: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAMS[number], f"docs/sdk.md, program {number}", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.startswith(SHOWN[number])


def test_the_readme_shows_the_first_programs_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```py\n(.*?)```", README, re.DOTALL)
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "[talk] one two\none two\n"


COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE + README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("realtime-server transcribe")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_its_commands_run(line: str, folder: Path) -> None:
    _, *words = shlex.split(line, comments=True)
    assert main([*words, "--engine", "fake", "--vad", "level"]) == 0


def test_the_page_names_every_argument() -> None:
    said = set(re.findall(r"`([a-z_]+)`", PAGE)) | set(re.findall(r"(\w+)=", PAGE))
    for taken in (arguments.ModelArguments, arguments.FileArguments, arguments.StreamArguments):
        assert taken.__annotations__.keys() <= said

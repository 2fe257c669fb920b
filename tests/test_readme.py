"""What the README says is true: its program runs, its links lead somewhere."""

from __future__ import annotations

import argparse
import configparser
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from realtime_server import config, flags
from tests.audio import pcm16, silence, tone
from tests.live_server import LiveServer

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "talk.pcm").write_bytes(pcm16(tone(1.0)) + pcm16(silence(0.2)))
    with LiveServer("--engine", "fake", "--vad", "level") as server:
        code = program.replace("ws://localhost:10095", server.url)
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
    assert run.stdout == "['one two']\n"


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
)
def test_its_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (path.parent / target).exists()] == []


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(
        re.findall(r"make ([a-z][a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    )
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_its_systemd_unit_starts_the_server_and_gives_it_time_to_end() -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as the documentation of configparser has it
    unit.read_string(text)
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("realtime-server", "serve")
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    options = config.read_arguments(parser.parse_args(words)).server
    assert unit["Service"].getfloat("TimeoutStopSec") > options.shutdown_s + options.close_s
    assert (unit["Service"]["Restart"], unit["Service"]["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert unit["Service"]["KillMode"] == "mixed"

"""What docs/overlay.md says is what the overlay and the client read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from realtime_server.resources import find_resource

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "overlay.md").read_text(encoding="utf-8")
OVERLAY = find_resource("static/overlay.html").read_text(encoding="utf-8")


def names(start: str) -> list[str]:
    """First cells of the table whose header begins so."""
    table = PAGE.partition(f"| {start} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def test_every_parameter_of_the_overlay_is_described() -> None:
    settings = OVERLAY.partition("const SETTINGS = {")[2].partition("\n};")[0]
    read = re.findall(r"^  (\w+): \[", settings, re.MULTILINE)
    assert sorted(names("parameter")) == sorted(read)


def test_every_flag_of_the_client_is_described() -> None:
    command = [sys.executable, str(find_resource("clients/client_subtitles.py")), "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"(?<![\w-])--[a-z]+", told)) - {"--help"}
    assert set(names("flag")) == flags

"""What docs/vllm-plugin.md shows is in the files that it names; its programs and commands run in tests/vllm."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "vllm-plugin.md").read_text("utf-8")
SHOWN = re.findall(r"```python\n# (realtime_server/\S+)\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = re.findall(r"```python\n(?!# realtime_server/)(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("path", "code"), SHOWN, ids=[f"{path} {n}" for n, (path, _) in enumerate(SHOWN)])
def test_code_is_as_in_its_file(path: str, code: str) -> None:
    assert code in (ROOT / path).read_text("utf-8")


def test_whole_programs_are_the_clients_and_the_least_class() -> None:
    assert len(SHOWN) >= 7
    client, live, least = map(ast.parse, PROGRAMS)
    assert client.body
    assert live.body
    assert any(isinstance(node, ast.ClassDef) and node.name == "YourModel" for node in least.body)


def test_the_entry_point_is_that_of_the_package() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert tomllib.loads(shown)["project"]["entry-points"] == project["entry-points"]


def test_the_installation_brings_what_vllm_decodes_recordings_with() -> None:
    (extra,) = re.findall(r"^pip install '\.\[(\w+)\]'", PAGE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    brought = {re.split(r"[<>=]", each)[0] for each in project["optional-dependencies"][extra]}
    assert {"soundfile", "av"} <= brought


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    files = [
        *(ROOT / "tests" / "vllm").glob("test_*.py"),
        *(ROOT / "tests" / "engines").glob("test_speech_*.py"),
    ]
    there = {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text("utf-8"))}
    assert len(named) > 30
    assert named <= there, named - there

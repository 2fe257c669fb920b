"""How tests are dealt to processes, see conftest.py."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ONE_AT_A_TIME, folder_alone, sendable

ROOT = Path(__file__).resolve().parents[1]


def test_no_two_vllm_engines_run_at_once() -> None:
    files = [
        path
        for path in ROOT.glob("tests/**/test_*.py")
        if re.search(r"mark\.vllm\b", path.read_text("utf-8"))
    ]
    assert files
    assert {folder_alone(path.relative_to(ROOT).as_posix()) for path in files} == {"tests/vllm/"}


def test_the_folders_are_there() -> None:
    assert all((ROOT / folder).is_dir() for folder in ONE_AT_A_TIME)


def test_half_a_surrogate_pair_is_spelled_out() -> None:
    report = {"sections": [("log", "a\ud800b")], "when": "call", "duration": 0.5, "longrepr": None}
    assert sendable(report) == {**report, "sections": [("log", "a\\ud800b")]}

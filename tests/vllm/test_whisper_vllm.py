"""A real model in a real vLLM: whisper-base, converted, says in vLLM what it says in transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from realtime_server import weights
from realtime_server.errors import WeightsError
from tests.vllm.whisper import BEST_OF_TIMES, ROOT, read

pytestmark = pytest.mark.vllm

SHARED = os.environ.get("REALTIME_SERVER_TEST_DATA", str(ROOT.parent / "shared" / "data"))
Answers = dict[str, dict[str, str]]


def shared_clips() -> list[Path]:
    folder = Path(SHARED) / "en"
    return [folder / "jfk.flac", *sorted(folder.glob("librispeech*"))] if folder.is_dir() else []


@pytest.fixture(scope="module")
def answers(whisper_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Texts by system and clip."""
    try:
        recordings = weights.find("recordings")
    except WeightsError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("whisper")
    clips = {path.stem: read(path) for path in shared_clips()}
    clips["two_cities"] = read(recordings / "two_cities.wav", seconds=10)
    np.savez(folder / "clips.npz", **clips)
    command = [
        sys.executable,
        "-m",
        "tests.vllm.whisper_program",
        str(whisper_folder),
        "clips.npz",
        "answers.json",
    ]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=900)
    answers: Answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return answers


def test_the_reading_has_the_same_text(answers: Answers) -> None:
    text = answers["vllm"]["two_cities"]
    assert text == answers["transformers"]["two_cities"]
    assert BEST_OF_TIMES in text.lower()


def test_the_shared_clips_have_the_same_texts(answers: Answers, shared_data: Path) -> None:
    names = {path.stem for path in shared_clips()}
    assert len(names) > 4
    for name in names:
        assert answers["vllm"][name] == answers["transformers"][name], name
    assert "ask not what your country can do for you" in answers["vllm"]["jfk"]
    assert "cutter lying off the coast" in answers["vllm"]["librispeech-7902-96591-0000"]

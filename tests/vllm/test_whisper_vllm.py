"""A real model in a real vLLM: whisper-base, converted, says in vLLM what it says in transformers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile
import soxr

from realtime_server import weights
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
SHARED = os.environ.get("REALTIME_SERVER_TEST_DATA", str(ROOT.parent / "shared" / "data"))
LONGEST_S = 30
Answers = dict[str, dict[str, str]]


def converter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("convert", ROOT / "scripts" / "convert_whisper_to_hf.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path, seconds: float = LONGEST_S) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono: Samples = soxr.resample(samples.mean(axis=1), rate, SAMPLE_RATE).astype(np.float32)
    return mono[: round(seconds * SAMPLE_RATE)]


def shared_clips() -> list[Path]:
    folder = Path(SHARED) / "en"
    return [folder / "jfk.flac", *sorted(folder.glob("librispeech*"))] if folder.is_dir() else []


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Texts by system and clip."""
    try:
        whisper, recordings = weights.find("whisper-base"), weights.find("recordings")
    except WeightsError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("whisper")
    converter().convert(whisper, folder / "model")
    clips = {path.stem: read(path) for path in shared_clips()}
    clips["two_cities"] = read(recordings / "two_cities.wav", seconds=10)
    np.savez(folder / "clips.npz", **clips)
    command = [sys.executable, "-m", "tests.vllm.whisper_program", "model", "clips.npz", "answers.json"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=900)
    answers: Answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return answers


def test_the_reading_has_the_same_text(answers: Answers) -> None:
    text = answers["vllm"]["two_cities"]
    assert text == answers["transformers"]["two_cities"]
    assert "it was the best of times, it was the worst of times" in text.lower()


def test_the_shared_clips_have_the_same_texts(answers: Answers, shared_data: Path) -> None:
    names = {path.stem for path in shared_clips()}
    assert len(names) > 4
    for name in names:
        assert answers["vllm"][name] == answers["transformers"][name], name
    assert "ask not what your country can do for you" in answers["vllm"]["jfk"]
    assert "cutter lying off the coast" in answers["vllm"]["librispeech-7902-96591-0000"]

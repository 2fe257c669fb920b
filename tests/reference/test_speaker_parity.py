"""Our speaker networks against those of PyPI funasr, which run in an environment of their own, on real speech.

scripts/install_reference.sh makes that environment; REALTIME_SERVER_REFERENCE_PYTHON names another interpreter.
ERes2NetV2's weights are not to be had here: both sides get the same random ones.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from realtime_server import weights
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError
from realtime_server.models.speaker_features import features
from realtime_server.models.speaker_network import CAMPPLUS_FILE, Floats
from tests.conftest import SHARED
from tests.models.speaker import network, weights_folder

pytestmark = [pytest.mark.reference, pytest.mark.slow]

HERE = Path(__file__).parent
PYTHON = Path(
    os.environ.get("REALTIME_SERVER_REFERENCE_PYTHON", HERE.parents[1] / ".venv-reference/bin/python")
)
SHARED_RECORDINGS = ("multi/", "phone/", "zh/", "en/")
SECONDS = (1.5, 1.5, 0.5, 1.5, 4.3)  # of the windows that are cut out of each recording
TOLERANCE = 1e-5  # of embeddings of length 1


def recordings() -> list[Path]:
    """The fetched reading, and some of each kind of the shared recordings, where they are."""
    found = []
    try:
        found.append(weights.find("recordings") / "two_cities.wav")
    except WeightsError as error:
        if not SHARED.is_dir():
            pytest.skip(str(error))
    for kind in SHARED_RECORDINGS if SHARED.is_dir() else ():
        found += sorted((SHARED / kind).glob("*.wav"))[:4]
    return found


def windows_of(path: Path) -> list[Samples]:
    """Loud enough windows of a recording's first channel, from a second after its start."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True, frames=60 * 48_000)
    mono = soxr.resample(samples[:, 0], rate, SAMPLE_RATE).astype(np.float32)
    windows, at = [], SAMPLE_RATE
    for seconds in SECONDS:
        window = mono[at : at + round(seconds * SAMPLE_RATE)]
        at += window.size
        if window.size >= SAMPLE_RATE // 2 and np.abs(window).max() > 0.02:
            windows.append(window)
    return windows


@pytest.fixture(scope="module")
def windows() -> list[Samples]:
    return [window for path in recordings() for window in windows_of(path)]


@pytest.fixture(scope="module")
def answer(windows: list[Samples], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What run_funasr_speaker.py says of the windows."""
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON}: run scripts/install_reference.sh")
    folder, files = tmp_path_factory.mktemp("windows"), []
    for i, window in enumerate(windows):
        files.append(folder / f"{i}.npy")
        np.save(files[-1], window)
    done = subprocess.run(
        [PYTHON, "-W", "ignore", HERE / "run_funasr_speaker.py", weights_folder() / CAMPPLUS_FILE, *files],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def unit(vectors: list[list[float]]) -> Floats:
    array = np.array(vectors)
    unit: Floats = array / np.linalg.norm(array, axis=1, keepdims=True)
    return unit


def test_windows_are_many_and_unlike(windows: list[Samples], answer: dict[str, Any]) -> None:
    assert len(windows) >= 5
    likeness = unit(answer["reference"]) @ unit(answer["reference"]).T
    assert likeness.min() < 0.7


def test_campplus_on_onnxruntime(windows: list[Samples], answer: dict[str, Any]) -> None:
    ours = unit([network().embed(features(window)[None])[0] for window in windows])
    assert np.abs(ours - unit(answer["reference"])).max() < TOLERANCE


def test_campplus_on_pytorch(answer: dict[str, Any]) -> None:
    assert np.abs(unit(answer["torch"]) - unit(answer["reference"])).max() < TOLERANCE


def test_eres2netv2_with_random_weights(answer: dict[str, Any]) -> None:
    assert np.ptp(unit(answer["eres2netv2"]), axis=0).max() > 0.01, "a constant would agree too"
    assert answer["eres2netv2_difference"] < TOLERANCE

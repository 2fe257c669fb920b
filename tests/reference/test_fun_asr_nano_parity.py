"""Our Fun-ASR-Nano against the modules of PyPI funasr, which run in an environment of their own.

scripts/install_reference.sh makes that environment; REALTIME_SERVER_REFERENCE_PYTHON names another interpreter. Both
sides get the same random weights: small ones, and ones of the published widths. REALTIME_SERVER_FULL_PARITY=1 compares
every layer of the published size too (5 GB of memory, a minute).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realtime_server.core.segments import SAMPLE_RATE
from tests.conftest import SHARED

pytestmark = [pytest.mark.reference, pytest.mark.slow]

HERE = Path(__file__).parent
PYTHON = Path(
    os.environ.get("REALTIME_SERVER_REFERENCE_PYTHON", HERE.parents[1] / ".venv-reference/bin/python")
)
CONFIG = SHARED / "models" / "fun-asr-nano-config.yaml"
SECONDS = [3.3, 0.3, 1.0, 6.04, 2.51]
TOLERANCE = 1e-4


def run(script: str, *arguments: str | Path) -> str:
    """What a script prints in the reference's environment."""
    done = subprocess.run(
        [PYTHON, "-W", "ignore", HERE / script, *arguments],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "MODELSCOPE_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module", params=["small", "short", "full"])
def answer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What run_fun_asr_nano.py says of a checkpoint of this size."""
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON}: run scripts/install_reference.sh")
    if request.param == "full" and os.environ.get("REALTIME_SERVER_FULL_PARITY") != "1":
        pytest.skip("the published size takes 5 GB of memory (set REALTIME_SERVER_FULL_PARITY=1)")
    if request.param != "small" and not CONFIG.is_file():
        pytest.skip("the reported settings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    folder = tmp_path_factory.mktemp(request.param)
    run("make_fun_asr_nano.py", folder, *([] if request.param == "small" else [CONFIG, request.param]))
    files = []
    for i, seconds in enumerate(SECONDS):
        time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
        noise = np.random.default_rng(i).normal(0, 1, len(time))
        files.append(folder / f"{i}.npy")
        np.save(files[-1], (noise * (0.05 + 0.2 * np.abs(np.sin(5.5 * time + i)))).astype(np.float32))
    found: dict[str, Any] = json.loads(run("run_fun_asr_nano.py", folder, *files).splitlines()[-1])
    (folder / "model.pt").unlink()
    return found


def test_the_references_modules_are_what_they_seem(answer: dict[str, Any]) -> None:
    assert set(answer["registered"].values()) == {True}, answer["registered"]


@pytest.mark.parametrize("part", ["frontend", "encoder", "rows", "ctc"])
def test_networks_agree(answer: dict[str, Any], part: str) -> None:
    assert answer["sizes"][part] > 1.0, "zeros would agree too"
    assert answer["differences"][part] < TOLERANCE


def test_prompts_are_identical(answer: dict[str, Any]) -> None:
    assert answer["prompts"] == []


def test_alignments_are_identical(answer: dict[str, Any]) -> None:
    assert answer["alignments"] == []


def test_as_many_audio_rows_for_every_length_up_to_a_minute(answer: dict[str, Any]) -> None:
    assert answer["row_counts"] == []

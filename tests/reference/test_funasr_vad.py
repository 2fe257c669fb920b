"""Our segments against those of PyPI funasr, which runs in an environment of its own.

scripts/install_reference.sh makes that environment; REALTIME_SERVER_REFERENCE_PYTHON names another interpreter.
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
from realtime_server.core.endpointing import LIVE_SCHEDULE, EndpointingOptions, ReferenceCounting
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError
from tests.conftest import SHARED
from tests.models.vad import read, recordings, score, segments_ms, weights_folder

pytestmark = [pytest.mark.reference, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("REALTIME_SERVER_REFERENCE_PYTHON", ROOT / ".venv-reference/bin/python"))
LONGEST_MS = 60_000  # the reference's own; its way to cut there is not ours, and no recording reaches it
FIXED = EndpointingOptions(mode="fixed", silence_ms=800, eager_ms=None, max_segment_ms=LONGEST_MS)


def _read_any(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono: Samples = soxr.resample(samples.mean(axis=1), rate, SAMPLE_RATE).astype(np.float32)
    return mono


@pytest.fixture(scope="module")
def audio() -> dict[str, Samples]:
    """All recordings that are here, by a name that is also a file name."""
    found: dict[str, Samples] = {}
    try:
        found["two_cities"] = _read_any(weights.find("recordings") / "two_cities.wav")
    except WeightsError as error:
        if not SHARED.is_dir():
            pytest.skip(str(error))
    if SHARED.is_dir():
        found |= {name.replace("/", "-"): read(SHARED / name) for name, _ in recordings(SHARED)}
    # Speech late in a long silence, where counting idle time makes a difference.
    late = [piece for samples in found.values() for piece in (np.zeros(7 * SAMPLE_RATE, np.float32), samples)]
    return found | {"late": np.concatenate(late)[: 180 * SAMPLE_RATE]}


@pytest.fixture(scope="module")
def reference(audio: dict[str, Samples], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What funasr says to the same samples: {"version": ..., "segments": {name: {"fixed", "dynamic"}}}."""
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON}: run scripts/install_reference.sh")
    folder, files = tmp_path_factory.mktemp("audio"), []
    for name, samples in audio.items():
        files.append(folder / f"{name}.npy")
        np.save(files[-1], samples)
    script = Path(__file__).with_name("run_funasr_vad.py")
    offline = {"HF_HUB_OFFLINE": "1", "MODELSCOPE_OFFLINE": "1"}
    run = subprocess.run(
        [PYTHON, script, weights_folder(), *files],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def compare(
    audio: dict[str, Samples], reference: dict[str, Any], kind: str, options: EndpointingOptions
) -> None:
    different = {}
    for name, samples in audio.items():
        ours = segments_ms(options, score(samples), len(samples))
        theirs = reference["segments"][name][kind]
        if ours != theirs:
            different[name] = ours, theirs
    assert different == {}


def test_segments_at_a_fixed_silence(audio: dict[str, Samples], reference: dict[str, Any]) -> None:
    compare(audio, reference, "fixed", FIXED)


def test_segments_under_the_schedule(audio: dict[str, Samples], reference: dict[str, Any]) -> None:
    release = tuple(int(part) for part in reference["version"].split(".")[:3])
    counting = ReferenceCounting(idle_counts=release < (1, 4, 15))
    options = EndpointingOptions(
        schedule=LIVE_SCHEDULE, eager_ms=None, max_segment_ms=LONGEST_MS, reference=counting
    )
    compare(audio, reference, "dynamic", options)

"""A real speech-to-text model for vLLM: whisper-base, converted to Hugging Face's layout, and recordings for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import soundfile
import soxr

from realtime_server import weights
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 30
BEST_OF_TIMES = "it was the best of times, it was the worst of times"
ASK_NOT = "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."


def converter() -> ModuleType:
    """scripts/convert_whisper_to_hf.py."""
    spec = importlib.util.spec_from_file_location("convert", ROOT / "scripts" / "convert_whisper_to_hf.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def convert(target: Path) -> Path:
    """Write the model. Raises WeightsError if it has not been fetched."""
    converter().convert(weights.find("whisper-base"), target)
    return target


def read(path: Path, seconds: float = LONGEST_S) -> Samples:
    """The beginning of a recording: mono, 16 kHz."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono: Samples = soxr.resample(samples.mean(axis=1), rate, SAMPLE_RATE).astype(np.float32)
    return mono[: round(seconds * SAMPLE_RATE)]

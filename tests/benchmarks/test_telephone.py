"""What a telephone leaves of a sound."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("soxr", reason="the extra 'files' is not installed")
pytest.importorskip("soundfile", reason="the extra 'files' is not installed")
pytest.importorskip("scipy", reason="the extra 'speakers' is not installed")

from benchmarks import telephone
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE


def hum(hz: float) -> Samples:
    times = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    return (0.1 * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def level(samples: Samples) -> float:
    return float(np.sqrt(np.square(samples[1600:-1600]).mean()))


@pytest.mark.parametrize(
    ("line", "kept", "lost"),
    [(telephone.g711, (100, 1000, 3400), (4500, 7000)), (telephone.old_line, (500, 1000, 3000), (100, 3950, 6000))],
    ids=["G.711", "old line"],
)  # fmt: skip
def test_frequencies_that_are_kept_and_lost(
    line: object, kept: tuple[int, ...], lost: tuple[int, ...]
) -> None:
    assert callable(line)
    for hz in kept:
        assert level(line(hum(hz))) == pytest.approx(level(hum(hz)), rel=0.1), hz
    for hz in lost:
        assert level(line(hum(hz))) < 0.25 * level(hum(hz)), hz


@pytest.mark.parametrize("count", [1, 159, 16_001])
def test_as_many_samples_come_back(count: int) -> None:
    samples = np.random.default_rng(count).normal(0, 0.1, count).astype(np.float32)
    for line in (telephone.g711, telephone.old_line):
        assert (line(samples).shape, line(samples).dtype) == ((count,), np.float32)


def test_mu_law_is_coarse_where_it_is_loud() -> None:
    whole = np.linspace(0.5, 0.6, 8000, dtype=np.float32)
    assert len(set(telephone._mu_law(whole).tolist())) < 10

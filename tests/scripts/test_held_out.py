"""The held-out utterances as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts import held_out
from scripts.synthesis import SynthesiserMissingError, Utterance, synthesiser
from scripts.tiny_language import say


def utterance(text: str, *samples: int) -> Utterance:
    """Something said in the steps that the file has, a mark each 100 samples."""
    units = tuple(say(text, "zh"))
    spans = tuple(tuple((100 * n, 100 * n + 80) for n in range(unit.marks)) for unit in units)
    return Utterance(units, np.array(samples, np.float32) / np.float32(32768), spans)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    said = [utterance("打开12", 0, 1, -32768), utterance("李娜", 32767, -5)]
    held_out.write(tmp_path / "held_out.npz", said)
    heard = held_out.read(tmp_path / "held_out.npz")
    assert len(heard) == len(said)
    for one, other in zip(heard, said, strict=True):
        assert (one.units, one.spans) == (other.units, other.spans)
        assert one.samples.dtype == np.float32
        assert np.array_equal(one.samples, other.samples)


def test_the_synthesiser_s_own_survive_too(tmp_path: Path) -> None:
    try:
        synthesiser()
    except SynthesiserMissingError as error:
        pytest.skip(str(error))
    file = tmp_path / "held_out.npz"
    assert held_out.main([str(file), "--count", "2"]) == 0
    first, second = held_out.read(file)
    assert first.units
    assert second.samples.size > 8000
    assert np.array_equal(second.samples * 32768, np.round(second.samples * 32768))

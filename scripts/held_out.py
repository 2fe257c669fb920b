"""The held-out utterances as a file, for machines that have no espeak-ng.

    python -m scripts.held_out FILE.npz          7 MB

holds what `synthesis.held_out` says, to the bit: 16-bit samples, what was said, and the synthesiser's marks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scripts.synthesis import Utterance, held_out
from scripts.tiny_language import UNITS

STEPS = 32768  # of a sample, from 0 to 1


def main(argv: list[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m scripts.held_out", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=100, help="of utterances (default: %(default)s)")
    arguments = parser.parse_args(argv)
    write(arguments.file, held_out(arguments.count))
    return 0


def write(path: Path, utterances: Sequence[Utterance]) -> None:
    """Write utterances whose samples are 16-bit steps."""
    samples = [np.round(each.samples * STEPS).astype(np.int16) for each in utterances]
    np.savez_compressed(
        path,
        samples=np.concatenate(samples),
        sizes=[each.size for each in samples],
        units=[f"{unit.language} {unit.sound}" for each in utterances for unit in each.units],
        counts=[len(each.units) for each in utterances],
        marks=[mark for each in utterances for unit in each.spans for mark in unit],
    )


def read(path: Path) -> list[Utterance]:
    """The utterances of a file; KeyError if it speaks of units that the little language has no more."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    known = {f"{unit.language} {unit.sound}": unit for unit in UNITS}
    units = iter([known[name] for name in content["units"].tolist()])
    marks = iter([(begin, end) for begin, end in content["marks"].tolist()])
    ends = np.cumsum(content["sizes"])[:-1]
    utterances = []
    for samples, count in zip(np.split(content["samples"], ends), content["counts"].tolist(), strict=True):
        said = tuple(next(units) for _ in range(count))
        spans = tuple(tuple(next(marks) for _ in range(unit.marks)) for unit in said)
        utterances.append(Utterance(said, samples.astype(np.float32) / np.float32(STEPS), spans))
    return utterances


if __name__ == "__main__":
    sys.exit(main())

"""Finds the directions in which a telephone moves the embeddings of every voice; prints realtime_server's table.

    python -m scripts.channel_directions SPEAKER SPEAKER ...

SPEAKER: recordings of one speaker, separated by commas. For each kind of line the mean of a voice is compared with its
mean before it went through that line. What is common to all speakers is the direction of that line. How alike one
speaker's two means are, and those of two speakers on one line, is printed with and without the directions, on stderr.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks import telephone
from realtime_server import weights
from realtime_server.bench import speech
from realtime_server.core.jobs import Samples
from realtime_server.core.speaker_windows import LENGTH, STEP
from realtime_server.models.campplus_channel import orthonormal
from realtime_server.models.campplus_onnx import CamPlusPlusOnnx
from realtime_server.models.speaker_features import features
from realtime_server.models.speaker_network import Floats

LINES = {"old line": telephone.old_line, "G.711": telephone.g711}
LEVEL = 0.06  # RMS of a speaker's recordings together
MOST = 30  # windows of a speaker
ROW = 96  # characters


def voice(network: CamPlusPlusOnnx, samples: Samples) -> Floats:
    """Embeddings of length 1 of a recording's windows."""
    starts = range(0, len(samples) - LENGTH + 1, STEP)[:MOST]
    found = np.stack([network.embed(features(samples[start : start + LENGTH])[None])[0] for start in starts])
    return unit(found)


def unit(vectors: Floats) -> Floats:
    """The same, of length 1."""
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def mean(windows: Floats) -> Floats:
    """Mean of a voice, of length 1."""
    return unit(windows.mean(axis=0))


def moves(clean: Sequence[Floats], through: Sequence[Floats]) -> Floats:
    """Where a line moves the means of voices, on average; of length 1."""
    return mean(np.stack([mean(one) - mean(other) for one, other in zip(clean, through, strict=True)]))


def main(speakers: Sequence[str]) -> None:
    """Print the table."""
    network = CamPlusPlusOnnx.load(weights.find("campplus"))
    voices: dict[str, list[Floats]] = {line: [] for line in ("clean", *LINES)}
    for paths in speakers:
        samples = np.concatenate([speech.load(Path(path)).samples for path in paths.split(",")])
        samples *= LEVEL / np.sqrt(np.square(samples).mean())
        for line, windows in voices.items():
            windows.append(voice(network, LINES[line](samples) if line in LINES else samples))
    moved = [moves(voices["clean"], voices[line]) for line in LINES]
    whole = np.rint(127 * np.stack(moved) / np.abs(moved).max()).astype(np.int8)
    table = base64.b64encode(whole.tobytes()).decode()
    print("\n".join(table[at : at + ROW] for at in range(0, len(table), ROW)))
    report(voices, np.zeros((0, network.width), np.float32), "as they are")
    report(voices, orthonormal(whole), "without what lies along the directions")


def report(voices: dict[str, list[Floats]], directions: Floats, title: str) -> None:
    """Print likenesses of means once what lies along the directions is taken out."""
    means = {
        line: [mean(unit(each - each @ directions.T @ directions)) for each in windows]
        for line, windows in voices.items()
    }
    print(title, file=sys.stderr)
    for line, others in means.items():
        same = [float(one @ other) for one, other in zip(means["clean"], others, strict=True)]
        apart = [float(one @ other) for one, other in combinations(others, 2)]
        print(
            f"  {line:9} a speaker's, clean and through it: at least {min(same):.2f}, median {np.median(same):.2f}; "
            f"two speakers', both through it: median {np.median(apart):.2f}, at most {max(apart):.2f}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main(sys.argv[1:])

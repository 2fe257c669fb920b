"""Makes tests/data/campplus-vectors.json: what PyPI funasr's CAM++ says of synthetic voices.

    .venv-reference/bin/python -m tests.reference.make_speaker_vectors WEIGHTS.pt tests/data/campplus-vectors.json

Run it in the repository's folder, in the environment of scripts/install_reference.sh.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from funasr.models.campplus.model import CAMPPlus
from funasr.models.campplus.utils import extract_feature

from tests.models.voices import VOICES, voice


def main(weights: str, vectors: str) -> None:
    """Write one embedding a line."""
    model = CAMPPlus().eval()
    model.load_state_dict(torch.load(weights, weights_only=True))
    lines = []
    for hz, seconds in VOICES:
        features, _, _ = extract_feature([torch.from_numpy(voice(hz, seconds)) * 32768])
        with torch.inference_mode():
            lines.append(json.dumps([round(float(each), 7) for each in model(features)[0]]))
    Path(vectors).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

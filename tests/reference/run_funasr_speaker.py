"""Runs FunASR's own CAM++ and ERes2NetV2; started by test_speaker_parity.py with the interpreter that has funasr.

    python run_funasr_speaker.py WEIGHTS.pt WINDOW.npy ...

Windows are float32, 16 kHz. The last line printed is JSON: the embedding of each window by funasr's features and CAM++
with these weights; the same by our modules on PyTorch; and how far funasr's ERes2NetV2 and ours are apart, with random
weights, and how much its answers differ from window to window.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from funasr.models.campplus.model import CAMPPlus
from funasr.models.campplus.utils import extract_feature
from funasr.models.eres2net.eres2netv2 import ERes2NetV2 as ReferenceERes2NetV2

from realtime_server.models.campplus import CamPlusPlus
from realtime_server.models.eres2netv2 import ERes2NetV2
from realtime_server.models.speaker_torch import load_weights


def random_network():
    """funasr's ERes2NetV2 with random weights, and batch norms that have seen noise, so that nothing grows or dies."""
    torch.manual_seed(0)
    network = ReferenceERes2NetV2().train()
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
            torch.nn.init.normal_(layer.weight, 1.0, 0.2)
            torch.nn.init.normal_(layer.bias, 0.0, 0.2)
    with torch.no_grad():
        network(torch.randn(8, 100, 80))
    return network.eval()


def main(weights, *windows):
    """Print what both say."""
    torch.set_num_threads(1)
    reference = CAMPPlus().eval()
    reference.load_state_dict(torch.load(weights, weights_only=True))
    ours = CamPlusPlus()
    load_weights(ours, Path(weights))
    ours.eval()
    other = random_network()
    our_other = ERes2NetV2().eval()
    our_other.load_state_dict(other.state_dict())
    found = {"reference": [], "torch": [], "eres2netv2": [], "eres2netv2_difference": 0.0}
    for path in windows:
        samples = torch.from_numpy(np.load(path)) * 32768  # to the values of 16-bit samples
        features, _, _ = extract_feature([samples])
        with torch.inference_mode():
            found["reference"].append(reference(features)[0].tolist())
            found["torch"].append(ours(features)[0].tolist())
            theirs, same = other(features)[0], our_other(features)[0]
        found["eres2netv2"].append((theirs / theirs.norm()).tolist())
        difference = float((theirs / theirs.norm() - same / same.norm()).abs().max())
        found["eres2netv2_difference"] = max(found["eres2netv2_difference"], difference)
    return found


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        answer = main(*sys.argv[1:])
    print(json.dumps(answer))

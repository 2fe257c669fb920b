"""Runs FunASR's own GLM-ASR code and ours on the same random weights; started by test_glm_asr_parity.py.

    python run_glm_asr.py FOLDER

Writes a checkpoint with random weights into FOLDER. The last line printed is JSON: what differs between the two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from funasr.models.glm_asr.inference_vllm import GLMASRVLLMEngine, prepare_glmasr_vllm_dir
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from realtime_server.core.jobs import DecodingOptions
from realtime_server.models.glm_asr import GlmAsr
from realtime_server.models.glm_checkpoint import GlmCheckpoint
from realtime_server.models.llm_weights import write_llm
from tests.models import glm, nano


class Tokenizer:
    """Ours, called as the reference calls its own."""

    def __init__(self, ours):
        self._ours = ours

    def encode(self, text, add_special_tokens):
        """Ids of a text."""
        assert add_special_tokens is False
        return self._ours.encode(text)


def prompts(checkpoint):
    """Lengths (s) for which the embedded prompts differ."""
    model = GlmAsr.load(checkpoint)
    reference = SimpleNamespace(
        tokenizer=Tokenizer(model.tokenizer),
        embed_tokens=model.get_submodule("language_model.model.embed_tokens"),
        device="cpu",
    )
    different = []
    for seconds in (0.3, 1.0, 6.04):
        (encoded,) = model.encode([nano.noise(seconds)])
        theirs = GLMASRVLLMEngine._build_prompt_embeds(reference, encoded.rows[None])
        if not torch.equal(theirs, model.prompt_rows(DecodingOptions(), encoded)):
            different.append(seconds)
    return different


def language_model(checkpoint, cache):
    """Tensors and settings of the language model's folder that differ."""
    theirs, ours = (
        Path(prepare_glmasr_vllm_dir(str(checkpoint.folder))),
        write_llm(checkpoint.llm_parts(), cache),
    )
    their_weights, our_weights = (load_file(folder / "model.safetensors") for folder in (theirs, ours))
    names = their_weights.keys() | our_weights.keys()
    different = [
        name
        for name in sorted(names)
        if name not in their_weights
        or name not in our_weights
        or not torch.equal(their_weights[name], our_weights[name])
    ]
    their_config, our_config = (
        json.loads((folder / "config.json").read_text("utf-8")) for folder in (theirs, ours)
    )
    return different + [name for name in their_config if their_config[name] != our_config.get(name)], len(
        names
    )


def main(folder):
    """Compare, and print what differs."""
    checkpoint = GlmCheckpoint.open(glm.write_folder(Path(folder) / "model"))
    different, tensors = language_model(checkpoint, Path(folder) / "cache")
    print(json.dumps({"prompts": prompts(checkpoint), "language_model": different, "tensors": tensors}))


if __name__ == "__main__":
    main(*sys.argv[1:])

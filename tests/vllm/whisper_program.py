"""Transcribe clips with a Whisper in Hugging Face's layout, in vLLM and in transformers; run by test_whisper_vllm.py.

    python -m tests.vllm.whisper_program MODEL CLIPS.npz ANSWERS.json

A program of its own: vLLM binds threads and sets seeds in the process that it runs in.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from realtime_server.engines.vllm_setup import set_environment

MAX_TOKENS = 200
PROMPT = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")


def in_vllm(model: str, clips: Mapping[str, Any], prompt: list[int]) -> dict[str, str]:
    """Texts of all clips, decoded together: encoder-decoder, the audio as multimodal input."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model, dtype="float32", max_model_len=448, max_num_seqs=8, limit_mm_per_prompt={"audio": 1}, enforce_eager=True,
        kv_cache_memory_bytes=256 << 20, block_size=32,
    )  # fmt: skip
    requests = [
        {
            "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (audio, 16_000)}},
            "decoder_prompt": {"prompt_token_ids": prompt},
        }
        for audio in clips.values()
    ]
    outputs = llm.generate(requests, SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS), use_tqdm=False)
    return {name: output.outputs[0].text for name, output in zip(clips, outputs, strict=True)}


def in_transformers(model: str, clips: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the clips, one after the other. No tokens are suppressed, as vLLM suppresses none."""
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    processor = WhisperProcessor.from_pretrained(model)
    network = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
    network.generation_config.suppress_tokens = None
    network.generation_config.begin_suppress_tokens = None
    texts = {}
    for name, audio in clips.items():
        features = processor(audio, sampling_rate=16_000, return_tensors="pt").input_features
        (ids,) = network.generate(
            features,
            language="en",
            task="transcribe",
            do_sample=False,
            num_beams=1,
            max_new_tokens=MAX_TOKENS,
        )
        texts[name] = processor.decode(ids, skip_special_tokens=True)
    return texts


def main(model: str, clips_path: str, answers_path: str) -> None:
    """Read the clips, write the answers."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    set_environment("cpu")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    with np.load(clips_path) as stored:
        clips = dict(stored)
    prompt = [tokenizer.token_to_id(token) for token in PROMPT]
    answers = {"vllm": in_vllm(model, clips, prompt), "transformers": in_transformers(model, clips)}
    Path(answers_path).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

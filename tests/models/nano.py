"""Fun-ASR-Nano for tests: a folder in the official form with random weights, small enough to make anew each time."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from realtime_server.core.jobs import Samples
from realtime_server.models.ctc_tokens import CtcTokenizer
from realtime_server.models.fun_asr_nano import Embeddings, FunAsrNano
from realtime_server.models.llm_weights import HEAD, qwen3_shapes
from realtime_server.models.nano_config import NanoConfig, Section
from realtime_server.models.prompt import FolderTokenizer

torch.set_num_threads(1)  # the tensors are small, and the machine may be busy with others

SETTINGS: dict[str, Any] = {
    "model": "FunASRNano",
    "audio_encoder": "SenseVoiceEncoderSmall",
    "audio_encoder_conf": {
        "output_size": 64, "attention_heads": 4, "linear_units": 96, "num_blocks": 4, "tp_blocks": 2,
        "kernel_size": 11, "sanm_shfit": 0, "normalize_before": True, "selfattention_layer_type": "sanm",
        "dropout_rate": 0.0, "positional_dropout_rate": 0.0, "attention_dropout_rate": 0.0, "freeze": True,
    },
    "llm": "Qwen3-0.6b",
    "llm_conf": {"init_param_path": "Qwen3-0.6B", "llm_dtype": "bf16"},
    "audio_adaptor": "Transformer",
    "audio_adaptor_conf": {
        "downsample_rate": 1, "use_low_frame_rate": True, "ffn_dim": 80, "llm_dim": 64, "encoder_dim": 64, "n_layer": 2,
    },
    "ctc_decoder": "Transformer",
    "ctc_decoder_conf": {"downsample_rate": 1, "ffn_dim": 80, "llm_dim": 64, "encoder_dim": 64, "n_layer": 2},
    "ctc_vocab_size": 300,
    "ctc_conf": {"dropout_rate": 0.0},
    "frontend": "WavFrontend",
    "frontend_conf": {
        "fs": 16000, "window": "hamming", "n_mels": 80, "frame_length": 25, "frame_shift": 10, "lfr_m": 7, "lfr_n": 6,
        "cmvn_file": None,
    },
    "dataset_conf": {
        "ctc_tokenizer": "SenseVoiceTokenizer",
        "ctc_tokenizer_conf": {"vocab_path": "multilingual.tiktoken", "is_multilingual": True},
    },
}  # fmt: skip
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 320, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "tie_word_embeddings": True, "attention_bias": False, "max_position_embeddings": 512,
    "rope_theta": 1e6, "rms_norm_eps": 1e-6, "hidden_act": "silu", "bos_token_id": 316, "eos_token_id": 318,
}  # fmt: skip
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
JOINED = [b"th", b"he", b" w", b" h", b"re", b"the", "你".encode(), b"ll", b"llo", b"\xe4\xbd"]


def settings(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """SETTINGS with changes by dotted name; None removes one."""
    changed = copy.deepcopy(SETTINGS)
    for name, value in (changes or {}).items():
        *path, last = name.split(".")
        section = changed
        for part in path:
            section = section[part]
        section[last] = value
        if value is None:
            del section[last]
    return changed


def write_settings(
    folder: Path, changes: dict[str, Any] | None = None, qwen3: dict[str, Any] | None = None
) -> Path:
    """Write everything but the weights; return the folder."""
    llm = folder / "Qwen3-0.6B"
    llm.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings(changes)), "utf-8")
    (llm / "config.json").write_text(json.dumps(QWEN3 | (qwen3 or {})), "utf-8")
    text_tokenizer().save(str(llm / "tokenizer.json"))
    (folder / "multilingual.tiktoken").write_bytes(vocabulary())
    return folder


def write_folder(
    folder: Path, changes: dict[str, Any] | None = None, qwen3: dict[str, Any] | None = None
) -> Path:
    """Write a whole checkpoint with random weights; return its folder."""
    write_settings(folder, changes, qwen3)
    torch.save(random_weights(folder), folder / "model.pt")
    return folder


def fresh_model(folder: Path, llm: torch.nn.Module | None = None) -> FunAsrNano:
    """A model with random weights for the settings in `folder`; its biases are not zero, its norms not one.

    llm: a whole language model; the embeddings alone if None.
    """
    config = NanoConfig.read(folder)
    torch.manual_seed(7)
    ctc = CtcTokenizer.read(folder / config.ctc_vocabulary) if config.ctc else None
    llm = llm or Embeddings(config.llm.vocabulary, config.llm.width)
    model = FunAsrNano(config, llm, FolderTokenizer(folder / config.llm.folder), ctc)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(
                    torch.randn_like(parameter) * 0.1 + ("norm" in name and name.endswith("weight"))
                )
    return model.requires_grad_(False).eval()


def random_weights(folder: Path) -> dict[str, torch.Tensor]:
    """What model.pt holds, the language model included."""
    config = NanoConfig.read(folder)
    weights = dict(fresh_model(folder).state_dict())
    shapes = qwen3_shapes(config.llm, Section.read_json(folder / config.llm.folder / "config.json"))
    for name, shape in shapes.items():
        weights.setdefault(f"llm.{name}", torch.randn(shape) * 0.05)
    weights[f"llm.{HEAD}"] = weights["llm.model.embed_tokens.weight"]
    return weights


def text_tokenizer() -> Tokenizer:
    """Bytes, a few pairs, and the control tokens of the prompt."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("t", "h"), ("th", "e"), ("Ġ", "w"), ("s", "t")]
    names = [*alphabet, *("".join(pair) for pair in pairs)]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer


def vocabulary() -> bytes:
    """A CTC vocabulary: bytes and a few pairs."""
    tokens = [bytes([byte]) for byte in range(256)] + JOINED
    return b"".join(base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate(tokens))


def noise(seconds: float, seed: int = 0) -> Samples:
    """Noise that swells and fades, so that frames differ."""
    samples = round(seconds * 16_000)
    envelope = 0.05 + 0.2 * np.abs(np.sin(np.arange(samples) / 2_900 + seed))
    return (np.random.default_rng(seed).normal(0, 1, samples) * envelope).astype(np.float32)

"""A Fun-ASR-Nano folder in the official form, with the real shapes and random weights: for speed, never for text."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from benchmarks.gpu import script
from realtime_server.models.ctc_tokens import CtcTokenizer
from realtime_server.models.fun_asr_nano import Embeddings, FunAsrNano
from realtime_server.models.llm_weights import qwen3_shapes
from realtime_server.models.nano_config import NanoConfig, Section
from realtime_server.models.prompt import FolderTokenizer

SETTINGS: dict[str, Any] = {
    "model": "FunASRNano",
    "audio_encoder": "SenseVoiceEncoderSmall",
    "audio_encoder_conf": {
        "output_size": 512, "attention_heads": 4, "linear_units": 2048, "num_blocks": 50, "tp_blocks": 20,
        "dropout_rate": 0.0, "positional_dropout_rate": 0.0, "attention_dropout_rate": 0.0, "input_layer": "pe",
        "pos_enc_class": "SinusoidalPositionEncoder", "normalize_before": True, "kernel_size": 11, "sanm_shfit": 0,
        "selfattention_layer_type": "sanm", "freeze": True,
    },
    "llm": "Qwen3-0.6b",
    "llm_conf": {"hub": "hf", "freeze": True, "llm_dtype": "bf16", "init_param_path": "Qwen3-0.6B"},
    "audio_adaptor": "Transformer",
    "audio_adaptor_conf": {
        "downsample_rate": 1, "use_low_frame_rate": True, "ffn_dim": 2048, "llm_dim": 1024, "encoder_dim": 512,
        "n_layer": 2, "freeze": True,
    },
    "ctc_decoder": "Transformer",
    "ctc_decoder_conf": {
        "downsample_rate": 1, "ffn_dim": 2048, "llm_dim": 512, "encoder_dim": 512, "n_layer": 5, "freeze": False,
    },
    "ctc_vocab_size": 60515,
    "ctc_conf": {"dropout_rate": 0.0, "ctc_type": "builtin", "reduce": True, "ignore_nan_grad": True},
    "frontend": "WavFrontend",
    "frontend_conf": {
        "fs": 16000, "window": "hamming", "n_mels": 80, "frame_length": 25, "frame_shift": 10, "lfr_m": 7, "lfr_n": 6,
        "cmvn_file": None,
    },
    "dataset_conf": {
        "ctc_tokenizer": "SenseVoiceTokenizer",
        "ctc_tokenizer_conf": {"vocab_path": "multilingual.tiktoken", "is_multilingual": True, "num_languages": 8749},
        "do_think": True,
    },
}  # fmt: skip
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0,
    "max_position_embeddings": 40960, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "initializer_range": 0.02, "bos_token_id": 151643, "eos_token_id": 151645, "torch_dtype": "bfloat16",
    "use_cache": True,
}  # fmt: skip
TINY_NETWORK = {"ffn_dim": 80, "llm_dim": 64, "encoder_dim": 64, "n_layer": 2}
TINY: dict[str, Any] = {
    "audio_encoder_conf": {"output_size": 64, "linear_units": 96, "num_blocks": 4, "tp_blocks": 2},
    "audio_adaptor_conf": TINY_NETWORK,
    "ctc_decoder_conf": TINY_NETWORK,
    "ctc_vocab_size": 600,
}
TINY_QWEN3 = {
    "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512, "bos_token_id": 700,
    "eos_token_id": 702,
}  # fmt: skip
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Words of the prompt that are one token each, so that prompts are about as long as with the real tokenizer.
PROMPT_WORDS = (
    "system",
    "You",
    " are",
    " a",
    " helpful",
    " assistant",
    "user",
    "assistant",
    "语音",
    "转",
    "写",
    "：",
)
SIGNS = "etaoinshrdlucmfwypvbgkjqxz"


def write_folder(folder: Path, *, tiny: bool, device: str) -> Path:
    """Write a checkpoint with random weights, made on `device`; return its folder."""
    settings, qwen3 = copy.deepcopy(SETTINGS), dict(QWEN3)
    if tiny:
        for name, value in TINY.items():
            settings[name] = settings[name] | value if isinstance(value, dict) else value
        qwen3 |= TINY_QWEN3
    llm = folder / "Qwen3-0.6B"
    llm.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    (llm / "config.json").write_text(json.dumps(qwen3), "utf-8")
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": CONTROL[2], "pad_token": CONTROL[0]}
    (llm / "tokenizer_config.json").write_text(json.dumps(tokens), "utf-8")
    text_tokenizer(qwen3["bos_token_id"]).save(str(llm / "tokenizer.json"))
    (folder / "multilingual.tiktoken").write_bytes(ctc_vocabulary(settings["ctc_vocab_size"] - 1))
    torch.save(random_weights(folder, device), folder / "model.pt")
    return folder


def random_weights(folder: Path, device: str) -> dict[str, Tensor]:
    """What model.pt holds: float32, the language model bfloat16. Activations keep their size through all layers."""
    config = NanoConfig.read(folder)
    with torch.device("meta"):
        parts = FunAsrNano(
            config,
            Embeddings(config.llm.vocabulary, config.llm.width),
            FolderTokenizer(folder / config.llm.folder),
            CtcTokenizer.read(folder / config.ctc_vocabulary),
        )
    shapes = {name: tuple(tensor.shape) for name, tensor in parts.state_dict().items()}
    qwen3 = qwen3_shapes(config.llm, Section.read_json(folder / config.llm.folder / "config.json"))
    shapes |= {f"llm.{name}": shape for name, shape in qwen3.items()}
    generator = torch.Generator(device).manual_seed(7)
    return {name: _random(name, shape, generator).cpu() for name, shape in shapes.items()}


def text_tokenizer(plain: int) -> Tokenizer:
    """Bytes and made-up words, `plain` of them, then the control tokens, the prompt's words and the script's signs."""
    names = itertools.islice(itertools.chain(pre_tokenizers.ByteLevel.alphabet(), _words()), plain)
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROL))
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in (*PROMPT_WORDS, *script.SIGNS)])
    return tokenizer


def ctc_vocabulary(size: int) -> bytes:
    """A CTC vocabulary: bytes and made-up words."""
    tokens = [
        *(bytes([byte]) for byte in range(256)),
        *(word.encode() for word in itertools.islice(_words(), size)),
    ]
    return b"".join(
        base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate(tokens[:size])
    )


def _words() -> Iterator[str]:
    return ("".join(letters) for length in (2, 3, 4) for letters in itertools.product(SIGNS, repeat=length))


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    kind = torch.bfloat16 if name.startswith("llm.") else torch.float32
    values = torch.randn(shape, generator=generator, device=generator.device)
    if len(shape) > 1:
        scale = 0.02 if "embed_tokens" in name else 1 / math.sqrt(math.prod(shape[1:]))
        return (values * scale).to(kind)
    return (values * 0.1 + ("norm" in name and name.endswith("weight"))).to(kind)

"""GLM-ASR-Nano for tests: a folder in the official form with random weights, small enough to make anew each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from realtime_server.models.audio_llm import Embeddings
from realtime_server.models.glm_asr import GlmAsr
from realtime_server.models.glm_checkpoint import GlmConfig
from realtime_server.models.llm_weights import HEAD, llama_shapes, write_safetensors
from realtime_server.models.nano_config import Section
from realtime_server.models.prompt import FolderTokenizer

torch.set_num_threads(1)  # the tensors are small, and the machine may be busy with others

CONTROL = [
    "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|begin_of_audio|>", "<|end_of_audio|>", "<|pad|>",
]  # fmt: skip
FIRST_CONTROL = 260  # their ids, behind the bytes and the pairs
SETTINGS: dict[str, Any] = {
    "architectures": ["GlmAsrForConditionalGeneration"],
    "model_type": "glmasr",
    "audio_config": {
        "model_type": "glmasr_encoder", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "num_mel_bins": 128, "max_position_embeddings": 1500,
        "hidden_act": "gelu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "text_config": {
        "model_type": "llama", "vocab_size": 288, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "eos_token_id": [FIRST_CONTROL, FIRST_CONTROL + 2],
    },
    "audio_token_id": FIRST_CONTROL + CONTROL.index("<|pad|>"),
    "projector_hidden_act": "gelu",
    "tie_word_embeddings": True,
}  # fmt: skip
PUBLISHED: dict[str, Any] = SETTINGS | {
    "audio_config": SETTINGS["audio_config"] | {
        "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
        "num_key_value_heads": 20,
    },
    "text_config": SETTINGS["text_config"] | {
        "vocab_size": 59264, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 8192,
    },
}  # fmt: skip
FEATURES = {
    "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "sampling_rate": 16000,
    "hop_length": 160, "n_fft": 400, "chunk_length": 30, "n_samples": 480000, "nb_max_frames": 3000,
    "padding_side": "right", "padding_value": 0.0, "return_attention_mask": True,
}  # fmt: skip


def write_settings(folder: Path, settings: dict[str, Any] | None = None, template: str = "") -> Path:
    """Write everything but the weights; return the folder. template: how vLLM's class asks for a transcription."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", settings or SETTINGS)
    text_tokenizer().save(str(folder / "tokenizer.json"))
    tokens: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    write_json(
        folder / "tokenizer_config.json", tokens | {"pad_token": "<|endoftext|>", "chat_template": template}
    )
    processor = {"processor_class": "GlmAsrProcessor", "audio_token": "<|pad|>"}
    write_json(folder / "processor_config.json", processor | {"feature_extractor": FEATURES})
    write_json(folder / "preprocessor_config.json", {"processor_class": "GlmAsrProcessor", **FEATURES})
    return folder


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), "utf-8")


def write_folder(
    folder: Path, settings: dict[str, Any] | None = None, template: str = "", *, lively: bool = False
) -> Path:
    """Write a whole checkpoint with random weights; return its folder. lively: its texts depend on the audio."""
    write_settings(folder, settings, template)
    weights = random_weights(folder)
    if lively:
        for name, tensor in weights.items():
            if name.startswith("language_model.model.layers.") and tensor.dim() == 2:
                tensor.mul_(8)
            if name == "multi_modal_projector.linear_2.weight":
                tensor.mul_(5)
    write_safetensors(folder / "model.safetensors", weights)
    return folder


def random_weights(folder: Path) -> dict[str, torch.Tensor]:
    """What model.safetensors holds; biases are not zero, norms not one, the head is the embedding table."""
    config = GlmConfig.read(folder)
    torch.manual_seed(7)
    embeddings = Embeddings(config.llm.vocabulary, config.llm.width)
    weights = dict(GlmAsr(config, embeddings, FolderTokenizer(folder)).state_dict())
    conf = Section.read_json(folder / "config.json").section("text_config")
    for name, shape in llama_shapes(config.llm, conf).items():
        weights.setdefault(f"language_model.{name}", torch.randn(shape) * 0.05)
    for name, tensor in weights.items():
        if tensor.dim() == 1:
            tensor.copy_(torch.randn_like(tensor) * 0.1 + ("norm" in name and name.endswith("weight")))
    weights[f"language_model.{HEAD}"] = weights["language_model.model.embed_tokens.weight"]
    return weights


def text_tokenizer() -> Tokenizer:
    """Bytes, a few pairs, and the control tokens of the prompt."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("t", "h"), ("th", "e"), ("Ġ", "w"), ("s", "t")]
    names = [*alphabet, *("".join(pair) for pair in pairs)]
    assert len(names) == FIRST_CONTROL
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer

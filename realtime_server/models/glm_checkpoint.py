"""GLM-ASR-Nano checkpoints: found, opened once, compared with what the model expects.

    config.json         sizes: audio_config, text_config
    model.safetensors   every weight: audio_tower.*, multi_modal_projector.*, language_model.*; or in several files,
                        which model.safetensors.index.json lists
    tokenizer.json      the language model's tokenizer, and what else a tokenizer needs

This is the layout that transformers, vLLM and FunASR read. The model's first release had other names (whisper_config,
audio_encoder.*) and other positions in its encoder; it is told apart and refused.

The files are mapped into memory, not read; a tensor's bytes are read when it is copied to where it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from realtime_server.errors import WeightsError
from realtime_server.models.checkpoint import compare
from realtime_server.models.llm_weights import HEAD, LlmParts, check_dtypes, llama_shapes
from realtime_server.models.nano_config import LlmConfig, Section
from realtime_server.models.prompt import FolderTokenizer

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
AUDIO_PARTS = ("audio_tower.", "multi_modal_projector.")
LANGUAGE_PART = "language_model."
UNUSED = "audio_tower.embed_positions."  # of the encoder that this one was made of; vLLM leaves it out too
TOKENIZER_FILES = (
    "tokenizer",
    "special_tokens",
    "added_tokens",
    "vocab",
    "merges",
)  # beginnings of their names
MERGED = 4  # encoder frames in a row: constant in every implementation


@dataclass(frozen=True, slots=True)
class GlmEncoderConfig:
    """Sizes of the encoder."""

    mels: int
    width: int
    heads: int
    inner: int
    layers: int
    frames: int  # of its output, always: 20 ms each
    rotary: int  # of a head's values, how many are turned by position
    theta: float  # base of the angles


@dataclass(frozen=True, slots=True)
class GlmConfig:
    """Everything that a checkpoint decides about the model."""

    encoder: GlmEncoderConfig
    llm: LlmConfig
    stop_ids: tuple[int, ...]  # tokens that end an answer

    @classmethod
    def read(cls, folder: Path) -> GlmConfig:
        """Read a checkpoint's settings; raise WeightsError naming what is missing or not supported."""
        top = Section.read_json(folder / CONFIG)
        if top.get("whisper_config") is not None:
            raise WeightsError(
                f"{folder} has the layout of the model's first release (whisper_config in config.json), which is not "
                "read here: get the present one, whose config.json has audio_config and text_config"
            )
        top.expect("model_type", "glmasr")
        top.expect("projector_hidden_act", None, "gelu")
        return cls(_encoder(top.section("audio_config")), *_llm(top.section("text_config")))


@dataclass(frozen=True, slots=True, eq=False)
class GlmCheckpoint:
    """An official folder, its weights mapped into memory."""

    folder: Path
    config: GlmConfig
    tensors: Mapping[str, Tensor]  # by official name, on the CPU
    files: tuple[Path, ...]  # that the tensors are in

    @classmethod
    def open(cls, folder: Path) -> GlmCheckpoint:
        """Open a folder; raise WeightsError naming the file or setting that is missing or damaged."""
        config, files = GlmConfig.read(folder), _weight_files(folder)
        tensors = {name: tensor for path in files for name, tensor in _mapped(path).items()}
        tied = config.llm.tied or f"{LANGUAGE_PART}{HEAD}" not in tensors
        return cls(folder, replace(config, llm=replace(config.llm, tied=tied)), tensors, files)

    def tensors_for(
        self, expected: Mapping[str, Tensor], device: str | torch.device, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Copies of the tensors that a module wants, by the names and shapes of its `state_dict()`.

        Weights of the language model beyond those are left out. Raises WeightsError naming every tensor that is
        missing, has another shape, or belongs to the encoder or the adaptor but is not expected there.
        """
        found = {
            name: tensor
            for name, tensor in self.tensors.items()
            if name in expected or (name.startswith(AUDIO_PARTS) and not name.startswith(UNUSED))
        }
        compare(self.files[0], {name: tensor.shape for name, tensor in expected.items()}, found)
        return {name: tensor.to(device=device, dtype=dtype, copy=True) for name, tensor in found.items()}

    def text_tokenizer(self) -> FolderTokenizer:
        """The language model's tokenizer."""
        return FolderTokenizer(self.folder)

    def llm_parts(self) -> LlmParts:
        """The language model, for `llm_weights.write_llm`: a Llama under its own names, with a config of its own."""
        llm = self.config.llm
        own = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": llm.tied}
        beside = {
            path.name: path.read_bytes()
            for path in sorted(self.folder.iterdir())
            if path.is_file() and path.name.startswith(TOKENIZER_FILES)
        }
        beside[CONFIG] = json.dumps({**llm.settings, **own}, indent=2).encode()
        return LlmParts(self.folder, self.files, beside, self.llm_tensors)

    def llm_tensors(self) -> dict[str, Tensor]:
        """The language model's tensors under a Llama's names; WeightsError where they do not fit its config."""
        llm = self.config.llm
        found = {
            name.removeprefix(LANGUAGE_PART): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(LANGUAGE_PART) and not name.endswith("inv_freq")
        }
        if llm.tied:  # the head is the embedding table, which need not be stored twice
            found.pop(HEAD, None)
        config = Section.read_json(self.folder / CONFIG).section("text_config")
        compare(self.files[0], llama_shapes(llm, config), found)
        check_dtypes(self.files[0], found)
        return found


def _encoder(conf: Section) -> GlmEncoderConfig:
    conf.expect("model_type", None, "glmasr_encoder")
    conf.expect("hidden_act", None, "gelu")
    width, heads = conf.integer("hidden_size"), conf.heads("hidden_size", name="num_attention_heads")
    conf.expect("num_key_value_heads", None, heads)
    conf.expect("head_dim", None, width // heads)
    conf.expect("intermediate_size", MERGED * width)
    rope = conf.section("rope_parameters", {})
    rope.expect("rope_type", None, "default")
    share = rope.number("partial_rotary_factor", conf.number("partial_rotary_factor", 0.5))
    return GlmEncoderConfig(
        mels=conf.integer("num_mel_bins"),
        width=width,
        heads=heads,
        inner=conf.integer("intermediate_size"),
        layers=conf.integer("num_hidden_layers"),
        frames=conf.integer("max_position_embeddings", 1500),
        rotary=int(width // heads * share),
        theta=rope.number("rope_theta", 10_000.0),
    )


def _llm(conf: Section) -> tuple[LlmConfig, tuple[int, ...]]:
    conf.expect("model_type", None, "llama")
    stop = conf.get("eos_token_id")
    ids = tuple(stop) if isinstance(stop, list) else (stop,)
    if not ids or not all(isinstance(each, int) for each in ids):
        raise WeightsError(
            f"{conf.path}: text_config.eos_token_id is {stop!r}, not tokens that end an answer"
        )
    config = LlmConfig(
        folder=".",
        kind="llama",
        vocabulary=conf.integer("vocab_size"),
        width=conf.integer("hidden_size"),
        tied=conf.flag("tie_word_embeddings", False),
        settings=conf.values,
    )
    return config, ids


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """The files with the weights; raise WeightsError if one is missing."""
    names = [WEIGHTS]
    if (folder / INDEX).is_file():
        listed = Section.read_json(folder / INDEX).section("weight_map").values
        names = sorted({Path(str(name)).name for name in listed.values()}) or names
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise WeightsError(f"{folder} has no {missing[0]}")
    return tuple(folder / name for name in names)


def _mapped(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise WeightsError(
            f"reading {path} needs the package safetensors: pip install safetensors"
        ) from error
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(
            f"{path} cannot be opened ({error}); it may be cut short, or a pointer to a large file that was not "
            "fetched: get it again"
        ) from error
    return tensors

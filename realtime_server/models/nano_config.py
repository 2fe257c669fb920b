"""A Fun-ASR-Nano folder's config.yaml, and the config.json of its language model, as sizes.

Sizes are read, never assumed: what is missing, or asks for something that is not implemented, is an error that names
the setting. Settings that only training uses are not looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realtime_server.core.alignment import FRAME_MS
from realtime_server.errors import WeightsError
from realtime_server.models.adaptor import AdaptorConfig
from realtime_server.models.ctc import CtcConfig
from realtime_server.models.frontend import FrontendConfig
from realtime_server.models.prompt import PromptConfig
from realtime_server.models.sense_voice import EncoderConfig

TRANSLATE = "translate_prompt"  # ours: no published file has a task for translation, but one can be trained
ADAPTOR_HEADS = 8  # where the file says nothing: the reference's default, which no published file overrides


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """The language model, as far as prompts and the splitting of weights need it."""

    folder: str  # inside the checkpoint: config and tokenizer, no weights
    kind: str  # architecture, such as "qwen3"
    vocabulary: int
    width: int
    tied: bool  # the output head is the embedding table
    settings: Mapping[str, Any]  # config.json as it is


@dataclass(frozen=True, slots=True)
class NanoConfig:
    """Everything that a checkpoint decides about the model."""

    frontend: FrontendConfig
    encoder: EncoderConfig
    adaptor: AdaptorConfig
    ctc: CtcConfig | None  # None: the model has no CTC branch
    ctc_vocabulary: str  # file of the CTC tokens, inside the checkpoint; "" without a branch
    prompt: PromptConfig
    llm: LlmConfig

    @classmethod
    def read(cls, folder: Path) -> NanoConfig:
        """Read a checkpoint's settings; raise WeightsError naming what is missing or not supported."""
        top = Section.read_yaml(folder / "config.yaml")
        top.expect("model", "FunASRNano")
        frontend = _frontend(top)
        encoder = _encoder(top, frontend.width)
        llm = _llm(folder, top.section("llm_conf").text("init_param_path"))
        adaptor = _adaptor(top, "audio_adaptor", encoder.width)
        if adaptor.width != llm.width:
            raise WeightsError(
                f"{top.path}: audio_adaptor_conf.llm_dim is {adaptor.width}, but the language model in {llm.folder} "
                f"has hidden_size {llm.width}"
            )
        ctc = _ctc(top, encoder.width) if top.get("ctc_decoder") is not None else None
        dataset = top.section("dataset_conf", {})
        vocabulary = dataset.section("ctc_tokenizer_conf").text("vocab_path") if ctc else ""
        prompt = PromptConfig(
            system=dataset.flag("sys_prompt", True),
            think=dataset.flag("do_think", True),
            translate=dataset.text(TRANSLATE) if dataset.get(TRANSLATE) is not None else None,
        )
        return cls(frontend, encoder, adaptor, ctc, Path(vocabulary).name, prompt, llm)


class Section:
    """A mapping of a settings file that knows where it is, for errors."""

    def __init__(
        self, path: Path, values: Mapping[str, Any], prefix: str = "", root: Section | None = None
    ) -> None:
        """Wrap `values`, which lie at `prefix` (ends with a dot, or is empty) of the file."""
        self.path = path
        self._values = values
        self._prefix = prefix
        self._root = root or self

    @classmethod
    def read_yaml(cls, path: Path) -> Section:
        """Read a YAML file; raise WeightsError if it is missing or no mapping."""
        try:
            import yaml
        except ImportError as error:
            raise WeightsError(f"reading {path} needs the package pyyaml: pip install pyyaml") from error
        try:
            values = yaml.safe_load(path.read_text("utf-8"))
        except OSError as error:
            raise WeightsError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, yaml.YAMLError) as error:
            raise WeightsError(f"{path} is no YAML file: {error}") from error
        return cls(path, _mapping(path, values))

    @classmethod
    def read_json(cls, path: Path) -> Section:
        """Read a JSON file; raise WeightsError if it is missing or no mapping."""
        try:
            values = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise WeightsError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise WeightsError(f"{path} is no JSON file: {error}") from error
        return cls(path, _mapping(path, values))

    @property
    def values(self) -> Mapping[str, Any]:
        """The mapping as it is."""
        return self._values

    def get(self, name: str) -> Any:
        """The value of a setting, None if it has none; `${a.b}` stands for the value of another setting."""
        value = self._values.get(name)
        if isinstance(value, str) and value.startswith("${") and value.endswith("}"):
            section, *names = self._root, *value[2:-1].split(".")
            value = section._values
            for part in names:
                value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`."""
        value = self.get(name) if self.get(name) is not None else default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(name, value, f"a whole number of at least {least}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number above zero."""
        value = self.get(name) if self.get(name) is not None else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self._wrong(name, value, "a number above zero")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.get(name) if self.get(name) is not None else default
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self.get(name)
        if not isinstance(value, str) or not value:
            raise self._wrong(name, value, "a text")
        return value

    def section(self, name: str, default: Mapping[str, Any] | None = None) -> Section:
        """A mapping below this one."""
        value = self.get(name) if self.get(name) is not None else default
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "a section")
        return Section(self.path, value, f"{self._prefix}{name}.", self._root)

    def heads(self, width: str, default: int | None = None, *, name: str = "attention_heads") -> int:
        """The setting `name`, by which the setting `width` can be divided."""
        heads = self.integer(name, default)
        if self.integer(width) % heads:
            raise self._wrong(width, self.get(width), f"a multiple of the {heads} {name}")
        return heads

    def expect(self, name: str, *supported: Any) -> None:
        """Raise WeightsError unless a setting has one of the values that are supported; None allows its absence."""
        if (value := self.get(name)) not in supported:
            raise self._wrong(name, value, " or ".join(str(each) for each in supported if each is not None))

    def _wrong(self, name: str, value: Any, wanted: str) -> WeightsError:
        said = f"{self.path}: {self._prefix}{name} is"
        return WeightsError(
            f"{said} missing; it must be {wanted}" if value is None else f"{said} {value!r}, not {wanted}"
        )


def _mapping(path: Path, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise WeightsError(f"{path} holds no settings")
    return values


def _frontend(top: Section) -> FrontendConfig:
    top.expect("frontend", "WavFrontend", "wav_frontend")
    conf = top.section("frontend_conf")
    conf.expect("fs", 16_000)
    conf.expect("window", "hamming")
    conf.expect("cmvn_file", None, "null")
    config = FrontendConfig(
        rate=conf.integer("fs"),
        mels=conf.integer("n_mels"),
        window_ms=conf.integer("frame_length"),
        shift_ms=conf.integer("frame_shift"),
        stack=conf.integer("lfr_m"),
        skip=conf.integer("lfr_n"),
    )
    if config.shift_ms * config.skip != FRAME_MS:
        raise WeightsError(f"{top.path}: frontend_conf.frame_shift times lfr_n must be {FRAME_MS} ms")
    return config


def _encoder(top: Section, input_width: int) -> EncoderConfig:
    top.expect("audio_encoder", "SenseVoiceEncoderSmall")
    conf = top.section("audio_encoder_conf")
    conf.expect("normalize_before", None, True)
    conf.expect("selfattention_layer_type", None, "sanm")
    return EncoderConfig(
        input_width=input_width,
        width=conf.integer("output_size"),
        heads=conf.heads("output_size"),
        inner=conf.integer("linear_units"),
        blocks=conf.integer("num_blocks"),
        tp_blocks=conf.integer("tp_blocks", least=0),
        kernel=conf.integer("kernel_size"),
        memory_shift=conf.integer("sanm_shfit", 0, least=0),  # spelled so in every published file
    )


def _adaptor(top: Section, name: str, input_width: int) -> AdaptorConfig:
    top.expect(name, "Transformer")
    conf = top.section(f"{name}_conf")
    conf.expect("downsample_rate", 1)
    conf.expect("encoder_dim", None, input_width)
    return AdaptorConfig(
        input_width=input_width,
        inner=conf.integer("ffn_dim"),
        width=conf.integer("llm_dim"),
        blocks=conf.integer("n_layer", least=0),
        heads=conf.heads("llm_dim", ADAPTOR_HEADS),
        low_frame_rate=conf.flag("use_low_frame_rate", False),
    )


def _ctc(top: Section, input_width: int) -> CtcConfig:
    decoder = _adaptor(top, "ctc_decoder", input_width)
    vocabulary = top.integer("ctc_vocab_size")
    blank = top.section("ctc_conf", {}).integer("blank_id", vocabulary - 1, least=0)
    return CtcConfig(decoder, vocabulary, blank)


def _llm(folder: Path, path: str) -> LlmConfig:
    name = Path(path).name
    conf = Section.read_json(folder / name / "config.json")
    return LlmConfig(
        folder=name,
        kind=conf.text("model_type"),
        vocabulary=conf.integer("vocab_size"),
        width=conf.integer("hidden_size"),
        tied=conf.flag("tie_word_embeddings", False),
        settings=conf.values,
    )

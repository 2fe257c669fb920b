"""Classes as vLLM's contract for speech-to-text wants them, each with a habit of real ones. No vLLM is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from realtime_server.core.jobs import Samples
from realtime_server.engines.speech_model import SpeechModel

MARKS = {"<|start|>": 1, "<|en|>": 2, "<|zh|>": 3, "<|transcribe|>": 4, "<|translate|>": 5, "<|prev|>": 6}


@dataclass(frozen=True)
class Params:
    """The fields of vLLM's SpeechToTextParams."""

    audio: Samples
    stt_config: Any
    model_config: Any
    language: str | None = None
    hotwords: str | None = None
    task_type: str = "transcribe"
    request_prompt: str = ""
    to_language: str | None = None


class Tokenizer:
    """Knows the marks that it is given; every other letter is a token of its own."""

    def __init__(self, marks: Mapping[str, int] = MARKS) -> None:
        self._marks = dict(marks)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        pieces = re.findall(r"<\|\w+\|>|.", text)
        return [token for piece in pieces for token in self._ids(piece)]

    def decode(self, ids: Sequence[int]) -> str:
        names = {token: mark for mark, token in self._marks.items()}
        return "".join(names.get(token, chr(token)) for token in ids)

    def _ids(self, piece: str) -> list[int]:
        return [self._marks[piece]] if piece in self._marks else [*map(ord, piece)]


class Base:
    """What the contract itself says, by default."""

    supported_languages: ClassVar[Mapping[str, str]] = {"zh": "Chinese", "en": "English", "de": "German"}
    clip_s: ClassVar[int | None] = 30
    rate: ClassVar[float] = 16_000.0

    @classmethod
    def get_speech_to_text_config(cls, model_config: Any, task_type: str) -> Any:
        return SimpleNamespace(sample_rate=cls.rate, max_audio_clip_s=cls.clip_s)

    @classmethod
    def validate_language(cls, language: str | None) -> str | None:
        if language is not None and language not in cls.supported_languages:
            raise ValueError(f"Unsupported language: {language!r}.")
        return language

    @classmethod
    def post_process_output(cls, text: str) -> str:
        return text


class EncoderDecoder(Base):
    """A language must be named, or is detected; the task is told."""

    supports_explicit_language_detection = True
    marks: ClassVar[Tokenizer] = Tokenizer()

    @classmethod
    def get_generation_prompt(cls, params: Params) -> Any:
        if params.language is None:
            raise ValueError("Language must be specified")
        before = f"<|prev|>{params.request_prompt}" if params.request_prompt else ""
        return {
            "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (params.audio, cls.rate)}},
            "decoder_prompt": {"prompt": f"{before}<|start|><|{params.language}|><|{params.task_type}|>"},
        }

    @classmethod
    def get_language_detection_prompt(cls, audio: Samples, stt_config: Any) -> Any:
        return {
            "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": audio}},
            "decoder_prompt": "<|start|>",
        }

    @classmethod
    def get_language_token_ids(cls, tokenizer: Tokenizer) -> list[int]:
        return [MARKS["<|en|>"], MARKS["<|zh|>"]]

    @classmethod
    def parse_language_detection_output(cls, ids: list[int], tokenizer: Tokenizer) -> str | None:
        found = tokenizer.decode(ids[:1])
        return found[2:-2] if found in MARKS else None


class Chatty(Base):
    """Token ids; a language begins the answer; a free prompt is a turn of its own; translation is a named language."""

    tokenizer: ClassVar[Tokenizer] = Tokenizer({})

    @classmethod
    def get_generation_prompt(cls, params: Params) -> Any:
        language = params.to_language if params.task_type == "translate" else params.language
        text = f"[{params.request_prompt}]" if params.request_prompt else ""
        text += "user:~;assistant:" + (f"language {cls.supported_languages[language]}:" if language else "")
        return {"prompt_token_ids": cls.tokenizer.encode(text), "multi_modal_data": {"audio": params.audio}}

    @classmethod
    def post_process_output(cls, text: str) -> str:
        return text.partition(":")[2] if text.startswith("language ") else text

    @classmethod
    def get_streaming_post_processor_cls(cls) -> type:
        return ChattyStream


class ChattyStream:
    """Says nothing before the tag has gone by."""

    def __init__(self) -> None:
        self._raw = ""
        self._said = ""

    def process_delta(self, text_delta: str, finished: bool) -> str:
        self._raw += text_delta
        text = self._raw.partition(":")[2]
        new, self._said = text[len(self._said) :], text
        return new


class Deaf(Base):
    """Takes English for granted, and listens to nothing but hotwords; no limit of length; another sample rate."""

    clip_s = None
    rate = 8000.0

    @classmethod
    def validate_language(cls, language: str | None) -> str | None:
        return super().validate_language(language) or "en"

    @classmethod
    def get_generation_prompt(cls, params: Params) -> Any:
        if params.language is None:
            raise ValueError("Language must be specified")
        words = f"hotwords: {params.hotwords}. " if params.hotwords else ""
        return {"prompt": f"{words}~", "multi_modal_data": {"audio": (params.audio, cls.rate)}}


class Instructed(Base):
    """A free prompt replaces the instruction; translation is another instruction."""

    @classmethod
    def get_generation_prompt(cls, params: Params) -> Any:
        if params.task_type == "translate" and not params.to_language:
            raise ValueError("Into which language?")
        usual = f"translate to {params.to_language}" if params.task_type == "translate" else "transcribe"
        return {"prompt": f"~ {params.request_prompt or usual}", "multi_modal_data": {"audio": params.audio}}


class Embedding(Base):
    """Its prompt is rows, and the language is in them; it has no way without one."""

    supported_languages: ClassVar[Mapping[str, str]] = {"de": "German"}

    @classmethod
    def get_generation_prompt(cls, params: Params) -> Any:
        if params.language is None:
            raise ValueError("Language must be specified")
        if params.task_type == "translate":
            raise NotImplementedError
        return {"prompt_embeds": np.full((4, 8), 0.5, np.float32)}


class Silent(Base):
    """Refuses everything."""

    @classmethod
    def get_generation_prompt(cls, params: Params) -> Any:
        raise ValueError("no")


def model_of(model_class: type[Base], tokenizer: Tokenizer | None = None) -> SpeechModel:
    """A class as the engine sees it."""
    return SpeechModel(model_class, SimpleNamespace(), Params, tokenizer or Tokenizer())

"""The prompt that the language model was trained with, as text before and after the audio rows.

    system turn, user turn with the task -> audio rows -> end of the user turn, beginning of the assistant's

The task names hotwords, language and whether numerals are to be written as numerals. Other layouts are about (with
speech markers around the audio, or with a think block); this one is what the reference implementation feeds.
Source: funasr's fun_asr_nano, `get_prompt` and `data_load_speech`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.languages import chinese_name
from realtime_server.core.postprocess import neutralise
from realtime_server.errors import UnsupportedError, WeightsError

SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
USER = "<|im_start|>user\n"
ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
STOPS = ("<|im_end|>", "<|endoftext|>")  # tokens that end an answer
NO_THINKING = "<think>\n\n</think>\n\n"
CONTEXT = (
    "请结合上下文信息，更加准确地完成语音转写任务。如果没有相关信息，我们会留空。\n\n\n"
    "**上下文信息：**\n\n\n热词列表：[{hotwords}]\n"
)  # fmt: skip
TASK = "语音转写"
INTO = "成{language}"
AS_SPOKEN = "，不进行文本规整"
COLON = "："
NO_TRANSLATION = (
    "this Fun-ASR-Nano cannot translate: its config.yaml names no dataset_conf.translate_prompt, the task that it was "
    "trained to take for that"
)


class TextTokenizer(Protocol):
    """The language model's tokenizer, as far as prompts need it."""

    def encode(self, text: str) -> Sequence[int]:
        """Ids of the text; control tokens written out in it become single ids, nothing is added around it."""


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """What a checkpoint may choose about the layout."""

    system: bool = True  # begin with the system turn
    think: bool = True  # False: begin the answer with an empty think block
    translate: str | None = None  # the task that it was trained to take for translation into English

    @property
    def translates(self) -> bool:
        """Whether it was trained to write English, whatever is spoken."""
        return self.translate is not None


class Prompt(NamedTuple):
    """Text around the audio rows."""

    before: str
    after: str


def build_prompt(
    options: DecodingOptions, prefix_text: str = "", config: PromptConfig | None = None
) -> Prompt:
    """Lay out the prompt; `prefix_text` is a beginning of the answer that is to be continued.

    What users wrote (hotwords, earlier text) cannot hold control tokens. Raises UnsupportedError for translation if the
    checkpoint names no task for it.
    """
    config = config or PromptConfig()
    system = SYSTEM if config.system else ""
    answer = ("" if config.think else NO_THINKING) + neutralise(prefix_text)
    return Prompt(before=f"{system}{USER}{_request(options, config)}", after=f"{ASSISTANT}{answer}")


def _request(options: DecodingOptions, config: PromptConfig) -> str:
    hotwords = ", ".join(word for word in map(neutralise, options.hotwords) if word)
    context = CONTEXT.format(hotwords=hotwords) if hotwords else ""
    return context + _task(options, config) + ("" if options.itn else AS_SPOKEN) + COLON


def _task(options: DecodingOptions, config: PromptConfig) -> str:
    if options.task == "transcribe":
        return TASK + (INTO.format(language=chinese_name(options.language)) if options.language else "")
    if config.translate is None:
        raise UnsupportedError(NO_TRANSLATION)
    return config.translate  # which names the language to write; the one that is heard has no place in it


class FolderTokenizer:
    """The tokenizer.json of a language model's folder."""

    def __init__(self, folder: Path) -> None:
        """Read it; raise WeightsError if it is missing or damaged, or the package that reads it is."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise WeightsError(f"{folder} has no tokenizer.json, which the prompt is written with")
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise WeightsError(
                f"reading {path} needs the package tokenizers: pip install tokenizers"
            ) from error
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise WeightsError(f"{path} cannot be read: {error}") from error

    def encode(self, text: str) -> list[int]:
        """See TextTokenizer."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

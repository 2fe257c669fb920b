"""A model class of vLLM's that implements SupportsTranscription: what it can be told, its prompts, its texts.

The contract says what a class may be told, not whether it listens: some take a language and leave it out of the prompt,
or call translation what is the same prompt. So each wish is tried: the prompt for a moment of sound is made with and
without it, and what changes nothing is not offered. Where a class has no place for hotwords they go into its
free prompt, if that is added to what the model is told anyway, and not put in its place.

Nothing of vLLM is imported here. Its classes are those of vLLM 0.22 to 0.32, whose contract differs in what these
releases add: a post-processor for growing text came with 0.26.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from realtime_server.core.jobs import Samples, Task
from realtime_server.core.languages import CODES
from realtime_server.core.postprocess import neutralise
from realtime_server.errors import ConfigurationError, EngineError, UnsupportedError

AUDIO = frozenset({"multi_modal_data", "multi_modal_uuids"})  # keys of a prompt under which the sound is
PLAIN_PROCESSOR = "StreamingTranscriptionPostProcessor"  # of the contract, which passes everything on
PROBE_WORD = "Zanzibar"
UNLIMITED_S = 60.0  # of one job, for models that name no limit: segments are never longer
TARGET = "en"  # of translations

HotwordPlace = Literal["hotwords", "request_prompt"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a class really does.

    languages: codes it can be told; None: it takes none.  assumed: what it takes where none is named; None: it goes
    without.  detects: it finds the language with a decode of its own.  needs_language: it neither assumes, nor detects,
    nor goes without.  hotwords: the parameter that carries them.  embeds: its prompts are embeddings.  longest_s: of
    one clip.  sample_rate: of the sound it wants.
    """

    languages: frozenset[str] | None
    assumed: str | None
    detects: bool
    needs_language: bool
    hotwords: HotwordPlace | None
    translates: bool
    embeds: bool
    longest_s: float
    sample_rate: int


class SpeechModel:
    """A class and the settings that vLLM read from its folder.

    model_class: implements SupportsTranscription.  model_config: vLLM's ModelConfig.  make_params: vLLM's
    SpeechToTextParams.  tokenizer: the model's, as vLLM has it. Makes some prompts at once, to see what they hold.
    Raises ConfigurationError if none can be made.
    """

    def __init__(
        self, model_class: Any, model_config: Any, make_params: Callable[..., Any], tokenizer: Any
    ) -> None:
        self._class, self._config, self._make_params = model_class, model_config, make_params
        self._tokenizer = tokenizer
        self._settings: dict[Task, Any] = {}
        self.traits = self._explore()

    def prompt(
        self, audio: Samples, *, language: str | None, hotwords: Sequence[str] = (), task: Task = "transcribe"
    ) -> Any:
        """Return what vLLM calls a PromptType; it may take long. audio: at the model's own sample rate.

        Raises UnsupportedError for what the class will not take.
        """
        words = ", ".join(word for word in map(neutralise, hotwords) if word)
        place = self.traits.hotwords if words else None
        try:
            return self._make(audio, language, task, {place: words} if place else {})
        except ValueError as error:
            raise UnsupportedError(f"this model cannot be asked that: {error}") from error

    def detection(self, audio: Samples) -> tuple[Any, list[int] | None]:
        """Return the prompt whose first token is the language, and the tokens among which it is."""
        prompt = self._class.get_language_detection_prompt(audio, self._setting("transcribe"))
        return prompt, self._class.get_language_token_ids(self._tokenizer)

    def detected(self, ids: Sequence[int]) -> str:
        """Return the code of the language that the first of these tokens names. Raises EngineError."""
        try:
            code: str | None = self._class.parse_language_detection_output(list(ids), self._tokenizer)
        except (AssertionError, ValueError, IndexError) as error:
            raise EngineError("the model named no language") from error
        if code is None:  # as releases before 0.24 say it
            raise EngineError("the model named no language")
        return code

    def checked(self, language: str | None) -> str | None:
        """Return a language as the class wants it. Raises UnsupportedError for one that it refuses."""
        if language is None:
            return self.traits.assumed
        try:
            code: str | None = self._class.validate_language(language)
        except ValueError as error:
            raise UnsupportedError(f"this model refuses the language '{language}': {error}") from error
        return code

    def text(self, raw: str) -> str:
        """Return the text of what the model said: tags and the like are taken away by its class."""
        return str(self._class.post_process_output(raw)).strip()

    def growing(self) -> Callable[[str], str]:
        """Return a function from everything said so far to its text, for one answer that grows."""
        make = getattr(self._class, "get_streaming_post_processor_cls", None)
        if make is None or make().__name__ == PLAIN_PROCESSOR:
            return self.text
        processor, raw, text = make()(), "", ""

        def grow(said: str) -> str:
            nonlocal raw, text
            text += str(processor.process_delta(said[len(raw) :], False))
            raw = said
            return text.strip()

        return grow

    # --- what the class does ------------------------------------------------------------------------------

    def _setting(self, task: Task) -> Any:
        if task not in self._settings:
            self._settings[task] = self._class.get_speech_to_text_config(self._config, task)
        return self._settings[task]

    def _make(self, audio: Samples, language: str | None, task: Task, words: Mapping[str, str]) -> Any:
        return self._class.get_generation_prompt(self._make_params(
            audio=audio, stt_config=self._setting(task), model_config=self._config, language=language, task_type=task,
            to_language=TARGET if task == "translate" else None, **words,
        ))  # fmt: skip

    def _explore(self) -> Traits:
        setting = self._setting("transcribe")
        rate = round(setting.sample_rate)
        self._sound = np.random.default_rng(0).normal(0.0, 0.01, rate).astype(np.float32)
        codes = sorted(
            CODES.intersection(self._class.supported_languages), key=lambda code: (code != TARGET, code)
        )
        assumed = self._class.validate_language(None)
        made = {code: made for code in (assumed, *codes[:2]) if (made := self._try(code)) is not None}
        if not made:
            raise ConfigurationError(f"{self._class.__name__} makes no prompt, with a language or without")
        usual, plain = next(iter(made.items()))
        detects = bool(getattr(self._class, "supports_explicit_language_detection", False))
        told = {repr(prompt) for prompt in made.values()}
        return Traits(
            languages=frozenset(codes) if len(told) > 1 or assumed not in made else None,
            assumed=assumed,
            detects=detects and assumed is None,
            needs_language=assumed not in made and not detects,
            hotwords=self._find_place(usual, plain),
            translates=self._finds_translation(codes),
            embeds="prompt_embeds" in plain,
            longest_s=float(setting.max_audio_clip_s or UNLIMITED_S),
            sample_rate=rate,
        )

    def _try(
        self, language: str | None, task: Task = "transcribe", words: Mapping[str, str] | None = None
    ) -> Any:
        """A prompt without its sound; None if the class refuses."""
        try:
            return skeleton(self._make(self._sound, language, task, words or {}))
        except (ValueError, NotImplementedError):
            return None

    def _find_place(self, language: str | None, plain: Any) -> HotwordPlace | None:
        made = self._try(language, words={"hotwords": PROBE_WORD})
        if made is not None and made != plain:
            return "hotwords"
        made = self._try(language, words={"request_prompt": PROBE_WORD})
        if not is_insertion(plain, made):
            return None
        new = self._marks(made) - self._marks(plain)
        known = all(len(self._tokenizer.encode(mark, add_special_tokens=False)) == 1 for mark in new)
        return "request_prompt" if known else None

    def _marks(self, prompt: Any) -> set[str]:
        """What is written in a prompt as control tokens are; some classes write what their tokenizer has none for."""
        if isinstance(prompt, dict):
            return set[str]().union(*map(self._marks, prompt.values()))
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
            prompt = self._tokenizer.decode(prompt)
        return set(re.findall(r"<\|[^<>|]+\|>", prompt)) if isinstance(prompt, str) else set()

    def _finds_translation(self, codes: Sequence[str]) -> bool:
        """Whether translation from another language is neither transcribing it nor transcribing the target."""
        source = next((code for code in codes if code != TARGET), None)
        made = self._try(source, "translate")
        return made is not None and made not in (self._try(source), self._try(TARGET))


def skeleton(prompt: Any) -> Any:
    """A prompt without its sound, of values that can be compared."""
    if isinstance(prompt, Mapping):
        return {key: skeleton(value) for key, value in prompt.items() if key not in AUDIO}
    if hasattr(prompt, "tolist"):  # embeddings
        return prompt.tolist()
    return list(prompt) if isinstance(prompt, tuple) else prompt


def is_insertion(plain: Any, more: Any) -> bool:
    """Whether `more` says all that `plain` does and something beside, in one place of each text or list of tokens.

    Both are skeletons of prompts.
    """
    if isinstance(plain, dict) and isinstance(more, dict) and plain.keys() == more.keys():
        changed = [key for key in plain if plain[key] != more[key]]
        return bool(changed) and all(is_insertion(plain[key], more[key]) for key in changed)
    if not isinstance(plain, str | list) or not isinstance(more, type(plain)):
        return False
    whole = _shared(plain, more) + _shared(plain[::-1], more[::-1]) >= len(plain)
    return whole and len(more) > len(plain)


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))

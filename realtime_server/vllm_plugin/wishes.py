"""What a request to vLLM asks for, in our terms; and whether its audio is fit to be heard.

vLLM answers a ValueError with status 400 and its text. It trusts its models with the rest: a value that is not finite,
once in a batch, spoils the answers to others. So everything is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from realtime_server.core.commands import split_words
from realtime_server.core.jobs import DecodingOptions, Samples, Task
from realtime_server.core.languages import code_of, english_name
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import ProtocolError
from realtime_server.models.prompt import NO_TRANSLATION

TARGET = "en"  # of translations
LONGEST_S = 30  # of a clip; beyond, the model is known to lose passages
LONGEST_TEXT = 65_536  # characters of hotwords; splitting takes a while
LOUDEST = 1e6  # of a sample, full scale being 1: energies of much louder ones overflow


def language_code(name: str | None) -> str | None:
    """The code of a language given by code or name, in English or Chinese; None: it is to be detected.

    Raises ValueError for what no language is called.
    """
    try:
        return None if name is None else code_of(name)
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def decoding_options(
    *, language: str | None, hotwords: str | None, prompt: str, task: str, to_language: str | None,
    translates: bool,
) -> DecodingOptions:  # fmt: skip
    """The options that the prompt is built from.

    language, to_language: codes.  hotwords: a list in one text.  prompt: OpenAI's hint, taken for hotwords too.
    translates: whether the checkpoint was trained to.
    Raises ValueError for what the model cannot do.
    """
    checked = _checked_task(task, language, to_language, translates)
    texts = [text for text in (hotwords, prompt) if text]
    if (characters := sum(map(len, texts))) > LONGEST_TEXT:
        raise ValueError(f"{characters} characters of hotwords are too many; the limit is {LONGEST_TEXT}")
    words = dict.fromkeys(word for text in texts for word in split_words(text))
    return DecodingOptions(language=language, hotwords=tuple(words), task=checked)


def _checked_task(task: str, language: str | None, to_language: str | None, translates: bool) -> Task:
    if task == "transcribe":
        if to_language not in (None, language):
            raise ValueError(
                "/v1/audio/transcriptions takes no to_language; for English, /v1/audio/translations"
            )
        return "transcribe"
    if not translates:
        raise ValueError(f"{NO_TRANSLATION}; use /v1/audio/transcriptions")
    if to_language not in (None, TARGET):
        raise ValueError(f"this model translates into English alone, not into {english_name(to_language)}")
    return "translate"


def checked_waveform(audio: Any) -> Samples:
    """The samples (n,), float32, of a clip at 16 kHz; raise ValueError unless they are safe to encode."""
    samples = checked_samples(audio)
    if not samples.size:
        raise ValueError("there is no sound in this audio")
    if samples.size > LONGEST_S * SAMPLE_RATE:
        raise ValueError(
            f"a clip of {samples.size / SAMPLE_RATE:.1f} s is too long: the model hears {LONGEST_S} s at a time"
        )
    return samples


def checked_samples(audio: Any) -> Samples:
    """Samples (n,), float32, of any length; raise ValueError unless they are numbers of a reasonable size."""
    samples = np.asarray(audio)
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(f"audio must be one row of floats, not {samples.dtype} of shape {samples.shape}")
    if samples.size and not np.abs(samples).max() <= LOUDEST:  # which is false of NaN, too
        raise ValueError("the audio holds values that are not numbers, or far too large")
    return np.ascontiguousarray(samples, np.float32)

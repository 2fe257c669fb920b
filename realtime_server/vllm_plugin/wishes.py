"""What a request to vLLM asks for, in our terms; and whether its audio is fit to be heard.

vLLM answers a ValueError with status 400 and its text. It trusts its models with the rest: a value that is not finite,
once in a batch, spoils the answers to others. So everything is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from realtime_server.core.commands import split_words
from realtime_server.core.jobs import DecodingOptions, Samples
from realtime_server.core.languages import code_of
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import ProtocolError

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
    *, language: str | None, hotwords: str | None, prompt: str, task: str, to_language: str | None
) -> DecodingOptions:
    """The options that the prompt is built from.

    language, to_language: codes.  hotwords: a list in one text.  prompt: OpenAI's hint, taken for hotwords too.
    Raises ValueError for what the model cannot do.
    """
    if task != "transcribe" or (to_language is not None and to_language != language):
        raise ValueError("Fun-ASR-Nano cannot translate: use /v1/audio/transcriptions, without to_language")
    texts = [text for text in (hotwords, prompt) if text]
    if (characters := sum(map(len, texts))) > LONGEST_TEXT:
        raise ValueError(f"{characters} characters of hotwords are too many; the limit is {LONGEST_TEXT}")
    words = dict.fromkeys(word for text in texts for word in split_words(text))
    return DecodingOptions(language=language, hotwords=tuple(words))


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

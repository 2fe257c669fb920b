"""The short form: the encoder runs beside vLLM's endpoint, and vLLM gets the prompt as embeddings.

    vllm serve FOLDER --config-format fun-asr-nano-embeds --tokenizer FOLDER/Qwen3-0.6B --enable-prompt-embeds

vLLM builds prompts in its event loop, so that clips are encoded one after the other, each alone: nothing depends on
what else is asked, and everybody waits for everybody. For more than a few at once audio.py is the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from vllm.inputs import PromptType
from vllm.platforms import current_platform

from realtime_server.models.checkpoint import Checkpoint
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.vllm_plugin.contract import MLT_NAMES, NanoTranscription, read_request
from realtime_server.vllm_plugin.folder import opened
from realtime_server.vllm_plugin.language_model import NanoLanguageModel

if TYPE_CHECKING:
    from vllm.config import ModelConfig, SpeechToTextConfig
    from vllm.config.speech_to_text import SpeechToTextParams


class FunAsrNanoEmbeds(NanoLanguageModel, NanoTranscription):
    """vLLM runs a language model that continues embeddings."""

    @classmethod
    def get_speech_to_text_config(
        cls, model_config: ModelConfig, task_type: Literal["transcribe", "translate"]
    ) -> SpeechToTextConfig:
        """See NanoTranscription; loads the encoder too, so that no request waits for that."""
        audio_half(model_config.model, model_config.dtype)
        return super().get_speech_to_text_config(model_config, task_type)

    @classmethod
    def get_generation_prompt(cls, stt_params: SpeechToTextParams) -> PromptType:
        """The prompt, embedded: text, audio and text rows.

        Every row has an id as well, which nobody reads: without, penalties read ids left over from other requests.
        """
        samples, options = read_request(stt_params)
        config = stt_params.model_config
        encoder = audio_half(config.model, config.dtype)
        rows = encoder.prompt_rows(options, encoder.encode([samples], words=False)[0])
        if not torch.isfinite(rows).all():
            raise ValueError("this audio cannot be encoded: what comes out are not numbers")
        count, filler = len(rows), opened(config.model).filler
        return {
            "prompt_embeds": rows.cpu(),
            "prompt_token_ids": [filler] * count,
            "prompt_is_token_ids": [False] * count,
        }


class FunAsrNanoEmbedsMlt(FunAsrNanoEmbeds):
    """The same for a checkpoint trained on 31 languages."""

    supported_languages: ClassVar[Mapping[str, str]] = MLT_NAMES


@lru_cache(maxsize=1)
def audio_half(model: str, dtype: torch.dtype) -> FunAsrNano:
    """Encoder, adaptor and embedding table of a folder, where vLLM runs."""
    checkpoint = replace(Checkpoint.open(Path(model)), has_ctc=False)
    return FunAsrNano.load(checkpoint, current_platform.device_type, dtype)

"""The full form with vLLM's own live endpoint, /v1/realtime.

    vllm serve FOLDER --config-format fun-asr-nano-realtime --tokenizer FOLDER/Qwen3-0.6B

A class of its own, because vLLM shows this endpoint only for models that are not transcription-only. It cuts the stream
at pauses and answers each piece when its pause has come. vLLM keeps earlier pieces and answers in the context, which
the model was not trained with: the first piece of a connection is what the other endpoints say, later ones need not be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, ClassVar

from vllm.inputs import PromptType
from vllm.model_executor.models.interfaces import SupportsRealtime

from realtime_server.core.jobs import DecodingOptions, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.vllm_plugin.audio import FunAsrNanoAudio
from realtime_server.vllm_plugin.contract import MLT_NAMES
from realtime_server.vllm_plugin.folder import LONGEST_ANSWER, opened
from realtime_server.vllm_plugin.utterances import Utterances
from realtime_server.vllm_plugin.wishes import checked_samples

if TYPE_CHECKING:
    from vllm.config import ModelConfig

TURN_OVER = "<|im_end|>\n"


class FunAsrNanoLive(FunAsrNanoAudio, SupportsRealtime):
    """As its base, and live; vLLM offers text generation with it, which nobody should use."""

    supports_transcription_only: ClassVar[bool] = False
    realtime_max_tokens: ClassVar[int] = LONGEST_ANSWER

    @classmethod
    async def buffer_realtime_audio(
        cls, audio_stream: AsyncGenerator[Samples, None], input_stream: asyncio.Queue[list[int]],
        model_config: ModelConfig,
    ) -> AsyncGenerator[PromptType, None]:  # fmt: skip
        """A prompt for each piece of a stream of 16 kHz audio.

        input_stream: answers so far; not looked at. Raises ValueError for audio that is unfit.
        """
        folder = opened(model_config.model)
        ids, turn_over = folder.prompt_ids(DecodingOptions()), folder.tokenizer.encode(TURN_OVER)
        before: list[int] = []  # vLLM takes away the token that ended the answer before
        async for clip in _clips(audio_stream):
            yield {
                "prompt_token_ids": [*before, *ids],
                "multi_modal_data": {"audio": (clip, SAMPLE_RATE)},
            }
            before = turn_over


class FunAsrNanoLiveMlt(FunAsrNanoLive):
    """The same for a checkpoint trained on 31 languages."""

    supported_languages: ClassVar[Mapping[str, str]] = MLT_NAMES


async def _clips(audio_stream: AsyncGenerator[Samples, None]) -> AsyncGenerator[Samples, None]:
    utterances = Utterances()
    async for samples in audio_stream:
        for clip in utterances.receive_audio(checked_samples(samples)):
            yield clip
    for clip in utterances.receive_end():
        yield clip

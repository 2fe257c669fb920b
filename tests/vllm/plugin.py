"""The plugin's classes and what their tests need of vLLM, imported without the warnings that importing vLLM gives."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from vllm.config import SpeechToTextConfig
    from vllm.config.speech_to_text import SpeechToTextParams
    from vllm.entrypoints.speech_to_text.base.serving import (
        SpeechToTextBaseServing,
        asr_inter_chunk_separator,
    )
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.interfaces import LANGUAGES as VLLM_LANGUAGES
    from vllm.model_executor.models.interfaces import (
        SupportsTranscription,
        supports_multimodal,
        supports_realtime,
        supports_transcription,
    )
    from vllm.multimodal.audio import split_audio
    from vllm.multimodal.media.audio import load_audio
    from vllm.transformers_utils.config import get_config, get_config_parser

    from realtime_server.vllm_plugin.audio import FunAsrNanoAudio, FunAsrNanoAudioMlt, batches
    from realtime_server.vllm_plugin.embeds import FunAsrNanoEmbeds, FunAsrNanoEmbedsMlt, audio_half
    from realtime_server.vllm_plugin.live import FunAsrNanoLive, FunAsrNanoLiveMlt
    from realtime_server.vllm_plugin.processor import (
        NanoDummyInputs,
        NanoProcessingInfo,
        NanoProcessor,
        spread,
    )

__all__ = [
    "VLLM_LANGUAGES", "FunAsrNanoAudio", "FunAsrNanoAudioMlt", "FunAsrNanoEmbeds", "FunAsrNanoEmbedsMlt",
    "FunAsrNanoLive", "FunAsrNanoLiveMlt", "ModelRegistry", "NanoDummyInputs", "NanoProcessingInfo", "NanoProcessor",
    "SpeechToTextBaseServing", "SpeechToTextConfig", "SpeechToTextParams", "SupportsTranscription",
    "asr_inter_chunk_separator", "audio_half", "batches", "get_config", "get_config_parser",
    "load_audio", "split_audio", "spread", "supports_multimodal", "supports_realtime", "supports_transcription",
]  # fmt: skip

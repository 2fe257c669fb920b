"""Fun-ASR-Nano for people who run `vllm serve`: models that vLLM finds through its plugin entry point.

    vllm serve FOLDER --config-format fun-asr-nano --tokenizer FOLDER/Qwen3-0.6B

`--config-format` chooses the form: `fun-asr-nano` (audio goes into vLLM, the encoder runs there),
`fun-asr-nano-realtime` (the same, with /v1/realtime), `fun-asr-nano-embeds` (the encoder runs beside the endpoint and
vLLM gets embeddings). docs/vllm-plugin.md is the guide.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

PREFIX = "RealtimeServer"  # of architecture names: vLLM has a FunASR of its own
FORMS = {  # config format -> module and class; the class that knows 31 languages is called the same, with "Mlt"
    "fun-asr-nano": ("realtime_server.vllm_plugin.audio", "FunAsrNanoAudio"),
    "fun-asr-nano-realtime": ("realtime_server.vllm_plugin.live", "FunAsrNanoLive"),
    "fun-asr-nano-embeds": ("realtime_server.vllm_plugin.embeds", "FunAsrNanoEmbeds"),
}


def register() -> None:
    """Make vLLM know the models and their folders; called in every process of vLLM, any number of times.

    Imports no model: vLLM does when one is served. In a vLLM that lacks what is needed it warns, and leaves vLLM as it
    was: the plugin must not end those who serve something else.
    """
    try:
        from vllm.model_executor.models import ModelRegistry
        from vllm.transformers_utils.config import get_config_parser, register_config_parser

        from realtime_server.vllm_plugin.config_format import parser_of
    except ImportError as error:
        logger.warning("this vLLM cannot serve Fun-ASR-Nano: %s", error)
        return
    for config_format, (module, name) in FORMS.items():
        for variant in (name, f"{name}Mlt"):
            if f"{PREFIX}{variant}" not in ModelRegistry.models:
                ModelRegistry.register_model(f"{PREFIX}{variant}", f"{module}:{variant}")
        try:
            get_config_parser(config_format)
        except ValueError:  # the way in which vLLM says that it is not registered yet
            register_config_parser(config_format)(parser_of(f"{PREFIX}{name}"))

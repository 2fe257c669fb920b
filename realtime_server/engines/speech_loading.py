"""Finds a model's class in vLLM before anything is loaded: who named the wrong model is told at once, in a sentence."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from realtime_server.engines.speech_model import SpeechModel
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError

logger = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")  # of a model on a hub: owner/name


def open_model(options: SpeechOptions, device: str) -> tuple[SpeechModel, dict[str, Any], Any]:
    """Return a model, the arguments of the AsyncEngineArgs that load it, and vLLM's ModelConfig.

    Only its settings are read, or fetched from the hub. Plugins of vLLM's are loaded. Raises ConfigurationError.
    """
    if not Path(options.model).is_dir() and not NAME.fullmatch(options.model):
        raise ConfigurationError(
            f"--model {options.model}: it is no folder here, and no name of a model on a hub (owner/name)"
        )
    if options.hub == "ms":
        os.environ["VLLM_USE_MODELSCOPE"] = "True"  # read when vLLM is imported
    arguments = options.engine_args(device)
    _check_names(options.vllm_args)
    config, model_class = _find_class(options.model, arguments)
    from vllm.config.speech_to_text import SpeechToTextParams
    from vllm.tokenizers import cached_tokenizer_from_config

    try:
        model = SpeechModel(model_class, config, SpeechToTextParams, cached_tokenizer_from_config(config))
    except ConfigurationError:
        raise
    except Exception as error:  # foreign: the code of any model runs here
        raise ConfigurationError(
            f"--model {options.model}: {model_class.__name__} cannot be asked what it does: {why(error)}"
        ) from error
    if model.traits.embeds:
        arguments["enable_prompt_embeds"] = True
    logger.info("%s is a %s: %s", options.model, model_class.__name__, model.traits)
    return model, arguments, config


def sampling(
    max_tokens: int, *, logprobs: bool = False, stream: bool = False, allowed_ids: Sequence[int] | None = None
) -> Any:
    """How vLLM continues a prompt: SamplingParams for the likeliest tokens. allowed_ids: None for all."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=max_tokens,
        logprobs=0 if logprobs else None,
        allowed_token_ids=None if allowed_ids is None else list(allowed_ids),
        output_kind=RequestOutputKind.CUMULATIVE if stream else RequestOutputKind.FINAL_ONLY,
    )


def _check_names(given: Collection[str]) -> None:
    from vllm import AsyncEngineArgs, __version__

    known = {field.name for field in fields(AsyncEngineArgs)}
    for name in given:
        if name not in known:
            flag = name.replace("_", "-")
            raise ConfigurationError(f"--vllm-arg {flag}: vLLM {__version__} has no such argument")


def _find_class(name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """The ModelConfig, and the class that implements SupportsTranscription."""
    from vllm import AsyncEngineArgs
    from vllm.model_executor.model_loader import get_model_cls
    from vllm.model_executor.models import supports_transcription

    try:
        config = AsyncEngineArgs(**arguments).create_model_config()
        model_class = get_model_cls(config)
    except Exception as error:  # foreign: vLLM, transformers and the hub's client have no common base
        raise ConfigurationError(f"--model {name}: vLLM cannot use it: {why(error)}") from error
    if not supports_transcription(model_class):
        raise ConfigurationError(
            f"--model {name}: {model_class.__name__} is no speech-to-text model of vLLM's; "
            "it needs one that implements SupportsTranscription, such as Whisper"
        )
    return config, model_class


def why(error: Exception) -> str:
    """The first sentence of what an exception says, without the frame that pydantic puts around it."""
    text = str(error) or type(error).__name__
    text = text.partition("Value error, ")[2] or text
    line = next(line for line in text.splitlines() if line.strip())
    return re.split(r"\. (?=[A-Z])| \[type=", line.strip())[0].rstrip(".")

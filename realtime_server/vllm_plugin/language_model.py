"""The language model of an official folder: vLLM's Qwen3, with weights from model.pt."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

from realtime_server.models.checkpoint import FLOAT16, Checkpoint
from realtime_server.models.llm_weights import llm_tensors

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class NanoLanguageModel(Qwen3ForCausalLM):
    """A Qwen3 that reads its weights itself, mapped, by their official names."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        if vllm_config.model_config.dtype == torch.float16:
            raise ValueError(FLOAT16)
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.folder = Path(vllm_config.model_config.model)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the language model; return the names of its parameters.

        weights: what vLLM would read of model.pt, all of it into memory; not looked at. Raises WeightsError naming
        tensors that are missing or wrong.
        """
        loaded: set[str] = super().load_weights(iter(llm_tensors(Checkpoint.open(self.folder)).items()))
        return loaded

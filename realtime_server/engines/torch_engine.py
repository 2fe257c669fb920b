"""The language model in transformers: the slow way to the same text as vLLM.

It needs no vLLM, serves one request at a time, and is what the fast way is compared with.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from realtime_server.engines.batching import Batcher
from realtime_server.engines.generation import Generated, Sampling, check_rows
from realtime_server.engines.nano_options import NanoOptions, choose_device
from realtime_server.engines.vllm_setup import set_environment
from realtime_server.errors import EngineError
from realtime_server.weights import cache_folder

if TYPE_CHECKING:
    from torch import Tensor

    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
    from realtime_server.models.checkpoint import Checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A prompt on its way through the one thread; `dropped` ends its decoding at the next token."""

    rows: Tensor
    sampling: Sampling
    tell: Callable[[Sequence[int]], None] | None
    dropped: Event = field(default_factory=Event)


class TorchLlm:
    """A `LanguageModel` in this process.

    folder: the language model in the layout of Hugging Face.  dtype: name of torch's.  max_model_len: longest prompt
    and answer together, tokens.
    """

    def __init__(self, folder: Path, *, device: str, dtype: str, max_model_len: int) -> None:
        self._folder, self._device, self._dtype, self._room = folder, device, dtype, max_model_len
        self._queue: Batcher[Request, Generated] = Batcher(
            self._generate, lambda request: len(request.rows), max_batch=1, window_s=0.0
        )
        self._model: Any = None

    @property
    def healthy(self) -> bool:
        """Whether it has been started."""
        return self._model is not None

    async def start(self) -> None:
        """Load the model. Raises EngineError if that cannot be."""
        began_s = time.monotonic()
        self._model = await asyncio.to_thread(self._load)
        logger.info(
            "the language model in %s is there after %.1f s", self._folder, time.monotonic() - began_s
        )

    async def generate(
        self, rows: Tensor, sampling: Sampling, *, request_id: str, priority: int = 0,
        on_ids: Callable[[Sequence[int]], None] | None = None,
    ) -> Generated:  # fmt: skip
        """Continue a prompt, greedily, when its turn comes; cancelling ends it at the next token."""
        if self._model is None:
            raise EngineError("the language model has not been started, or has been closed")
        check_rows(rows, self._model.config.hidden_size, self._room)
        loop = asyncio.get_running_loop()

        def tell(ids: Sequence[int]) -> None:
            if on_ids is not None:
                loop.call_soon_threadsafe(on_ids, ids)

        request = Request(rows, sampling, tell if on_ids else None)
        try:
            return await self._queue.submit(request, priority)
        finally:
            request.dropped.set()

    async def aclose(self) -> None:
        """End what runs at its next token."""
        self._model = None
        await self._queue.aclose()

    def _load(self) -> Any:
        import torch

        transformers: Any = import_module("transformers")  # its annotations do not fit what it takes
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                self._folder, dtype=getattr(torch, self._dtype)
            )
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            raise EngineError(f"transformers cannot load {self._folder}: {error}") from error
        return model.to(self._device).eval()

    def _generate(self, requests: Sequence[Request], _: int) -> list[Generated]:
        """One request, in the thread. Raises what transformers raises, which the queue turns into EngineError."""
        import torch

        transformers: Any = import_module("transformers")
        (request,), model = requests, self._model
        sampling = request.sampling

        def ended(ids: Tensor, scores: Any, **_: Any) -> Tensor:
            if request.tell:
                request.tell(ids[0].tolist())
            return torch.full((1,), request.dropped.is_set(), device=ids.device)

        config = transformers.GenerationConfig(
            do_sample=False, use_cache=True, max_new_tokens=min(sampling.max_tokens, self._room - len(request.rows)),
            eos_token_id=list(sampling.stop_ids), pad_token_id=sampling.stop_ids[0] if sampling.stop_ids else 0,
            return_dict_in_generate=True, output_logits=sampling.logprobs,
        )  # fmt: skip
        embeds = request.rows[None].to(model.device, model.dtype)
        mask = torch.ones(embeds.shape[:2], dtype=torch.long, device=model.device)
        with torch.inference_mode():
            output = model.generate(
                inputs_embeds=embeds, attention_mask=mask, generation_config=config,
                stopping_criteria=transformers.StoppingCriteriaList([ended]),
            )  # fmt: skip
        ids = output.sequences[0].tolist()
        logprobs = None
        if sampling.logprobs:
            tables = torch.cat(output.logits).float().log_softmax(-1)
            logprobs = tables[range(len(ids)), ids].tolist()
        return [Generated.cut(ids, logprobs, sampling)]


def load(options: NanoOptions) -> FunAsrNanoEngine:
    """Load Fun-ASR-Nano with its language model in transformers; blocks. `warmup` must follow."""
    set_environment(options.device)
    device = choose_device(options.device)
    for package in ("torch", "transformers"):
        import_module(package)  # imported late, it would be missed late
    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
    from realtime_server.models.llm_weights import split_llm

    def start(checkpoint: Checkpoint) -> TorchLlm:
        folder, dtype = split_llm(checkpoint, cache_folder()), options.precision(device)
        return TorchLlm(folder, device=device, dtype=dtype, max_model_len=options.max_model_len)

    return FunAsrNanoEngine.load(options, device, start)

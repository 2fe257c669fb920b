"""Fun-ASR-Nano and GLM-ASR-Nano with their language models in vLLM, which continues embedded prompts.

Rows of a wrong width kill vLLM, and one row that is not finite corrupts the answers to others. So everything is checked
here before it is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realtime_server.engines.generation import Generated, Sampling, check_rows
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.vllm_host import VllmHost
from realtime_server.engines.vllm_setup import LlmOptions, check_installed, installed, ready_vllm
from realtime_server.weights import cache_folder

if TYPE_CHECKING:
    from torch import Tensor

    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
    from realtime_server.engines.glm_asr import GlmAsrEngine
    from realtime_server.models.checkpoint import Checkpoint
    from realtime_server.models.glm_checkpoint import GlmCheckpoint

FILLER_ID = 0  # stands for every row where vLLM wants to see ids


class VllmLlm:
    """A `LanguageModel` in vLLM, one for all sessions.

    folder: the language model in the layout of Hugging Face.  width: of its embeddings.
    Raises ConfigurationError if vLLM is missing or unfit.
    """

    def __init__(self, folder: Path, *, width: int, options: LlmOptions) -> None:
        check_installed(installed(), options.device)
        self.width = width
        self.cached_rows = 0  # rows of prompts that the prefix cache has spared so far
        self._options = options
        self._host = VllmHost(options.engine_args(folder), options.device)

    @property
    def healthy(self) -> bool:
        """Whether it runs; once it is false after `start`, it stays so."""
        return self._host.healthy

    @property
    def running(self) -> int:
        """Requests that vLLM has taken and not finished."""
        return self._host.running

    async def start(self) -> None:
        """Load the model; a minute or two. Raises EngineError or ConfigurationError if that cannot be."""
        await self._host.start()

    async def generate(
        self, rows: Tensor, sampling: Sampling, *, request_id: str, priority: int = 0,
        on_ids: Callable[[Sequence[int]], None] | None = None,
    ) -> Generated:  # fmt: skip
        """Continue a prompt, greedily; cancelling aborts.

        rows: (n, width), floating, on the CPU.  on_ids: called with all ids so far, as they come.
        Raises UnsupportedError for a prompt that is empty or too long, EngineError for one that is otherwise unfit,
        and when vLLM died or was closed.
        """
        self._host.refuse_if_down()
        check_rows(rows, self.width, self._options.max_model_len)

        def tell(output: Any) -> None:
            if on_ids is not None:
                on_ids(output.outputs[0].token_ids)

        params = self._params(sampling, len(rows), stream=on_ids is not None)
        output = await self._host.generate(
            _prompt(rows), params, request_id=request_id, priority=priority, on_output=tell
        )
        self.cached_rows += output.num_cached_tokens or 0
        return _generated(output.outputs[0], sampling)

    async def aclose(self) -> None:
        """Abort what runs and end vLLM's processes."""
        await self._host.aclose()

    def _params(self, sampling: Sampling, rows: int, *, stream: bool) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0.0,
            max_tokens=max(1, min(sampling.max_tokens, self._options.max_model_len - rows)),
            stop_token_ids=list(sampling.stop_ids),
            ignore_eos=True,  # it is among them
            logprobs=0 if sampling.logprobs else None,
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE if stream else RequestOutputKind.FINAL_ONLY,
        )


def _prompt(rows: Tensor) -> Any:
    """The form in which every position has an id of its own: without, some are left over from other requests."""
    count = len(rows)
    return {
        "prompt_embeds": rows,
        "prompt_token_ids": [FILLER_ID] * count,
        "prompt_is_token_ids": [False] * count,
    }


def _generated(completion: Any, sampling: Sampling) -> Generated:
    """What vLLM's CompletionOutput says."""
    ids = tuple(completion.token_ids)
    logprobs = None
    if completion.logprobs is not None:
        logprobs = tuple(table[token].logprob for token, table in zip(ids, completion.logprobs, strict=True))
    return Generated.cut(ids, logprobs, sampling)


def load(options: NanoOptions) -> FunAsrNanoEngine:
    """Load Fun-ASR-Nano's encoder and prepare its language model; blocks. `warmup`, which starts vLLM, must follow."""
    device = ready_vllm(options.device)
    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
    from realtime_server.models.llm_weights import split_llm

    def start(checkpoint: Checkpoint) -> VllmLlm:
        folder = split_llm(checkpoint, cache_folder())
        return VllmLlm(folder, width=checkpoint.config.llm.width, options=_llm_options(options, device))

    return FunAsrNanoEngine.load(options, device, start)


def load_glm(options: NanoOptions) -> GlmAsrEngine:
    """The same for GLM-ASR-Nano."""
    device = ready_vllm(options.device)
    from realtime_server.engines.glm_asr import GlmAsrEngine
    from realtime_server.models.llm_weights import write_llm

    def start(checkpoint: GlmCheckpoint) -> VllmLlm:
        folder = write_llm(checkpoint.llm_parts(), cache_folder())
        return VllmLlm(folder, width=checkpoint.config.llm.width, options=_llm_options(options, device))

    return GlmAsrEngine.load(options, device, start)


def _llm_options(options: NanoOptions, device: str) -> LlmOptions:
    return LlmOptions(
        device=device,
        dtype=options.precision(device),
        tensor_parallel_size=options.tensor_parallel_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_model_len=options.max_model_len,
        concurrency=2 * options.jobs_at_once(device),  # finals find room among files and partials
    )

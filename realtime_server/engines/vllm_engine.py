"""Fun-ASR-Nano with its language model in vLLM: one AsyncLLM that continues embedded prompts for all sessions.

vLLM runs in processes of its own. It trusts its callers more than one that serves many should be trusted: rows of a
wrong width kill it, and one row that is not finite corrupts the answers to others. So everything is checked here
before it is submitted. A vLLM that died does not come back: `healthy` says so, and every job, waiting or later, gets
an EngineError.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realtime_server.engines.generation import Generated, Sampling, check_rows
from realtime_server.engines.nano_options import NanoOptions, choose_device
from realtime_server.engines.orphans import OrphanWatch
from realtime_server.engines.vllm_setup import LlmOptions, check_installed, installed, set_environment
from realtime_server.errors import ConfigurationError, EngineError
from realtime_server.weights import cache_folder

if TYPE_CHECKING:
    from torch import Tensor

    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
    from realtime_server.models.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

CLOSED = "the engine has been shut down"
DIED = "the language model's engine has died"
FILLER_ID = 0  # stands for every row where vLLM wants to see ids
GUARD = (
    "vLLM starts processes that run the main program anew: put what starts the engine under "
    "if __name__ == '__main__':"
)


class VllmLlm:
    """One AsyncLLM for all sessions.

    folder: the language model in the layout of Hugging Face.  width: of its embeddings.
    Raises ConfigurationError if vLLM is missing or unfit.
    """

    def __init__(self, folder: Path, *, width: int, options: LlmOptions) -> None:
        check_installed(installed(), options.device)
        self.width = width
        self.cached_rows = 0  # rows of prompts that the prefix cache has spared so far
        self._folder, self._options = folder, options
        self._engine: Any = None  # vllm's AsyncLLM
        self._watch: OrphanWatch | None = None
        self._loading: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[Generated]] = set()
        self._closed = False

    @property
    def healthy(self) -> bool:
        """Whether it runs; once it is false after `start`, it stays so."""
        return self._engine is not None and not self._closed and not self._engine.errored

    @property
    def running(self) -> int:
        """Requests that vLLM has taken and not finished."""
        return 0 if self._engine is None else int(self._engine.output_processor.get_num_unfinished_requests())

    async def start(self) -> None:
        """Load the model; a minute or two. Raises EngineError or ConfigurationError if that cannot be."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise ConfigurationError(GUARD)
        logger.info("vLLM loads the language model in %s (%s)", self._folder, self._options)
        began_s = time.monotonic()
        self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        try:
            await asyncio.shield(self._loading)  # a thread cannot be cancelled: `aclose` waits for it
        except Exception as error:  # foreign: vLLM raises whatever its many parts raise
            raise EngineError(f"vLLM did not start, the log above says why: {error}") from error
        logger.info("vLLM is ready after %.0f s", time.monotonic() - began_s)

    async def generate(
        self, rows: Tensor, sampling: Sampling, *, request_id: str, priority: int = 0,
        on_ids: Callable[[Sequence[int]], None] | None = None,
    ) -> Generated:  # fmt: skip
        """Continue a prompt, greedily; cancelling aborts.

        rows: (n, width), floating, on the CPU.  on_ids: called with all ids so far, as they come.
        Raises UnsupportedError for a prompt that is empty or too long, EngineError for one that is otherwise unfit,
        and when vLLM died or was closed.
        """
        self._refuse_if_down()
        check_rows(rows, self.width, self._options.max_model_len)
        task = asyncio.create_task(self._collect(rows, sampling, request_id, priority, on_ids))
        self._requests.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if (
                self._closed and caller and not caller.cancelling()
            ):  # `aclose` ended the request, not its caller
                raise EngineError(CLOSED) from None
            raise
        finally:
            self._requests.discard(task)

    async def aclose(self) -> None:
        """Abort what runs and end vLLM's processes."""
        self._closed = True
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        if self._loading:
            await asyncio.gather(self._loading, return_exceptions=True)
        engine, self._engine = self._engine, None
        if engine is not None:
            if engine.output_handler:
                engine.output_handler.cancel()  # it would report its end as that of an engine that died
            await asyncio.to_thread(engine.shutdown)
        if self._watch:
            self._watch.close()
            self._watch = None

    def _load(self) -> None:
        set_environment(self._options.device)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        before = set(multiprocessing.active_children())
        arguments = AsyncEngineArgs(**self._options.engine_args(self._folder))
        with _interrupts_kept_from_children():
            self._engine = AsyncLLM.from_engine_args(arguments)
        started = set(multiprocessing.active_children()) - before
        self._watch = OrphanWatch([process.pid for process in started if process.pid])

    def _refuse_if_down(self) -> None:
        if self._closed:
            raise EngineError(CLOSED)
        if not self.healthy:
            raise EngineError("the language model has not been started" if self._engine is None else DIED)

    async def _collect(
        self, rows: Tensor, sampling: Sampling, request_id: str, priority: int,
        on_ids: Callable[[Sequence[int]], None] | None,
    ) -> Generated:  # fmt: skip
        output: Any = None
        try:
            requests = self._engine.generate(
                self._prompt(rows), self._params(sampling, len(rows), stream=on_ids is not None), request_id,
                priority=priority,
            )  # fmt: skip
            async with aclosing(requests) as outputs:  # leaving the loop early would not abort
                async for output in outputs:
                    if on_ids is not None:
                        on_ids(output.outputs[0].token_ids)
        except Exception as error:  # foreign: vLLM has no one tree of exceptions across its releases
            dead = self._engine is None or self._engine.errored
            raise EngineError(DIED if dead else f"the language model failed: {error}") from error
        self.cached_rows += output.num_cached_tokens or 0
        return _generated(output.outputs[0], sampling)

    def _prompt(self, rows: Tensor) -> Any:
        """The form in which every position has an id of its own: without, some are left over from other requests."""
        count = len(rows)
        return {
            "prompt_embeds": rows,
            "prompt_token_ids": [FILLER_ID] * count,
            "prompt_is_token_ids": [False] * count,
        }

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


@contextmanager
def _interrupts_kept_from_children() -> Iterator[None]:
    """Processes that this thread starts meanwhile never see a SIGINT.

    A terminal sends Ctrl-C to all of them; vLLM's would end at once, before the finals that a stopping server owes.
    """
    resource_tracker.ensure_running()  # starting it, as the first child would, ends with an unblocked SIGINT
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _generated(completion: Any, sampling: Sampling) -> Generated:
    """What vLLM's CompletionOutput says."""
    ids = tuple(completion.token_ids)
    logprobs = None
    if completion.logprobs is not None:
        logprobs = tuple(table[token].logprob for token, table in zip(ids, completion.logprobs, strict=True))
    return Generated.cut(ids, logprobs, sampling)


def load(options: NanoOptions) -> FunAsrNanoEngine:
    """Load Fun-ASR-Nano's encoder and prepare its language model; blocks. `warmup`, which starts vLLM, must follow."""
    set_environment(options.device)
    if not (versions := installed()):
        check_installed(versions, options.device)  # before torch is missed, which comes with it
    device = choose_device(options.device)
    set_environment(device)
    check_installed(versions, device)
    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
    from realtime_server.models.llm_weights import split_llm

    llm_options = LlmOptions(
        device=device,
        dtype=options.precision(device),
        tensor_parallel_size=options.tensor_parallel_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_model_len=options.max_model_len,
        concurrency=2 * options.jobs_at_once(device),  # finals find room among files and partials
    )

    def start(checkpoint: Checkpoint) -> VllmLlm:
        return VllmLlm(
            split_llm(checkpoint, cache_folder()), width=checkpoint.config.llm.width, options=llm_options
        )

    return FunAsrNanoEngine.load(options, device, start)

"""One AsyncLLM for all sessions: loaded, watched over, told of requests, ended.

vLLM runs in processes of its own. One that died does not come back: `healthy` says so, and every request, waiting or
later, gets an EngineError. What is submitted must be fit: vLLM trusts its callers more than one that serves many should
be trusted.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from realtime_server.engines.orphans import OrphanWatch
from realtime_server.engines.vllm_setup import set_environment
from realtime_server.errors import ConfigurationError, EngineError, UnsupportedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSED = "the engine has been shut down"
DIED = "vLLM's engine has died"
GUARD = (
    "vLLM starts processes that run the main program anew: put what starts the engine under "
    "if __name__ == '__main__':"
)


class VllmHost:
    """One AsyncLLM.

    arguments: of vLLM's AsyncEngineArgs.  device: "cuda" or "cpu".
    """

    def __init__(self, arguments: Mapping[str, Any], device: str) -> None:
        self._arguments, self._device = dict(arguments), device
        self._engine: Any = None  # vllm's AsyncLLM
        self._watch: OrphanWatch | None = None
        self._loading: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[Any]] = set()
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
        logger.info("vLLM loads %s", self._arguments)
        began_s = time.monotonic()
        self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        try:
            await asyncio.shield(self._loading)  # a thread cannot be cancelled: `aclose` waits for it
        except Exception as error:  # foreign: vLLM raises whatever its many parts raise
            raise EngineError(f"vLLM did not start, the log above says why: {error}") from error
        logger.info("vLLM is ready after %.0f s", time.monotonic() - began_s)

    async def render(self, prompt: Any) -> Any:
        """Make what `generate` takes of a prompt for the model: tokenised, its audio as the network wants it.

        prompt: what vLLM calls a PromptType; off the event loop.  Raises UnsupportedError for what vLLM will not take,
        EngineError when it died or was closed.
        """
        return await self._guarded(self._render(prompt))

    async def generate(
        self, prompt: Any, params: Any, *, request_id: str, priority: int = 0,
        on_output: Callable[[Any], None] | None = None,
    ) -> Any:  # fmt: skip
        """Continue a prompt; return vLLM's last RequestOutput. Cancelling aborts.

        on_output: called with each RequestOutput.  Raises EngineError, also when vLLM died or was closed.
        """
        return await self._guarded(self._generate(prompt, params, request_id, priority, on_output))

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

    def refuse_if_down(self) -> None:
        """Raise EngineError unless it runs."""
        if self._closed:
            raise EngineError(CLOSED)
        if not self.healthy:
            raise EngineError("vLLM has not been started" if self._engine is None else DIED)

    def _load(self) -> None:
        set_environment(self._device)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        before = set(multiprocessing.active_children())
        arguments = AsyncEngineArgs(**self._arguments)
        with _interrupts_kept_from_children():
            self._engine = AsyncLLM.from_engine_args(arguments)
        started = set(multiprocessing.active_children()) - before
        self._watch = OrphanWatch([process.pid for process in started if process.pid])

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that `aclose` ends."""
        try:
            self.refuse_if_down()
        except EngineError:
            work.close()
            raise
        task = asyncio.create_task(work)
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

    async def _render(self, prompt: Any) -> Any:
        from vllm.exceptions import VLLMValidationError
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        try:
            parsed = parse_model_prompt(self._engine.model_config, prompt)
            (rendered,) = await self._engine.renderer.render_cmpl_async([parsed])
        except (VLLMValidationError, ValueError) as error:
            raise UnsupportedError(f"vLLM refuses this input: {error}") from error
        except Exception as error:  # foreign: processors of any model run in there
            raise self._failure(error) from error
        return rendered

    async def _generate(
        self, prompt: Any, params: Any, request_id: str, priority: int,
        on_output: Callable[[Any], None] | None,
    ) -> Any:  # fmt: skip
        output: Any = None
        try:
            requests = self._engine.generate(prompt, params, request_id, priority=priority)
            async with aclosing(requests) as outputs:  # leaving the loop early would not abort
                async for output in outputs:
                    if on_output is not None:
                        on_output(output)
        except Exception as error:  # foreign: vLLM has no one tree of exceptions across its releases
            raise self._failure(error) from error
        return output

    def _failure(self, error: Exception) -> EngineError:
        dead = self._engine is None or self._engine.errored
        return EngineError(DIED if dead else f"vLLM failed: {error}")


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

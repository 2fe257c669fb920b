"""An event loop in a thread of its own, on which programs without one, or with one of their own, run coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CLOSED = "this model has been closed"


class BackgroundLoop:
    """Runs coroutines for callers in any thread, also in one whose own event loop runs (Jupyter)."""

    def __init__(self) -> None:
        """Start the thread, which does not keep the program from ending."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(_serve(started)), name="realtime-server", daemon=True
        )
        self._thread.start()
        self._loop, self._stop = started.result()
        self._ended = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it and wait; what interrupts the waiting (Ctrl-C) cancels it. Raises RuntimeError after `end`."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this call would wait for itself; await its async form")
        future = self.post(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The same for a coroutine of another event loop."""
        return await asyncio.wrap_future(self.post(coroutine))

    def post(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it and do not wait."""
        if self._ended:
            coroutine.close()
            raise RuntimeError(CLOSED)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last`, cancel whatever else runs, end the thread; do not wait. A second call does nothing."""
        if not self._ended:
            self._ended, ending = True, asyncio.run_coroutine_threadsafe(last(), self._loop)
            ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._stop.set))

    def join(self) -> None:
        """Wait until it has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join()


async def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()

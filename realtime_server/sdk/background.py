"""An event loop in a thread of its own, on which programs without one, or with one of their own, run coroutines."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CLOSED = "this model has been closed"
EXIT_S = 10.0  # for the end, where the program's end waits for it
Last = Callable[[], Coroutine[Any, Any, None]]


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
        # Nothing is posted behind the end, where it would wait for ever. Garbage collection may post within a post.
        self._posting = threading.RLock()

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
        with self._posting:
            if not self._ended:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise RuntimeError(CLOSED)

    def end(self, last: Last) -> None:
        """Run `last`, cancel whatever else runs, end the thread; do not wait. A second call does nothing."""
        with self._posting:
            if self._ended:
                return
            self._ended, ending = True, asyncio.run_coroutine_threadsafe(last(), self._loop)
        atexit.unregister(self._exit)
        ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._stop.set))

    def end_at_exit(self, last: Last) -> None:
        """Do the same, and wait, at the end of a program that has not called `end`: processes must not outlive it."""
        atexit.register(self._exit, last)

    def join(self) -> None:
        """Wait until it has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _exit(self, last: Last) -> None:
        if self._thread.is_alive():  # it is not in a process that was forked off
            self.end(last)
            self._thread.join(EXIT_S)


async def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()

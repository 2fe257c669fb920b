"""Micro-batching: callers ask one by one, a single worker thread computes for several of them at once.

An item that finds the worker idle waits a few milliseconds for company, unless the one before it came so long ago that
none is to be expected; items that come while it computes go together as soon as it is free. A batch holds items of one
length bucket only: little of it is padding, and a GPU sees few shapes (`compute` is told the bucket's edge, and may
keep a CUDA graph for each). The most urgent item decides which bucket is next; its answer goes out when its batch is
done, whatever else waits.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from bisect import insort
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import EngineError

Item = TypeVar("Item")
Result = TypeVar("Result")

BUCKETS = tuple(s * SAMPLE_RATE for s in (1, 2, 3, 4, 6, 8, 12, 16, 24, 30, 45, 60))  # upper edges, samples
COMPANY = 4  # windows since the item before, within which another is to be expected
CLOSED = "the engine has been shut down"


@dataclass(slots=True, order=True)
class _Entry(Generic[Item, Result]):
    """An item in the queue, and where its result goes."""

    priority: int
    arrival: int
    item: Item = field(compare=False)
    edge: int = field(compare=False)
    answer: asyncio.Future[Result] = field(compare=False)


class Batcher(Generic[Item, Result]):
    """Runs `compute` on batches of items, for any number of tasks of one event loop.

    compute: takes items and their bucket's edge, returns a result per item, in order; called in one thread, never
    twice at once.  length: an item's length, in the unit of `buckets`.  buckets: upper edges, rising; longer items
    form buckets of their own.  window_s: how long an idle worker waits for company, if any is to be expected.
    max_batch, max_length: items of a batch, and what they may be together, each as long as its bucket.  name: what
    errors and the thread call it.
    """

    def __init__(
        self, compute: Callable[[Sequence[Item], int], Sequence[Result]], length: Callable[[Item], int], *,
        buckets: Sequence[int] = BUCKETS, window_s: float = 0.006, max_batch: int = 32, max_length: int = 1 << 60,
        name: str = "encoder",
    ) -> None:  # fmt: skip
        self._compute, self._length, self._buckets = compute, length, tuple(buckets)
        self._window_s, self._max_batch, self._max_length = window_s, max_batch, max_length
        self._name, self._thread = name, ThreadPoolExecutor(1, thread_name_prefix=name)
        self._arrivals = itertools.count()
        self._waiting: list[_Entry[Item, Result]] = []  # in the order of service
        self._running: Sequence[_Entry[Item, Result]] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._arrived_s = math.inf  # the latest item, by the loop's clock; the first expects company
        self._closed = False

    async def submit(self, item: Item, priority: int = 0) -> Result:
        """The result for one item; cancelling drops it and leaves its batch alone.

        Raises EngineError when `compute` failed on its batch, or after `aclose`.
        """
        if self._closed:
            raise EngineError(CLOSED)
        loop, length = asyncio.get_running_loop(), self._length(item)
        edge = next((edge for edge in self._buckets if edge >= length), length)
        answer: asyncio.Future[Result] = loop.create_future()
        entry = _Entry(priority, next(self._arrivals), item, edge, answer)
        insort(self._waiting, entry)
        alone = loop.time() - self._arrived_s > COMPANY * self._window_s
        self._arrived_s = loop.time()
        if not self._running:
            if sum(other.edge == edge for other in self._waiting) >= self._most(edge):
                self._start()
            elif self._timer is None:
                self._timer = loop.call_later(0.0 if alone else self._window_s, self._start)
        try:
            return await answer
        finally:
            with suppress(ValueError):  # it left the queue with its batch
                self._waiting.remove(entry)

    async def aclose(self) -> None:
        """Fail what waits and what runs, and wait for the thread; later items are refused."""
        self._closed = True
        _fail([*self._waiting, *self._running], CLOSED)
        self._waiting.clear()
        await asyncio.to_thread(self._thread.shutdown)

    def _most(self, edge: int) -> int:
        return max(1, min(self._max_batch, self._max_length // max(1, edge)))

    def _start(self) -> None:
        """Hand the next batch to the worker, if it is idle and anything waits."""
        self._timer = None
        if self._running or not self._waiting:
            return
        edge = self._waiting[0].edge
        self._running = [entry for entry in self._waiting if entry.edge == edge][: self._most(edge)]
        self._waiting = [entry for entry in self._waiting if entry not in self._running]
        loop, items = asyncio.get_running_loop(), [entry.item for entry in self._running]
        loop.run_in_executor(self._thread, self._compute, items, edge).add_done_callback(self._finish)

    def _finish(self, work: asyncio.Future[Sequence[Result]]) -> None:
        """Deliver a batch and go on with what waits."""
        batch, self._running = self._running, ()
        error = work.exception()
        results = () if error else work.result()
        if len(results) != len(batch):
            _fail(batch, f"the {self._name} failed: {error or 'answers are missing'}", error)
        for entry, result in zip(batch, results, strict=False):
            if not entry.answer.done():
                entry.answer.set_result(result)
        self._start()


def _fail(entries: Sequence[_Entry[Item, Result]], why: str, cause: BaseException | None = None) -> None:
    for entry in entries:
        if not entry.answer.done():
            error = EngineError(why)  # one each: whoever raises it adds a traceback
            error.__cause__ = cause
            entry.answer.set_exception(error)

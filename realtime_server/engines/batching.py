"""Micro-batching: callers ask one by one, a single worker thread computes for several of them at once.

An item waits a few milliseconds for company, unless the one before it came so long ago that none is to be expected;
items of some priorities have more patience, and go with the first that has less. What has waited long enough when the
worker becomes free goes at once, with all that waits. A batch is padded to the edge of its longest item's
length bucket: a GPU sees few shapes (`compute` is told the edge, and may keep a graph for each). A small batch costs
about the same whatever is in it, so up to `mixed_length` it takes items of every length; beyond, those of one bucket
only, so that little of it is padding. The most urgent item is always in the next batch; its answer goes out when that
is done, whatever else waits.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
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
    due_s: float = field(compare=False)  # it waits for company until then, by the loop's clock
    answer: asyncio.Future[Result] = field(compare=False)


class Batcher(Generic[Item, Result]):
    """Runs `compute` on batches of items, for any number of tasks of one event loop.

    compute: takes items and their bucket's edge, returns a result per item, in order; called in one thread, never
    twice at once.  length: an item's length, in the unit of `buckets`.  buckets: upper edges, rising; longer items
    form buckets of their own.  window_s: how long an idle worker waits for company, if any is to be expected.
    patience_s: the same, of priorities that have more.  max_batch, max_length: items of a batch, and what they may be
    together, each as long as the batch's bucket.  mixed_length: what items of several buckets may be together.  name:
    what errors and the thread call it.
    """

    def __init__(
        self, compute: Callable[[Sequence[Item], int], Sequence[Result]], length: Callable[[Item], int], *,
        buckets: Sequence[int] = BUCKETS, window_s: float = 0.006, patience_s: Mapping[int, float] | None = None,
        max_batch: int = 32, max_length: int = 1 << 60, mixed_length: int = 0, name: str = "encoder",
    ) -> None:  # fmt: skip
        self._compute, self._length, self._buckets = compute, length, tuple(buckets)
        self._window_s, self._patience_s = window_s, patience_s or {}
        self._max_batch, self._max_length, self._mixed_length = max_batch, max_length, mixed_length
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
        now_s = loop.time()
        edge = next((edge for edge in self._buckets if edge >= length), length)
        answer: asyncio.Future[Result] = loop.create_future()
        wait_s = self._patience_s.get(priority, self._window_s)
        alone = now_s - self._arrived_s > COMPANY * wait_s
        self._arrived_s = now_s
        entry = _Entry(priority, next(self._arrivals), item, edge, now_s if alone else now_s + wait_s, answer)
        insort(self._waiting, entry)
        if sum(other.edge == edge for other in self._waiting) >= self._most(edge):
            entry.due_s = now_s
        self._go_on()
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

    def _go_on(self) -> None:
        """Hand the next batch to the worker, if it is idle: now, or when the first of those that wait is due."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._running or not self._waiting:
            return
        loop, due_s = asyncio.get_running_loop(), min(entry.due_s for entry in self._waiting)
        # A timer of the turn that comes lets in what is asked for in this one.
        self._timer = loop.call_at(due_s, self._start)

    def _start(self) -> None:
        self._timer = None
        self._running, edge = self._choose()
        self._waiting = [entry for entry in self._waiting if entry not in self._running]
        loop, items = asyncio.get_running_loop(), [entry.item for entry in self._running]
        loop.run_in_executor(self._thread, self._compute, items, edge).add_done_callback(self._finish)

    def _choose(self) -> tuple[list[_Entry[Item, Result]], int]:
        """The next batch and its edge: the most urgent item, and others in the order of service."""
        chosen, edge = [self._waiting[0]], self._waiting[0].edge
        for entry in self._waiting[1:]:
            wider, count = max(edge, entry.edge), len(chosen) + 1
            mixed = count * wider <= self._mixed_length
            if count <= self._most(wider) and (mixed or all(entry.edge == other.edge for other in chosen)):
                chosen.append(entry)
                edge = wider
        return chosen, edge

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
        for entry in self._waiting:
            if entry.priority not in self._patience_s:
                entry.due_s = 0.0  # it has waited
        self._go_on()


def _fail(entries: Sequence[_Entry[Item, Result]], why: str, cause: BaseException | None = None) -> None:
    for entry in entries:
        if not entry.answer.done():
            error = EngineError(why)  # one each: whoever raises it adds a traceback
            error.__cause__ = cause
            entry.answer.set_exception(error)

"""Deadlines that a busy machine does not miss: they count from the latest answer to anybody.

Jobs of many sessions wait behind each other in one embedder. How long that takes depends on how many they are; that it
answers nobody for a whole deadline tells that it hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from realtime_server.core.jobs import ClusterJob, EmbedJob
from realtime_server.errors import EngineTimeoutError

Answer = TypeVar("Answer")


@runtime_checkable
class Progressing(Protocol):
    """What an Embedder has besides, if jobs wait in it for those of others."""

    def answered_s(self, job: EmbedJob | ClusterJob) -> float:
        """When that which is to do this job last finished anybody's, by `time.monotonic`."""


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Whether an event is set within this time."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def answer_in_time(work: Awaitable[Answer], deadline_s: float) -> Answer:
    """The answer. Raises EngineTimeoutError when it was not given for `deadline_s`."""
    try:
        async with asyncio.timeout(deadline_s) as scope:
            return await work
    except TimeoutError:
        if scope.expired():
            raise EngineTimeoutError(f"no answer within {deadline_s:.1f} s") from None
        raise


@dataclass(slots=True)
class Watch:
    """Ends `scope` when nobody was answered for a whole deadline."""

    scope: asyncio.Timeout
    deadline_s: float
    answered_s: Callable[[], float]
    asked_s: float
    timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """End it, or look again when that may be due."""
        loop = asyncio.get_running_loop()
        left_s = max(self.asked_s, self.answered_s()) + self.deadline_s - time.monotonic()
        if left_s > 0:
            self.timer = loop.call_later(left_s, self.look)
        else:
            self.scope.reschedule(loop.time())


async def answer_in_turn(
    work: Awaitable[Answer], deadline_s: float, answered_s: Callable[[], float]
) -> Answer:
    """The answer. Raises EngineTimeoutError when for `deadline_s` neither this nor any other was given."""
    scope = asyncio.timeout(None)
    watch = Watch(scope, deadline_s, answered_s, time.monotonic())
    try:
        async with scope:
            watch.look()
            return await work
    except TimeoutError:
        if scope.expired():
            raise EngineTimeoutError(f"no answer within {deadline_s:.1f} s") from None
        raise
    finally:
        if watch.timer:
            watch.timer.cancel()

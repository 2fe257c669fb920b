"""Deadlines that a busy machine does not miss: they count from the latest answer to anybody.

Jobs of many sessions wait behind each other in one embedder. How long that takes depends on how many they are; that it
answers nobody for a whole deadline tells that it hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
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


def never() -> float:
    """Whoever waits, waits for nobody else's answer."""
    return float("-inf")


async def answer_in_time(
    work: Awaitable[Answer], deadline_s: float, answered_s: Callable[[], float] = never
) -> Answer:
    """The answer. Raises EngineTimeoutError when for `deadline_s` neither this nor any other was given."""
    loop, asked_s = asyncio.get_running_loop(), time.monotonic()
    timer: asyncio.TimerHandle | None = None

    def look_again() -> None:
        nonlocal timer
        left_s = max(asked_s, answered_s()) + deadline_s - time.monotonic()
        if left_s > 0:
            timer = loop.call_later(left_s, look_again)
        else:
            scope.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as scope:
            look_again()
            return await work
    except TimeoutError:
        if scope.expired():
            raise EngineTimeoutError(f"no answer within {deadline_s:.1f} s") from None
        raise
    finally:
        if timer:
            timer.cancel()

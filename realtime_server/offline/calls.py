"""Calls of engines, scorers and embedders that end: with an answer, or with an EngineError.

A call that hangs must not hang a recording for ever, so each has a deadline. It counts from when the engine was given
the job, which is when there is a place for it, or from the last answer to an earlier job, whichever is later: an engine
that answers works. While live sessions are served, which come first, a file's job may rightly wait: then its deadline
stands still, for `patience_s` at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from realtime_server.core.jobs import Job
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import require_positive
from realtime_server.errors import EngineError, EngineTimeoutError

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Observer = Callable[
    [Job, EngineError | None], None
]  # told of a job that was answered: None, or why it failed

CLOSING_S = 1.0  # for a call that was told to stop


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Wall-clock limits of jobs, in seconds; those of a live session."""

    base_s: float = 10.0
    factor: float = 2.0  # times the job's audio, on top
    patience_s: float = 600.0  # in which live sessions come first; and of the clustering of a whole recording
    tick_s: float = 1.0  # between two looks at whether the engine is alive

    def __post_init__(self) -> None:
        require_positive(self, ("base_s", "patience_s", "tick_s"))

    def for_samples(self, samples: int) -> float:
        """The deadline of a job of so many samples."""
        return self.base_s + self.factor * samples / SAMPLE_RATE


class Countdown:
    """Time in which an answer must come; it can be restarted meanwhile."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.left_s = seconds

    def restart(self) -> None:
        """Count from now."""
        self.left_s = self.seconds


def always() -> bool:
    """Whether something is alive that cannot tell."""
    return True


def nobody(job: Job, error: EngineError | None) -> None:
    """Told of jobs that nobody counts."""


def never() -> bool:
    """Whether something comes first where nothing does."""
    return False


def unheard(error: EngineError | None) -> None:
    """Told how a call ended about which nobody wants to know."""


async def answer(
    call: Coroutine[Any, Any, Answer], deadline: float | Countdown, deadlines: Deadlines, *,
    alive: Callable[[], bool] = always, busy: Callable[[], bool] = never,
    tell: Callable[[EngineError | None], None] = unheard,
) -> Answer:  # fmt: skip
    """Return what a call returns. Raises EngineError, whatever the call raises; cancelling cancels the call.

    deadline: in seconds.  alive: whether an answer can come at all.  busy: whether others come first now.  tell: called
    with None, or with the error.
    """
    try:
        answered = await _await(call, deadline, deadlines, alive, busy)
    except EngineError as error:
        tell(error)
        raise
    tell(None)
    return answered


async def _await(
    call: Coroutine[Any, Any, Answer], deadline: float | Countdown, deadlines: Deadlines,
    alive: Callable[[], bool], busy: Callable[[], bool],
) -> Answer:  # fmt: skip
    countdown = deadline if isinstance(deadline, Countdown) else Countdown(deadline)
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(call)
    patience_s, tick_s = deadlines.patience_s, min(deadlines.tick_s, countdown.seconds)
    try:
        while countdown.left_s > 0 and patience_s > 0:
            began_s = clock()
            await asyncio.wait([task], timeout=tick_s)
            if task.done():
                return _result(task)
            if not alive():
                raise EngineError("the engine has died")
            if busy():
                patience_s -= clock() - began_s
            else:
                countdown.left_s -= clock() - began_s
        raise EngineTimeoutError(f"no answer within {countdown.seconds:.1f} s")
    finally:
        await _end(task)


async def _end(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CLOSING_S)
    if task.done() and not task.cancelled():
        task.exception()  # seen, so that nobody complains that it was not


def _result(task: asyncio.Future[Answer]) -> Answer:
    if task.cancelled():
        raise EngineError("the engine dropped the job")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, EngineError) or not isinstance(error, Exception):
        raise error
    logger.error("a job of a recording failed in a way that its engine does not declare", exc_info=error)
    raise EngineError(f"internal error ({type(error).__name__})") from error

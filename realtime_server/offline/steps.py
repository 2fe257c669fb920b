"""Long work that is done a step at a time: whoever does it may let others in between."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Do all of it."""
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            found: T = stopped.value
            return found


def advance(steps: Steps[T], for_s: float) -> tuple[T] | None:
    """Do steps for about so long, one at least; return what comes of the work once it is done."""
    begun_s = time.monotonic()
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            return (stopped.value,)
        if time.monotonic() - begun_s >= for_s:
            return None

"""Long work of several requests, a slice of each in turn: who wants little does not wait for who wants much."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from realtime_server.offline.steps import Steps, advance

SLICE_S = 0.02  # many times what it takes to hand it to a thread

T = TypeVar("T")


class Slices:
    """Does work on threads, one slice at a time; whoever has had one goes behind the others.

    Of each subject, such as a session, one piece of work is done at a time: many requests for it weigh as one.
    """

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._turn = asyncio.Lock()  # it serves those who wait in order
        self._subjects: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def do(
        self, subject: str, begin: Callable[[], Steps[T]], has_left: Callable[[], Awaitable[bool]]
    ) -> T | None:
        """Begin the work once it is the subject's turn, and do it to its end; None if nobody waits for it any more."""
        one = self._subjects.setdefault(subject, asyncio.Lock())
        async with one:
            if await has_left():
                return None
            steps = begin()
            while True:
                async with self._turn:
                    done = await asyncio.to_thread(advance, steps, self._slice_s)
                if done:
                    return done[0]
                if await has_left():
                    return None

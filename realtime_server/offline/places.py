"""Places in an engine, given out fairly.

A free place goes to the recording that holds the fewest, among equals to the one that was given one longest ago: a
short recording that comes while a long one is worked on waits for the next free place, not for the end of the long one.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Line:
    """One recording's requests, in order of arrival, with the samples that each is for."""

    held: int = 0
    given: int = -1  # when it was last given a place, by count
    waiting: deque[tuple[asyncio.Future[None], int]] = field(default_factory=deque)


class Places:
    """As many places as `count` says at the moment, and in all of them `most_samples` of audio, but always one job."""

    def __init__(self, count: Callable[[], int], most_samples: int = sys.maxsize) -> None:
        self._count, self._most = count, most_samples
        self._lines: dict[str, _Line] = {}
        self._held = self._samples = 0
        self._turns = itertools.count()

    @property
    def held(self) -> int:
        """Places in use."""
        return self._held

    @asynccontextmanager
    async def hold(self, recording: str, samples: int) -> AsyncIterator[None]:
        """Wait for a place for a job of so many samples, and keep it inside the block."""
        line = self._lines.setdefault(recording, _Line())
        request = (asyncio.get_running_loop().create_future(), samples)
        line.waiting.append(request)
        self._admit()
        try:
            await request[0]
            yield
        finally:
            self._leave(recording, request)

    def _leave(self, recording: str, request: tuple[asyncio.Future[None], int]) -> None:
        line = self._lines[recording]
        if request in line.waiting:
            line.waiting.remove(request)
        else:
            line.held -= 1
            self._held -= 1
            self._samples -= request[1]
        if not line.held and not line.waiting:
            del self._lines[recording]
        self._admit()

    def _admit(self) -> None:
        """Give out what is free."""
        while line := self._next():
            future, samples = line.waiting.popleft()
            line.held, line.given = line.held + 1, next(self._turns)
            self._held += 1
            self._samples += samples
            if not future.done():  # its task was cancelled and has not left yet
                future.set_result(None)

    def _next(self) -> _Line | None:
        waiting = [line for line in self._lines.values() if line.waiting]
        line = min(waiting, key=lambda line: (line.held, line.given), default=None)
        if line is None or self._held >= self._count():
            return None
        fits = not self._held or self._samples + line.waiting[0][1] <= self._most
        return line if fits else None

"""Who may enter a language model that takes back nothing it has begun: what can wait never fills it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from realtime_server.core.jobs import Priority


class Admission:
    """Places for jobs by their priority.

    concurrency: jobs that work at the same time; files take no more, partials half as many, and finals always enter.
    """

    def __init__(self, concurrency: int) -> None:
        self._files = asyncio.Semaphore(concurrency)
        self._partials = asyncio.Semaphore(max(1, concurrency // 2))

    def room(self, priority: int) -> AbstractAsyncContextManager[None]:
        """Hold a place while the context lasts."""
        if priority == Priority.FILE:
            return self._files
        return nullcontext() if priority <= Priority.EAGER else self._partials

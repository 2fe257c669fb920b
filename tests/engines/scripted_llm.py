"""In the place of a language model in the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from realtime_server.engines.generation import Generated, Sampling
from realtime_server.errors import EngineError
from realtime_server.models.prompt import FolderTokenizer


class ScriptedLlm:
    """A language model that says `text`, token by token, once `gate` is open."""

    def __init__(self, tokenizer: FolderTokenizer, text: str = " one two ") -> None:
        self.text, self.finish = text, "stop"
        self.gate = asyncio.Event()
        self.gate.set()
        self.rows: list[Any] = []
        self.sampling: list[Sampling] = []
        self.priorities: list[int] = []
        self.running: list[int] = []
        self.healthy = False
        self._tokenizer = tokenizer

    async def start(self) -> None:
        self.healthy = True

    async def generate(
        self, rows: Any, sampling: Sampling, *, request_id: str, priority: int = 0,
        on_ids: Callable[[Sequence[int]], None] | None = None,
    ) -> Generated:  # fmt: skip
        self.rows.append(rows)
        self.sampling.append(sampling)
        self.priorities.append(priority)
        self.running.append(priority)
        try:
            await self.gate.wait()
        finally:
            self.running.remove(priority)
        if not self.healthy:
            raise EngineError("closed")
        ids = tuple(self._tokenizer.encode(self.text))
        for end in range(len(ids) + 1):
            if on_ids:
                on_ids(ids[:end])
        logprobs = tuple(-0.5 for _ in ids) if sampling.logprobs else None
        return Generated(ids, logprobs, "length" if self.finish == "length" else "stop")

    async def aclose(self) -> None:
        self.healthy = False
        self.gate.set()

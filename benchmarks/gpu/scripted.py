"""Fun-ASR-Nano with random weights as a recognizer whose partials settle: everything is computed, the text is scripted.

The encoder, the prompt's rows and the language model's steps are those of a trained model whose text were the script's:
a final generates a token for each sign, a partial those behind its stable beginning, which is part of its prompt.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.gpu import script
from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob
from realtime_server.engines.generation import Generated, LanguageModel, Sampling
from realtime_server.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor

    from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine


class ForcedLlm:
    """A LanguageModel that generates exactly as many tokens as it may, whatever they are."""

    def __init__(self, llm: LanguageModel) -> None:
        self._llm = llm

    @property
    def healthy(self) -> bool:
        """See LanguageModel."""
        return self._llm.healthy

    async def start(self) -> None:
        """See LanguageModel."""
        await self._llm.start()

    async def generate(
        self, rows: Tensor, sampling: Sampling, *, request_id: str, priority: int = 0,
        on_ids: Callable[[Sequence[int]], None] | None = None,
    ) -> Generated:  # fmt: skip
        """See LanguageModel; raises EngineError if there are fewer tokens."""
        forced = replace(sampling, stop_ids=())
        generated = await self._llm.generate(
            rows, forced, request_id=request_id, priority=priority, on_ids=on_ids
        )
        if len(generated.ids) != sampling.max_tokens:
            raise EngineError(f"{len(generated.ids)} tokens instead of {sampling.max_tokens}")
        return generated

    async def aclose(self) -> None:
        """See LanguageModel."""
        await self._llm.aclose()


class ScriptedEngine:
    """An `Engine`: computes every job and answers with the script."""

    def __init__(self, engine: FunAsrNanoEngine) -> None:
        engine.llm = ForcedLlm(engine.llm)
        self._engine = engine

    @property
    def capabilities(self) -> Capabilities:
        """See Engine."""
        return self._engine.capabilities

    @property
    def healthy(self) -> bool:
        """See Engine."""
        return self._engine.healthy

    async def warmup(self) -> None:
        """See Engine."""
        await self._engine.warmup()

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """See Engine; `on_text` is not called, for what grows is not the script."""
        decoded = await self._engine.transcribe(forced(job))
        return replace(decoded, text=said(job), finish="stop")

    async def aclose(self) -> None:
        """See Engine."""
        await self._engine.aclose()


def forced(job: DecodeJob) -> DecodeJob:
    """The job with as many tokens to generate as its script has behind the stable beginning; one sign is one token."""
    count = max(1, script.tokens(job.audio.size) - len(job.prefix_text))
    return replace(job, options=replace(job.options, max_new_tokens=count))


def said(job: DecodeJob) -> str:
    """What the script has for a job."""
    unstable_at = job.end if job.kind == "partial" else None
    return script.text(job.audio.size, seed=zlib.crc32(job.session.encode()), unstable_at=unstable_at)

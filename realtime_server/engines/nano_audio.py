"""Fun-ASR-Nano around its language model: jobs to prompts, micro-batched, and texts to word times.

The model's modules block; they run in one thread each for encoding and for alignment, never in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from realtime_server.core.jobs import DecodeJob
from realtime_server.core.segments import SAMPLE_RATE, Word
from realtime_server.engines.batching import BUCKETS, Batcher
from realtime_server.errors import EngineError
from realtime_server.models.fun_asr_nano import Encoded, FunAsrNano
from realtime_server.models.graphs import ROWS, GraphedEncoder

# Waveforms of a batch, and their samples together, padded. A CPU gains little from a batch, and its first answer
# waits for its last; on a GPU the memory of a recorded pass is what counts.
GPU_BATCH, GPU_SAMPLES = 64, 960 * SAMPLE_RATE
CPU_BATCH, CPU_SAMPLES = 4, 16 * SAMPLE_RATE


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A job ready for the language model.

    rows: (n, width), on the CPU.  encoded: what word times are computed from.
    """

    rows: Tensor
    encoded: Encoded


class NanoAudio:
    """One model behind micro-batching, for all sessions."""

    def __init__(self, model: FunAsrNano) -> None:
        self.model = model
        self.on_gpu = model.device.type != "cpu"
        self._graphs = GraphedEncoder(model) if self.on_gpu else None
        self._encoder = self._graphs or model
        batch, samples = (GPU_BATCH, GPU_SAMPLES) if self.on_gpu else (CPU_BATCH, CPU_SAMPLES)
        self._batcher = Batcher(self._encode, _length, max_batch=batch, max_length=samples)
        self._aligner = ThreadPoolExecutor(1, thread_name_prefix="alignment")

    async def warmup(self, longest: int) -> None:
        """Record the passes of a GPU for audio of up to `longest` samples; nothing on a CPU. Before the first job."""
        if self._graphs:
            await asyncio.to_thread(self._record, self._graphs, longest)

    async def prompt(self, job: DecodeJob) -> Prompt:
        """Encode a job's audio and lay out its prompt; cancelling leaves other jobs alone.

        Raises EngineError when that failed.
        """
        return await self._batcher.submit(job, job.priority)

    async def words(self, prompt: Prompt, text: str) -> tuple[Word, ...] | None:
        """Times of the words of a text; None where they cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._aligner, self.model.align, prompt.encoded, text)
        except RuntimeError as error:  # torch's, out of memory above all, or an executor that was shut down
            raise EngineError(f"the alignment failed: {error}") from error

    async def aclose(self) -> None:
        """Fail what waits; return when both threads have ended."""
        await self._batcher.aclose()
        await asyncio.to_thread(self._aligner.shutdown)

    @staticmethod
    def _record(graphs: GraphedEncoder, longest: int) -> None:
        for edge in (edge for edge in BUCKETS if edge <= longest):
            for rows in (rows for rows in ROWS if rows * edge <= GPU_SAMPLES):
                graphs.record(rows, edge)

    def _encode(self, jobs: Sequence[DecodeJob], edge: int) -> list[Prompt]:
        """A batch, in the encoder's thread. On a GPU it is padded to its bucket: few shapes, quick kernels."""
        words = any(job.options.words for job in jobs)
        waveforms, pad_to = [job.audio for job in jobs], edge if self.on_gpu else None
        encoded = self._encoder.encode(waveforms, words=words, pad_to=pad_to)
        rows = [
            self.model.prompt_rows(job.options, each, job.prefix_text)
            for job, each in zip(jobs, encoded, strict=True)
        ]
        return [Prompt(table, each) for table, each in zip(_to_cpu(rows), encoded, strict=True)]


def _length(job: DecodeJob) -> int:
    return job.audio.size


def _to_cpu(tables: Sequence[Tensor]) -> Sequence[Tensor]:
    """Move tables of one width together: one wait for the device instead of one each."""
    if tables[0].device.type == "cpu":
        return tables
    together: Any = torch.cat(list(tables)).cpu()  # torch does not annotate `split`
    parts: Sequence[Tensor] = together.split([len(table) for table in tables])
    return parts

"""A split model around its language model: jobs to prompts, micro-batched, and texts to word times.

The model's modules block; they run in one thread each for encoding and for alignment, never in the event loop. On a
GPU the alignment has a stream of its own, so that it does not wait for the batches that are to be encoded.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from realtime_server.core.jobs import DecodeJob, Priority
from realtime_server.core.segments import SAMPLE_RATE, Word
from realtime_server.engines.batching import BUCKETS, Batcher
from realtime_server.models.audio_llm import AudioLlm, Encoded
from realtime_server.models.graphs import ROWS, GraphedEncoder

# Waveforms of a batch, and their samples together, padded; the same to encode and to align. A CPU gains little from a
# batch, and its first answer waits for its last; on a GPU the memory of a recorded pass is what counts.
GPU_BATCH, GPU_SAMPLES = 64, 960 * SAMPLE_RATE
CPU_BATCH, CPU_SAMPLES = 4, 16 * SAMPLE_RATE
# Waveforms of a batch where each is padded to a context: they fill a GPU, and more would only be answered later.
GPU_CONTEXTS = 8
# A pass of so many samples takes a GPU hardly longer than the shortest does, and the language model is quicker where
# prompts come to it together. So partials, which nobody waits for to the millisecond, go in common passes.
GPU_MIXED = 96 * SAMPLE_RATE
GPU_PATIENCE_S: Mapping[int, float] = {Priority.FIRST_PARTIAL: 0.02, Priority.REFRESH: 0.05}


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A job ready for the language model.

    rows: (n, width), on the CPU.  encoded: what word times are computed from.
    """

    rows: Tensor
    encoded: Encoded


class NanoAudio:
    """One model behind micro-batching, for all sessions.

    graphs: how a GPU encodes; made here for a model that is on one.
    """

    def __init__(self, model: AudioLlm, *, graphs: GraphedEncoder | None = None) -> None:
        self.model = model
        self._graphs = GraphedEncoder(model) if graphs is None and model.device.type != "cpu" else graphs
        self._encoder = self._graphs or model
        # What is always padded to one length has one bucket.
        self._buckets = (model.context,) if model.context else BUCKETS
        self._gpu_samples = GPU_CONTEXTS * model.context if model.context else GPU_SAMPLES
        batch, samples = (GPU_BATCH, self._gpu_samples) if self._graphs else (CPU_BATCH, CPU_SAMPLES)
        self._batcher = Batcher(
            self._encode, _length, buckets=self._buckets, max_batch=batch, max_length=samples,
            mixed_length=GPU_MIXED if self._graphs else 0, patience_s=GPU_PATIENCE_S if self._graphs else None,
        )  # fmt: skip
        self._aligner = Batcher(
            self._align, _encoded_length, max_batch=batch, max_length=samples, name="alignment"
        )
        cuda: Any = torch.cuda  # not wholly annotated
        self._stream = cuda.Stream(model.device) if model.device.type == "cuda" else None

    async def warmup(self, longest: int) -> None:
        """Record every pass that a GPU makes for audio of up to `longest` samples; nothing on a CPU.

        Must come before the first job.
        """
        if self._graphs:
            await asyncio.to_thread(self._record, self._graphs, longest)

    async def prompt(self, job: DecodeJob) -> Prompt:
        """Encode a job's audio and lay out its prompt; cancelling leaves other jobs alone.

        Raises EngineError when that failed.
        """
        return await self._batcher.submit(job, job.priority)

    async def words(self, prompt: Prompt, text: str, priority: int = 0) -> tuple[Word, ...] | None:
        """Times of the words of a text; None where they cannot be had.

        Raises EngineError when the alignment failed: out of memory above all.
        """
        return await self._aligner.submit((prompt.encoded, text), priority)

    async def aclose(self) -> None:
        """Fail what waits; return when both threads have ended."""
        await self._batcher.aclose()
        await self._aligner.aclose()

    def _record(self, graphs: GraphedEncoder, longest: int) -> None:
        last = bisect_left(self._buckets, longest)  # the one that `longest` falls into
        for edge in self._buckets[: last + 1]:
            for rows in self._recorded_rows(edge):
                graphs.record(rows, edge)

    def _recorded_rows(self, edge: int) -> tuple[int, ...]:
        """Rows of the passes that are recorded for a bucket: as many as the memory is meant for."""
        return tuple(rows for rows in ROWS if rows * edge <= self._gpu_samples)

    def _encode(self, jobs: Sequence[DecodeJob], edge: int) -> list[Prompt]:
        """A batch, in the encoder's thread.

        On a GPU it is padded to its bucket, and goes in as many passes as have been recorded for: few shapes, quick
        kernels, and no recording while people wait.
        """
        words = any(job.options.words for job in jobs)
        waveforms = [job.audio for job in jobs]
        pad_to, most = (edge, self._recorded_rows(edge)[-1]) if self._graphs else (None, len(jobs))
        encoded = [
            each
            for start in range(0, len(jobs), most)
            for each in self._encoder.encode(waveforms[start : start + most], words=words, pad_to=pad_to)
        ]
        rows = [
            self.model.prompt_rows(job.options, each, job.prefix_text)
            for job, each in zip(jobs, encoded, strict=True)
        ]
        return [Prompt(table, each) for table, each in zip(_to_cpu(rows), encoded, strict=True)]

    def _align(self, pairs: Sequence[tuple[Encoded, str]], edge: int) -> Sequence[tuple[Word, ...] | None]:
        """A batch, in the alignment's thread; `edge` is not needed, no graph is recorded here.

        Its stream waits for no other: `_encode` has waited for what the encoder made, and `align_all` waits for its own
        results, so that what it read is not given back too soon.
        """
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            return self.model.align_all(pairs)


def _length(job: DecodeJob) -> int:
    return job.audio.size


def _encoded_length(pair: tuple[Encoded, str]) -> int:
    return pair[0].samples


def _to_cpu(tables: Sequence[Tensor]) -> Sequence[Tensor]:
    """Move tables of one width together: one wait for the device instead of one each."""
    if tables[0].device.type == "cpu":
        return tables
    together: Any = torch.cat(list(tables)).cpu()  # torch does not annotate `split`
    parts: Sequence[Tensor] = together.split([len(table) for table in tables])
    return parts

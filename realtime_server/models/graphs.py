"""Encoding on a GPU through CUDA graphs: a whole forward pass is one launch instead of two thousand.

A graph is a recording for one shape: so many rows, padded to so many samples. It is made the first time its shape is
needed, which takes up to two seconds; `record` makes the usual ones beforehand. Fewer waveforms than rows leave rows
empty. Results equal those of `AudioLlm.encode` on the same padding: the kernels are the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realtime_server.core.jobs import Samples
from realtime_server.models.audio_llm import AudioLlm, Encoded, Heard

ROWS = (1, 2, 4, 8, 16, 32, 64)  # of a graph
REHEARSALS = 2  # before recording: kernels are chosen and libraries set up, which cannot be recorded

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A graph, and the memory that it reads from and writes to."""

    graph: Any  # torch.cuda.CUDAGraph
    waveforms: Tensor  # (rows, samples) float32
    lengths: Tensor  # (rows,) int64
    heard: Heard


class GraphedEncoder:
    """`encode` of a model on a GPU; one thread at a time."""

    def __init__(self, model: AudioLlm) -> None:
        self._model = model
        self._recordings: dict[tuple[int, int], Recording] = {}
        self._pool: Any = (
            torch.cuda.graph_pool_handle()
        )  # graphs run one after the other, so they share memory

    def record(self, rows: int, samples: int) -> None:
        """Make the graph for a shape beforehand."""
        self._recording(_rows_for(rows), samples)

    def encode(
        self, waveforms: Sequence[Samples], *, words: bool = True, pad_to: int | None = None
    ) -> list[Encoded]:
        """See `AudioLlm.encode`; `pad_to` decides the graph, so let it be one of a few."""
        if not waveforms or len(waveforms) > ROWS[-1]:
            return self._model.encode(waveforms, words=words, pad_to=pad_to)
        samples = max(pad_to or 0, *(len(waveform) for waveform in waveforms))
        recording = self._recording(_rows_for(len(waveforms)), samples)
        rows = len(recording.lengths)
        batch = torch.zeros(rows, samples, pin_memory=True)
        for row, waveform in zip(batch.numpy(), waveforms, strict=False):
            row[: len(waveform)] = waveform
        lengths = [len(waveform) for waveform in waveforms]
        with torch.inference_mode():
            recording.waveforms.copy_(batch, non_blocking=True)
            recording.lengths.copy_(torch.tensor([*lengths, *[0] * (rows - len(lengths))]))
            recording.graph.replay()
        return self._model.split(recording.heard, lengths, words=words)

    def _recording(self, rows: int, samples: int) -> Recording:
        found = self._recordings.get((rows, samples))
        if found is None:
            began_s = time.monotonic()
            found = self._recordings[rows, samples] = self._make(rows, samples)
            logger.debug("recorded %d x %d samples in %.2f s", rows, samples, time.monotonic() - began_s)
        return found

    def _make(self, rows: int, samples: int) -> Recording:
        device = self._model.device
        noise = np.random.default_rng(0).normal(0.0, 0.1, (rows, samples)).astype(np.float32)
        waveforms = torch.from_numpy(noise).to(device)
        lengths = torch.full((rows,), samples, device=device)
        cuda: Any = torch.cuda  # not wholly annotated
        graph, stream = cuda.CUDAGraph(), cuda.Stream()
        with torch.inference_mode():
            stream.wait_stream(cuda.current_stream())
            with cuda.stream(stream):
                for _ in range(REHEARSALS):
                    self._model(waveforms, lengths)
            cuda.current_stream().wait_stream(stream)
            # The alignment's thread may use the device meanwhile: only this thread's calls are watched.
            with cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                heard = self._model(waveforms, lengths)
        return Recording(graph, waveforms, lengths, heard)


def _rows_for(count: int) -> int:
    """The fewest rows of a graph that hold `count` waveforms."""
    return next(rows for rows in ROWS if rows >= count)

"""Telling voices apart: windows of all sessions through one speaker network, and the clustering of what it says.

Windows of one length are computed together (they are 1.5 s long, but for those at the end of a segment), in a thread.
What a telephone does to every voice is taken out of their embeddings. Clustering has two threads of its own: what is
heard last of a long recording takes seconds, and what is asked while a session goes on must not wait for that. Of
the last ones the small go first: most of those that end together need not wait for the few that are long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from realtime_server.core.jobs import ClusterJob, Embeddings, EmbedJob, Labels, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.base import Embedder
from realtime_server.engines.batching import CLOSED, Batcher
from realtime_server.errors import EngineError
from realtime_server.models.speaker_features import features, samples_of
from realtime_server.models.speaker_network import Floats, SpeakerNetwork

Cluster = Callable[[Embeddings], Labels]

CPU_BATCH = 8  # windows; more gain nothing, and hold up the next ones
GPU_BATCH = 64
WINDOW = 3 * SAMPLE_RATE // 2  # samples of the usual window
LOUDEST = 1000.0  # samples beyond this are no audio, and would fail the batch they are in
FEW, MANY = 12, 80  # windows, for each way of clustering


class SpeakerEmbedder(Embedder):
    """A speaker network and a way of clustering, shared by all sessions."""

    def __init__(self, network: SpeakerNetwork, cluster: Cluster, *, max_batch: int = CPU_BATCH) -> None:
        """Serve a loaded network; cluster: one label for each embedding, from 0; called in two threads."""
        self._network, self._cluster, self._max_batch = network, cluster, max_batch
        self._shortest = samples_of(network.fewest_frames)
        self._windows: Batcher[Samples, Floats] = Batcher(
            self._compute, len, buckets=(), max_batch=max_batch, name="speaker network"
        )
        self._clusterings: dict[bool, Batcher[Embeddings, Labels]] = {
            final: Batcher(
                partial(self._sort, final), len, buckets=(), window_s=0.0, max_batch=1, name="clustering"
            )
            for final in (False, True)
        }
        self._embedded_s = float("-inf")  # when the network last finished a batch, whatever came of it
        self._clustered_s = {final: float("-inf") for final in self._clusterings}
        self._closed = False

    async def warmup(self) -> None:
        """Embed and cluster noise, alone and in numbers; raise EngineError if that fails."""
        noise = np.random.default_rng(0)
        windows = noise.normal(0, 0.1, (1 + self._max_batch, WINDOW)).astype(np.float32)
        await self._embed(list(windows[:1]))
        await self._embed(list(windows[1:]))
        for count in (FEW, MANY):
            vectors = _unit(noise.normal(size=(count, self._network.width)).astype(np.float32))
            for clustering in self._clusterings.values():
                await clustering.submit(vectors)

    async def embed(self, job: EmbedJob) -> Embeddings:
        """See Embedder; raises EngineError if a window is too short for the network, or no audio."""
        sizes = [samples.size for samples in job.audio]
        if sizes != [window.end - window.start for window in job.windows]:
            raise ValueError(f"job {job.id} holds {sizes} samples for {job.windows}")
        if sizes and min(sizes) < self._shortest:
            raise EngineError(f"a voice takes at least {self._shortest} samples, not {min(sizes)}")
        if not all(np.abs(samples).max() <= LOUDEST for samples in job.audio):  # nor is what is no number
            raise EngineError("a window's samples are not in -1..1")
        return await self._embed(job.audio)

    async def cluster(self, job: ClusterJob) -> Labels:
        """See Embedder."""
        if self._closed:
            raise EngineError(CLOSED)
        if not len(job.embeddings):
            return np.empty(0, np.int64)
        priority = len(job.embeddings) if job.final else 0
        return await self._clusterings[job.final].submit(job.embeddings, priority)

    def answered_s(self, job: EmbedJob | ClusterJob) -> float:
        """When the thread that does such jobs last finished one, by `time.monotonic`; -inf before the first."""
        return self._embedded_s if isinstance(job, EmbedJob) else self._clustered_s[job.final]

    async def aclose(self) -> None:
        """Fail what waits and what runs, and wait for the threads; later jobs are refused."""
        self._closed = True
        clusterings = (clustering.aclose() for clustering in self._clusterings.values())
        await asyncio.gather(self._windows.aclose(), *clusterings)

    async def _embed(self, audio: Sequence[Samples]) -> Embeddings:
        if self._closed:
            raise EngineError(CLOSED)
        if not len(audio):
            return np.empty((0, self._network.width), np.float32)
        vectors = np.stack(await asyncio.gather(*(self._windows.submit(samples) for samples in audio)))
        if not np.isfinite(vectors).all():
            raise EngineError("the speaker network's answer is not finite")
        return _unit(_without(vectors, self._network.channel))

    def _compute(self, windows: Sequence[Samples], _samples: int) -> list[Floats]:
        """Vectors of windows of one length."""
        try:
            return list(self._network.embed(np.stack([features(samples) for samples in windows])))
        finally:
            self._embedded_s = time.monotonic()

    def _sort(self, final: bool, embeddings: Sequence[Embeddings], _windows: int) -> list[Labels]:
        """Labels of the only item of a batch."""
        try:
            labels = self._cluster(embeddings[0])
        finally:
            self._clustered_s[final] = time.monotonic()
        if labels.shape != (len(embeddings[0]),):
            raise ValueError(f"{labels.shape} labels for {len(embeddings[0])} windows")
        return [labels.astype(np.int64, copy=False)]


def _without(vectors: Floats, directions: Floats) -> Floats:
    """What is left of vectors (n, width) at right angles to directions (m, width), which are orthonormal."""
    along: Floats = (vectors @ directions.T @ directions).astype(np.float32)
    return vectors - along


def _unit(vectors: Floats) -> Floats:
    """The same directions, of length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, np.finfo(np.float32).tiny)).astype(np.float32, copy=False)
    return unit

"""The fake embedder: what is one voice to it, and its faults."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from realtime_server.core.jobs import ClusterJob, Embeddings, EmbedJob, Samples, Window
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.fake import FakeEmbedder, Fault
from realtime_server.engines.fake_voices import sort_voices, voiceprint
from realtime_server.errors import EngineError
from tests.audio import silence, tone

VOICES_HZ = (150, 220, 400, 900, 3000)


def hum(hz: float, seconds: float = 1.5, level: float = 0.3) -> Samples:
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (level * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def embed_job(*audio: Samples) -> EmbedJob:
    return EmbedJob(1, "s", 1, 0, 0, tuple(Window(0, samples.size) for samples in audio), audio)


def cluster_job(embeddings: Embeddings) -> ClusterJob:
    windows = tuple(Window(at, at + 1) for at in range(len(embeddings)))
    return ClusterJob(2, "s", 1, 0, windows, embeddings, final=True)


@pytest.mark.parametrize("hz", VOICES_HZ)
def test_a_voice_stays_one_whatever_its_level_and_length(hz: float) -> None:
    expected = voiceprint(hum(hz))
    assert expected.dtype == np.float32
    assert np.isclose(np.linalg.norm(expected), 1)
    rng = np.random.default_rng(0)
    for other in (
        hum(hz, level=0.01),
        hum(hz, seconds=0.2),
        hum(hz * 1.01),
        np.concatenate([silence(0.5), hum(hz, seconds=1.0)]),
        hum(hz) + rng.normal(0, 0.01, 24_000).astype(np.float32),
    ):
        assert voiceprint(other) @ expected > 0.9


def test_voices_are_sorted_in_the_order_in_which_they_are_heard() -> None:
    order = [2, 2, 0, 4, 0, 2, 1, 3, 4, 1]
    found = sort_voices(
        np.stack([voiceprint(hum(VOICES_HZ[index], level=0.1 + index / 10)) for index in order])
    )
    assert found.dtype == np.int64
    assert found.tolist() == [0, 0, 1, 2, 1, 0, 3, 4, 2, 3]


@pytest.mark.parametrize("audio", [silence(1.5), np.full(100, 0.5, np.float32), tone(1.5), silence(0.1)[:1]])
def test_anything_has_a_voice(audio: Samples) -> None:
    assert np.isclose(np.linalg.norm(voiceprint(audio)), 1)


def test_nobody_is_nobody() -> None:
    assert sort_voices(np.empty((0, 30), np.float32)).shape == (0,)


async def test_the_embedder_embeds_and_sorts() -> None:
    embedder = FakeEmbedder()
    await embedder.warmup()
    job = embed_job(hum(150), hum(900, seconds=0.5), hum(150, seconds=0.7))
    found = await embedder.embed(job)
    sorting = cluster_job(found)
    assert (await embedder.cluster(sorting)).tolist() == [0, 1, 0]
    assert (await embedder.embed(embed_job())).shape == (0, found.shape[1])
    assert list(embedder.jobs)[:2] == [job, sorting]
    await embedder.aclose()


async def test_jobs_kept_are_bounded() -> None:
    embedder = FakeEmbedder(keep_jobs=2)
    for _ in range(3):
        await embedder.embed(embed_job(hum(150)))
    assert len(embedder.jobs) == 2


async def test_faults_strike_embedding_and_clustering_apart() -> None:
    embedder, voices = FakeEmbedder(), sort_voices(np.eye(2, dtype=np.float32))
    embedder.embed_faults.inject(Fault(nth=2))
    embedder.cluster_faults.inject(Fault(error=EngineError("no labels"), nth=1))
    await embedder.embed(embed_job(hum(150)))
    with pytest.raises(EngineError, match="told to fail"):
        await embedder.embed(embed_job(hum(150)))
    with pytest.raises(EngineError, match="no labels"):
        await embedder.cluster(cluster_job(np.eye(2, dtype=np.float32)))
    assert np.array_equal(await embedder.cluster(cluster_job(np.eye(2, dtype=np.float32))), voices)


@pytest.mark.parametrize("never", [True, False])
async def test_closing_ends_what_runs(never: bool) -> None:
    embedder = FakeEmbedder(embed_s=60.0, cluster_s=60.0)
    if never:
        embedder.embed_faults.inject(Fault(error=None))
        embedder.cluster_faults.inject(Fault(error=None))
    jobs = [
        asyncio.create_task(embedder.embed(embed_job(hum(150)))),
        asyncio.create_task(embedder.cluster(cluster_job(np.eye(2, dtype=np.float32)))),
    ]
    await asyncio.sleep(0.01)
    await embedder.aclose()
    for job in jobs:
        with pytest.raises(EngineError, match="closed"):
            await job
    with pytest.raises(EngineError, match="closed"):
        await embedder.warmup()

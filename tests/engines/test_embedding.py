"""The embedder: who shares a batch, what runs where, and that nobody's trouble is another's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

pytest.importorskip("kaldi_native_fbank", reason="the CPU recognizer is not installed")

from realtime_server.core.jobs import ClusterJob, Embeddings, EmbedJob, Labels, Samples, Window
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.embedding import SpeakerEmbedder
from realtime_server.errors import EngineError
from realtime_server.models.speaker_features import features
from realtime_server.models.speaker_network import Floats
from tests.models.speaker import network
from tests.models.voices import voice

pytestmark = pytest.mark.embedded


class Network:
    """A speaker network that answers with the spread of each band; holds every batch until `gate` opens."""

    width, fewest_frames = 80, 3
    channel = np.empty((0, 80), np.float32)

    def __init__(self) -> None:
        self.batches: list[tuple[int, ...]] = []
        self.threads: set[int] = set()
        self.entered, self.gate = threading.Semaphore(0), threading.Event()
        self.error: Exception | None = None
        self.gate.set()

    def embed(self, features: Floats) -> Floats:
        self.batches.append(features.shape)
        self.threads.add(threading.get_ident())
        self.entered.release()
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        spread: Floats = features.std(axis=1)
        return spread


class Clustering:
    """Labels by rank of the first number; holds those of `held` windows until `gate` opens."""

    def __init__(self) -> None:
        self.held = 0
        self.threads: set[int] = set()
        self.entered, self.gate = threading.Semaphore(0), threading.Event()

    def __call__(self, embeddings: Embeddings) -> Labels:
        self.threads.add(threading.get_ident())
        self.entered.release()
        if len(embeddings) == self.held:
            assert self.gate.wait(10)
        return np.argsort(np.argsort(embeddings[:, 0]))


@pytest.fixture
def model() -> Network:
    return Network()


@pytest.fixture
def clustering() -> Clustering:
    return Clustering()


@pytest.fixture
async def embedder(model: Network, clustering: Clustering) -> AsyncIterator[SpeakerEmbedder]:
    embedder = SpeakerEmbedder(model, clustering)
    yield embedder
    model.gate.set()
    clustering.gate.set()
    await embedder.aclose()


def embed_job(*audio: Samples, session: str = "s") -> EmbedJob:
    windows = tuple(Window(1000, 1000 + samples.size) for samples in audio)
    return EmbedJob(1, session, 1, 0, 0, windows, audio)


def cluster_job(count: int, *, final: bool = False) -> ClusterJob:
    embeddings = np.random.default_rng(count).normal(size=(count, 80)).astype(np.float32)
    windows = tuple(Window(at, at + 24_000) for at in range(0, count * 12_000, 12_000))
    return ClusterJob(2, "s", 1, 0, windows, embeddings, final)


async def entered(work: Network | Clustering) -> None:
    """Wait until the next piece of work is in its thread."""
    assert await asyncio.to_thread(work.entered.acquire, timeout=10)


async def test_vectors_are_of_length_one_and_in_order(embedder: SpeakerEmbedder) -> None:
    voices = [voice(hz, seconds) for hz, seconds in ((100, 1.5), (200, 0.5), (300, 1.5), (150, 0.7))]
    found = await embedder.embed(embed_job(*voices))
    assert found.shape == (4, 80)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    for samples, vector in zip(voices, found, strict=True):
        assert np.allclose(await embedder.embed(embed_job(samples)), vector, atol=1e-6)


async def test_what_a_telephone_does_is_taken_out(model: Network, clustering: Clustering) -> None:
    model.channel = np.linalg.qr(np.random.default_rng(0).normal(size=(80, 2)))[0].T.astype(np.float32)
    embedder = SpeakerEmbedder(model, clustering)
    (found,) = await embedder.embed(embed_job(voice(100, 1.5)))
    await embedder.aclose()
    plain = features(voice(100, 1.5)).std(axis=0)
    plain -= plain @ model.channel.T @ model.channel
    assert np.allclose(model.channel @ found, 0, atol=1e-6)
    assert np.allclose(found, plain / np.linalg.norm(plain), atol=1e-6)
    assert found.dtype == np.float32


async def test_no_windows_no_vectors(embedder: SpeakerEmbedder, model: Network) -> None:
    assert (await embedder.embed(embed_job())).shape == (0, 80)
    assert model.batches == []


async def test_windows_of_one_length_are_computed_together_whoever_asks(
    embedder: SpeakerEmbedder, model: Network
) -> None:
    model.gate.clear()
    first = asyncio.create_task(embedder.embed(embed_job(voice(99, 1.0))))
    await entered(model)
    jobs = [embed_job(voice(hz, 1.5), voice(hz, 0.5), session=str(hz)) for hz in (100, 200, 300)]
    others = [asyncio.create_task(embedder.embed(job)) for job in jobs]
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(first, *others)
    assert model.batches == [(1, 98, 80), (3, 148, 80), (3, 48, 80)]  # never filled up with silence


async def test_a_batch_is_bounded(embedder: SpeakerEmbedder, model: Network) -> None:
    await embedder.embed(embed_job(*[voice(100, 0.5)] * 20))
    assert sum(batch for batch, *_ in model.batches) == 20
    assert max(batch for batch, *_ in model.batches) == 8


async def test_nothing_is_computed_on_the_event_loop(
    embedder: SpeakerEmbedder, model: Network, clustering: Clustering
) -> None:
    await embedder.embed(embed_job(voice(100, 0.5)))
    await embedder.embed(embed_job(voice(100, 0.5)))
    await embedder.cluster(cluster_job(3))
    assert len(model.threads) == 1
    assert len(model.threads | clustering.threads | {threading.get_ident()}) == 3


async def test_labels_are_those_of_the_clustering(embedder: SpeakerEmbedder, clustering: Clustering) -> None:
    job = cluster_job(7)
    found = await embedder.cluster(job)
    assert found.dtype == np.int64
    assert np.array_equal(found, clustering(job.embeddings))
    assert (await embedder.cluster(cluster_job(0, final=True))).shape == (0,)


async def test_the_end_of_a_long_recording_holds_nobody_up(
    embedder: SpeakerEmbedder, clustering: Clustering
) -> None:
    clustering.held = 50
    last = asyncio.create_task(embedder.cluster(cluster_job(50, final=True)))
    await entered(clustering)
    await asyncio.wait_for(embedder.cluster(cluster_job(5)), 5)
    await asyncio.wait_for(embedder.embed(embed_job(voice(100, 0.5))), 5)
    assert not last.done()
    clustering.gate.set()
    await last


async def test_of_the_last_ones_the_small_go_first(embedder: SpeakerEmbedder, clustering: Clustering) -> None:
    clustering.held = 50
    order: list[int] = []

    async def end(count: int) -> None:
        await embedder.cluster(cluster_job(count, final=True))
        order.append(count)

    first = asyncio.create_task(end(50))
    await entered(clustering)
    others = [asyncio.create_task(end(count)) for count in (40, 30, 3, 20)]
    await asyncio.sleep(0)
    clustering.gate.set()
    await asyncio.gather(first, *others)
    assert order == [50, 3, 20, 30, 40]


async def test_whoever_waits_sees_whether_anybody_is_answered(
    embedder: SpeakerEmbedder, model: Network, clustering: Clustering
) -> None:
    jobs = [embed_job(voice(100, 0.5)), cluster_job(3), cluster_job(3, final=True)]
    assert [embedder.answered_s(job) for job in jobs] == [float("-inf")] * 3
    before_s = time.monotonic()
    await embedder.embed(jobs[0])
    assert before_s <= embedder.answered_s(jobs[0]) <= time.monotonic()
    await embedder.cluster(jobs[1])
    assert embedder.answered_s(jobs[0]) <= embedder.answered_s(jobs[1]) <= time.monotonic()
    assert embedder.answered_s(jobs[2]) == float("-inf")  # it has a thread of its own
    model.error = RuntimeError("out of memory")
    before_s = time.monotonic()
    with pytest.raises(EngineError):
        await embedder.embed(jobs[0])
    assert before_s <= embedder.answered_s(jobs[0])  # it fails, but does not hang


async def test_a_window_that_is_too_short_is_refused_alone(embedder: SpeakerEmbedder, model: Network) -> None:
    fine = asyncio.create_task(embedder.embed(embed_job(voice(100, 0.5))))
    with pytest.raises(EngineError, match="at least 720 samples, not 719"):
        await embedder.embed(embed_job(voice(100, 0.5), voice(100, 1.0)[:719]))
    await fine
    assert model.batches == [(1, 48, 80)]
    await embedder.embed(embed_job(voice(100, 1.0)[:720]))


async def test_a_job_that_contradicts_itself_is_the_callers_mistake(embedder: SpeakerEmbedder) -> None:
    job = EmbedJob(7, "s", 1, 0, 0, (Window(0, 24_000),), (voice(100, 1.0),))
    with pytest.raises(ValueError, match="job 7 holds"):
        await embedder.embed(job)


async def test_a_failing_network_fails_its_batch_only(embedder: SpeakerEmbedder, model: Network) -> None:
    model.error = RuntimeError("out of memory")
    with pytest.raises(EngineError, match="the speaker network failed: out of memory"):
        await embedder.embed(embed_job(voice(100, 0.5), voice(100, 1.5)))
    model.error = None
    await embedder.embed(embed_job(voice(100, 0.5)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
async def test_what_is_no_audio_fails_nobody_else(
    embedder: SpeakerEmbedder, model: Network, value: float
) -> None:
    fine = asyncio.create_task(embedder.embed(embed_job(voice(100, 1.5))))
    broken = voice(100, 1.5)
    broken[1000] = value
    with pytest.raises(EngineError, match=r"not in -1\.\.1"):
        await embedder.embed(embed_job(voice(100, 1.5), broken))
    await fine
    assert model.batches == [(1, 148, 80)]


async def test_answers_that_are_no_numbers_are_an_error() -> None:
    class Broken(Network):
        def embed(self, features: Floats) -> Floats:
            return super().embed(features) * np.float32(np.nan)

    embedder = SpeakerEmbedder(Broken(), Clustering())
    with pytest.raises(EngineError, match="not finite"):
        await embedder.embed(embed_job(voice(100, 0.5)))
    await embedder.aclose()


async def test_a_failing_clustering_is_an_error() -> None:
    def fail(embeddings: Embeddings) -> Labels:
        if len(embeddings) == 3:
            raise ValueError("no eigenvalues")
        return np.zeros(1, np.int64)

    embedder = SpeakerEmbedder(Network(), fail)
    for count, why in ((3, "the clustering failed: no eigenvalues"), (4, r"\(1,\) labels for 4 windows")):
        with pytest.raises(EngineError, match=why):
            await embedder.cluster(cluster_job(count))
    await embedder.cluster(cluster_job(1))
    await embedder.aclose()


async def test_cancelling_a_job_leaves_the_others_alone(embedder: SpeakerEmbedder, model: Network) -> None:
    model.gate.clear()
    first = asyncio.create_task(embedder.embed(embed_job(voice(99, 1.0))))
    await entered(model)
    dropped, kept = (asyncio.create_task(embedder.embed(embed_job(voice(hz, 1.5)))) for hz in (100, 200))
    await asyncio.sleep(0)
    dropped.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(first, kept)
    assert dropped.cancelled()
    assert model.batches == [(1, 98, 80), (1, 148, 80)]


async def test_closing_ends_what_runs_and_what_waits(
    embedder: SpeakerEmbedder, model: Network, clustering: Clustering
) -> None:
    model.gate.clear()
    clustering.held = 50
    jobs = [
        asyncio.create_task(embedder.embed(embed_job(voice(100, 0.5)))),
        asyncio.create_task(embedder.cluster(cluster_job(50))),
    ]
    await entered(model)
    await entered(clustering)
    jobs += [
        asyncio.create_task(embedder.embed(embed_job(voice(100, 0.5)))),
        asyncio.create_task(embedder.cluster(cluster_job(4))),
    ]
    await asyncio.sleep(0)
    closing = asyncio.create_task(embedder.aclose())
    for job in jobs:  # before the threads are done
        with pytest.raises(EngineError, match="shut down"):
            await asyncio.wait_for(job, 5)
    model.gate.set()
    clustering.gate.set()
    await closing
    for late in (
        embedder.embed(embed_job(voice(100, 0.5))),
        embedder.embed(embed_job()),
        embedder.cluster(cluster_job(3)),
        embedder.cluster(cluster_job(0)),
        embedder.warmup(),
    ):
        with pytest.raises(EngineError, match="shut down"):
            await late


async def test_warming_up_runs_everything_once(
    embedder: SpeakerEmbedder, model: Network, clustering: Clustering
) -> None:
    await embedder.warmup()
    assert (1, 148, 80) in model.batches
    assert len(clustering.threads) == 2


async def test_warming_up_tells_what_cannot_work(embedder: SpeakerEmbedder, model: Network) -> None:
    model.error = RuntimeError("no kernel image")
    with pytest.raises(EngineError, match="no kernel image"):
        await embedder.warmup()


async def test_real_voices_are_told_apart() -> None:
    pytest.importorskip("scipy", reason="what clusters is not installed")
    from realtime_server.engines.clustering import cluster
    from tests.models.whisper import clip, reading

    embedder = SpeakerEmbedder(network(), cluster)
    await embedder.warmup()
    counting = clip("en/counting")
    audio = [reading(at, at + 1.5) for at in (3, 5, 7)] + [
        counting[at : at + 24_000] for at in (0, 12_000, 20_000)
    ]
    order = [0, 3, 1, 4, 5, 2]
    job = embed_job(*[audio[index] for index in order])
    found = await embedder.embed(job)
    labels = await embedder.cluster(ClusterJob(2, "s", 1, 0, job.windows, found, final=True))
    assert labels.tolist() == [0, 1, 0, 1, 1, 0]
    await embedder.aclose()


def test_a_usual_window_is_what_it_says() -> None:
    from realtime_server.engines.embedding import WINDOW

    assert WINDOW == 1.5 * SAMPLE_RATE

"""Who speaks in a recording, and texts that stay whole when nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from realtime_server.core.jobs import EmbedJob
from realtime_server.core.segments import SAMPLE_RATE, Segment
from realtime_server.core.turns import Turn
from realtime_server.engines.fake import FakeEmbedder, Fault
from realtime_server.offline.calls import Deadlines
from realtime_server.offline.places import Places
from realtime_server.offline.segmentation import ArrayAudio
from realtime_server.offline.speakers import WINDOWS, Speakers
from tests.audio import silence
from tests.realtime.test_speakers import HIGH, LOW, voice

AUDIO = ArrayAudio(np.concatenate([voice(LOW, 5.0), silence(2.0), voice(HIGH, 5.0), voice(LOW, 20.0)]))
SPEECH = np.ones(3200, np.float32)
SPEECH[500:700] = 0
SEGMENTS = (
    Segment(0, 0, 0, 12 * SAMPLE_RATE),
    Segment(1, 0, 12 * SAMPLE_RATE, 32 * SAMPLE_RATE),
)


def speakers(embedder: FakeEmbedder, count: Callable[[], int] = lambda: 2) -> Speakers:
    """Speakers that were told of both segments."""
    deadlines = Deadlines(base_s=0.3, factor=0.0, patience_s=0.3, tick_s=0.02)
    made = Speakers(embedder, AUDIO, "file", places=Places(count), deadlines=deadlines)
    made.voices.receive_probabilities(SPEECH)
    for segment in SEGMENTS:
        made.voices.receive_open(segment.index, segment.start)
        made.voices.receive_close(segment)
    return made


async def work(made: Speakers) -> None:
    await asyncio.gather(*(made.embed(*due) for due in made.take_windows()))
    await made.conclude()


async def test_turns_are_known_at_the_end() -> None:
    embedder = FakeEmbedder()
    made = speakers(embedder)
    await work(made)
    first, second = made.turns(SEGMENTS[0])
    assert (first.speaker, second.speaker) == (0, 1)
    assert abs(first.end - 6 * SAMPLE_RATE) < SAMPLE_RATE
    assert made.turns(SEGMENTS[1]) == (Turn(SEGMENTS[1].start, SEGMENTS[1].end, 0),)
    assert made.problem is None
    *embeddings, clustering = embedder.jobs
    assert all(isinstance(job, EmbedJob) and len(job.windows) <= WINDOWS for job in embeddings)
    assert not isinstance(clustering, EmbedJob)
    assert clustering.final
    assert made.take_windows() == []


async def test_few_jobs_are_computed_at_once() -> None:
    most = 0

    class Counting(FakeEmbedder):
        async def embed(self, job: EmbedJob):  # type: ignore[no-untyped-def]
            nonlocal most
            most = max(most, places.held)
            await asyncio.sleep(0)
            return await super().embed(job)

    made = speakers(Counting(), lambda: 1)
    places = made._places
    await work(made)
    assert most == 1


async def test_silence_has_no_speakers() -> None:
    made = Speakers(FakeEmbedder(), AUDIO, "file", places=Places(lambda: 1), deadlines=Deadlines())
    made.voices.receive_probabilities(np.zeros(len(AUDIO) // 160, np.float32))
    made.voices.receive_open(0, 0)
    made.voices.receive_close(SEGMENTS[0])
    await work(made)
    assert made.turns(SEGMENTS[0]) == (Turn(0, SEGMENTS[0].end, None),)
    assert made.problem is None


@pytest.mark.parametrize("fault", [Fault(nth=1), Fault(nth=3), Fault(error=None), Fault(error=KeyError())])
async def test_a_network_that_fails_costs_the_speakers(
    fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = FakeEmbedder()
    embedder.embed_faults.inject(fault)
    made = speakers(embedder)
    await work(made)
    assert made.problem
    assert made.problem.startswith("speakers could not be told apart: ")
    assert [made.turns(segment) for segment in SEGMENTS] == [
        (Turn(segment.start, segment.end, None),) for segment in SEGMENTS
    ]
    assert "file: speakers could not be told apart" in caplog.text


@pytest.mark.parametrize("fault", [Fault(), Fault(error=None)])
async def test_a_clustering_that_fails_costs_the_speakers(fault: Fault) -> None:
    embedder = FakeEmbedder()
    embedder.cluster_faults.inject(fault)
    made = speakers(embedder)
    await work(made)
    assert made.problem
    assert made.turns(SEGMENTS[0])[0].speaker is None

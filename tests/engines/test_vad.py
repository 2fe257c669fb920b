"""The scorer: what it keeps between jobs, and that a stream that missed audio never answers."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from realtime_server.core.jobs import Probabilities, Samples, ScoreJob
from realtime_server.core.segments import FRAME
from realtime_server.engines.vad import LONG, SLICE, FsmnScorer
from realtime_server.errors import EngineError
from tests.models.vad import network, score

pytestmark = pytest.mark.embedded

RNG = np.random.default_rng(0)
AUDIO: Samples = (
    RNG.normal(0, 0.1, 20 * FRAME + 777) * np.repeat(RNG.random(21), FRAME)[: 20 * FRAME + 777]
).astype(np.float32)


def job(
    samples: Samples,
    *,
    first: bool = False,
    last: bool = False,
    session: str = "s",
    epoch: int = 1,
    channel: int = 0,
) -> ScoreJob:
    return ScoreJob(1, session, epoch, channel, samples, first, last)


@pytest.fixture
def scorer() -> FsmnScorer:
    return FsmnScorer(network())


def jobs(cuts: list[int]) -> list[ScoreJob]:
    """AUDIO as jobs that begin at 0 and at each of the cuts."""
    edges = list(pairwise([0, *cuts, len(AUDIO)]))
    return [job(AUDIO[a:b], first=a == 0, last=b == len(AUDIO)) for a, b in edges]


@pytest.mark.parametrize(
    "cuts", [[], [FRAME], [FRAME, 2 * FRAME], [FRAME, 12 * FRAME], [20 * FRAME], [15 * FRAME]]
)
async def test_jobs_of_any_size_give_the_same_probabilities(scorer: FsmnScorer, cuts: list[int]) -> None:
    scores = [await scorer.score(each) for each in jobs(cuts)]
    assert np.array_equal(np.concatenate(scores), score(AUDIO))


async def test_a_stream_without_audio_has_no_probabilities(scorer: FsmnScorer) -> None:
    assert (await scorer.score(job(AUDIO[:0], first=True, last=True))).shape == (0,)


async def test_streams_are_apart(scorer: FsmnScorer) -> None:
    keys = [("a", 0), ("a", 1), ("b", 0)]
    found: dict[tuple[str, int], list[Probabilities]] = {key: [] for key in keys}
    for at in range(0, 5 * FRAME, FRAME):
        for gain, (session, channel) in enumerate(keys):
            part = gain * AUDIO[at : at + FRAME]
            scores = await scorer.score(job(part, first=at == 0, session=session, channel=channel))
            found[session, channel].append(scores)
    for gain, key in enumerate(keys):
        alone = network().stream().feed(gain * AUDIO[: 5 * FRAME])
        assert np.array_equal(np.concatenate(found[key]), alone)


async def test_first_starts_anew(scorer: FsmnScorer) -> None:
    await scorer.score(job(AUDIO[: 3 * FRAME], first=True))
    again = await scorer.score(job(AUDIO[: 3 * FRAME], first=True))
    assert len(again) == 14


async def test_a_session_that_starts_again_and_again_holds_one_stream(scorer: FsmnScorer) -> None:
    for epoch in range(1, 50):
        await scorer.score(job(AUDIO[:FRAME], first=True, epoch=epoch))
    assert len(scorer._slots) == 1


async def test_a_stream_is_gone_after_its_last_job(scorer: FsmnScorer) -> None:
    await scorer.score(job(AUDIO, first=True, last=True))
    with pytest.raises(EngineError, match="unknown"):
        await scorer.score(job(AUDIO[:FRAME]))


async def test_forget_drops_a_sessions_streams(scorer: FsmnScorer) -> None:
    for session in ("a", "b"):
        await scorer.score(job(AUDIO[:FRAME], first=True, session=session))
    scorer.forget("a")
    scorer.forget("never seen")
    await scorer.score(job(AUDIO[:FRAME], session="b"))
    with pytest.raises(EngineError, match="unknown"):
        await scorer.score(job(AUDIO[:FRAME], session="a"))


async def test_a_session_forgotten_while_it_scores_stays_forgotten(scorer: FsmnScorer) -> None:
    task = asyncio.create_task(scorer.score(job(AUDIO[: 2 * SLICE], first=True)))
    await asyncio.sleep(0)
    scorer.forget("s")
    assert len(await task) == 116
    with pytest.raises(EngineError, match="unknown"):
        await scorer.score(job(AUDIO[:FRAME]))


async def test_a_long_job_lets_others_in(scorer: FsmnScorer) -> None:
    order = []

    async def run(name: str, frames: int) -> None:
        await scorer.score(job(np.zeros(frames * FRAME, np.float32), first=True, session=name))
        order.append(name)

    await asyncio.gather(run("long", 50), run("short", 1))
    assert order == ["short", "long"]


async def test_the_jobs_of_recordings_leave_the_loop_free(scorer: FsmnScorer) -> None:
    audio = np.tile(AUDIO, 4)
    assert len(audio) // FRAME * FRAME > LONG
    task = asyncio.create_task(scorer.score(job(audio, first=True, last=True)))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert np.array_equal(await task, score(audio))


async def test_a_job_of_one_slice_runs_at_once(scorer: FsmnScorer) -> None:
    task = asyncio.create_task(scorer.score(job(AUDIO[:SLICE], first=True)))
    await asyncio.sleep(0)
    assert task.done()


async def test_two_jobs_of_a_stream_at_a_time_are_refused(scorer: FsmnScorer) -> None:
    task = asyncio.create_task(scorer.score(job(AUDIO[: 2 * SLICE], first=True)))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="scoring another job"):
        await scorer.score(job(AUDIO[:FRAME]))
    assert len(await task) == 116
    assert len(await scorer.score(job(AUDIO[:FRAME]))) == 6


async def test_a_cancelled_job_breaks_its_stream_until_it_starts_anew(scorer: FsmnScorer) -> None:
    task = asyncio.create_task(scorer.score(job(AUDIO[: 2 * SLICE], first=True)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(EngineError, match="broken"):
        await scorer.score(job(AUDIO[:FRAME]))
    assert len(await scorer.score(job(AUDIO[:FRAME], first=True))) == 2


async def test_a_failed_job_breaks_its_stream(scorer: FsmnScorer) -> None:
    await scorer.score(job(AUDIO[:FRAME], first=True))
    with pytest.raises(EngineError, match="no multiple of 960"):
        await scorer.score(job(AUDIO[: FRAME + 1]))
    with pytest.raises(EngineError, match="broken"):
        await scorer.score(job(AUDIO[:FRAME]))


async def test_a_closed_scorer_refuses(scorer: FsmnScorer) -> None:
    await scorer.score(job(AUDIO[:FRAME], first=True))
    await scorer.aclose()
    with pytest.raises(EngineError, match="closed"):
        await scorer.score(job(AUDIO[:FRAME], first=True))

"""The FSMN-VAD as a Scorer.

Scoring runs on the event loop: 170 us per 60 ms frame is less than handing it to a thread and waking up again
costs. What one job may hold the loop for is bounded by SLICE; longer jobs let others in between slices, and those of
recordings, longer than LONG, run in a thread.
"""

from __future__ import annotations

import asyncio

import numpy as np

from realtime_server.core.jobs import Probabilities, ScoreJob
from realtime_server.core.segments import FRAME
from realtime_server.engines.base import Scorer
from realtime_server.errors import EngineError
from realtime_server.models.fsmn_vad import FsmnStream, FsmnVad

SLICE = 10 * FRAME  # samples scored without a break: 600 ms, below 2 ms of CPU
LONG = 5 * SLICE  # samples above which a job is worth a thread

Key = tuple[str, int]  # session, channel: the first job of a new epoch replaces the stream of the last


class FsmnScorer(Scorer):
    """One network, and a stream per (session, channel).

    A stream is taken out of its slot while it scores and put back only when the score is whole. So after a
    cancelled or failed job, and while one is in progress, the slot is empty and jobs are refused: a stream
    that missed audio never answers.
    """

    def __init__(self, model: FsmnVad) -> None:
        """Serve a loaded network."""
        self._model = model
        self._slots: dict[Key, list[FsmnStream]] = {}  # each holds one stream, or none
        self._closed = False

    async def score(self, job: ScoreJob) -> Probabilities:
        """See Scorer; raises EngineError if the stream is unknown, broken, or scoring another job."""
        if self._closed:
            raise EngineError("the scorer is closed")
        key = (job.session, job.channel)
        if job.first:
            self._slots[key] = [self._model.stream()]
        slot = self._slots.get(key)
        if not slot:
            state = "unknown" if slot is None else "broken, or is scoring another job"
            raise EngineError(f"voice activity stream {key} is {state}")
        stream = slot.pop()
        try:
            scores = await _score(stream, job)
        except Exception as error:
            raise EngineError(f"voice activity stream {key} failed: {error}") from error
        slot.append(stream)
        if job.last and self._slots.get(key) is slot:
            del self._slots[key]
        return scores

    def forget(self, session: str) -> None:
        """Drop every stream of `session`; a job in progress still answers."""
        self._slots = {key: slot for key, slot in self._slots.items() if key[0] != session}

    async def aclose(self) -> None:
        """Drop all streams; later jobs are refused."""
        self._closed = True
        self._slots.clear()


async def _score(stream: FsmnStream, job: ScoreJob) -> Probabilities:
    """Score the job's samples: in a thread if they are many, else at most SLICE of them at a time."""
    whole = len(job.samples) // FRAME * FRAME if job.last else len(job.samples)
    scores = [np.empty(0, np.float32)]
    if whole > LONG:
        scores.append(await asyncio.to_thread(stream.feed, job.samples[:whole]))
    else:
        for at in range(0, whole, SLICE):
            if at:
                await asyncio.sleep(0)
            scores.append(stream.feed(job.samples[at : min(at + SLICE, whole)]))
    if job.last:
        scores.append(stream.flush(job.samples[whole:]))
    return np.concatenate(scores)

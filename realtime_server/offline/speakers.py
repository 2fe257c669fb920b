"""Who speaks when in a recording: voices are embedded as segments end, and clustered once, at the end.

A job that fails ends this: the texts stay whole, without speakers, and `problem` says why.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from itertools import count

from realtime_server.core.jobs import ClusterJob, EmbedJob, Window
from realtime_server.core.segments import Segment
from realtime_server.core.speakers import Clustering, Voices
from realtime_server.core.turns import Turn
from realtime_server.engines.base import Embedder
from realtime_server.errors import EngineError
from realtime_server.offline.calls import Deadlines, Observer, answer, nobody
from realtime_server.offline.places import Places
from realtime_server.offline.segmentation import Audio

logger = logging.getLogger(__name__)

WINDOWS = 8  # of one job: what is spoken live must not wait for longer


class Speakers:
    """One recording's speakers. The segmentation tells `voices` of segments before they are embedded here."""

    def __init__(
        self, embedder: Embedder, audio: Audio, recording: str, *,
        places: Places, deadlines: Deadlines, observe: Observer = nobody,
    ) -> None:  # fmt: skip
        self.voices = Voices()
        self.problem: str | None = None  # why nobody knows who speaks
        self._embedder, self._audio, self._recording = embedder, audio, recording
        self._places, self._deadlines, self._observe = places, deadlines, observe
        self._ids = count(1)

    def take_windows(self) -> list[tuple[int, Sequence[Window]]]:
        """What is to be embedded now, a few windows of a segment at a time."""
        return [
            (segment, windows[first : first + WINDOWS])
            for segment, windows in self.voices.windows_to_embed().items()
            for first in range(0, len(windows), WINDOWS)
        ]

    async def embed(self, segment: int, windows: Sequence[Window]) -> None:
        """Embed some windows of a segment, when there is a place for them."""
        samples = sum(window.end - window.start for window in windows)
        async with self._places.hold(self._recording, samples):
            if self.problem:
                return
            job = EmbedJob(
                next(self._ids), self._recording, 1, 0, segment, tuple(windows),
                tuple(self._audio.read(window.start, window.end) for window in windows),
            )  # fmt: skip
            try:
                deadline_s = self._deadlines.for_samples(samples)
                embeddings = await answer(
                    self._embedder.embed(job), deadline_s, self._deadlines, tell=partial(self._observe, job)
                )
            except EngineError as error:
                self._fail(error)
            else:
                self.voices.receive_embeddings(segment, windows, embeddings.astype("float32", copy=False))

    async def conclude(self) -> None:
        """Everything is embedded: find out who speaks."""
        if not self.problem and (clustering := self.voices.final_to_run()):
            await self._cluster(clustering)

    def turns(self, segment: Segment) -> tuple[Turn, ...]:
        """Who speaks when in a segment, after `conclude`; the numbers are the clustering's."""
        found = None if self.problem else self.voices.turns(segment.index)
        return found or (Turn(segment.start, segment.end, None),)

    async def _cluster(self, clustering: Clustering) -> None:
        job = ClusterJob(
            next(self._ids), self._recording, 1, 0,
            clustering.windows, clustering.embeddings, clustering.final,
        )  # fmt: skip
        try:
            labels = await answer(
                self._embedder.cluster(job), self._deadlines.patience_s, self._deadlines,
                tell=partial(self._observe, job),
            )  # fmt: skip
        except EngineError as error:
            self._fail(error)
        else:
            self.voices.receive_labels(labels.astype("int64", copy=False))

    def _fail(self, error: EngineError) -> None:
        self.problem = f"speakers could not be told apart: {error}"
        logger.warning("recording %s: %s", self._recording, self.problem)

"""A whole session heard at once, as if everything were computed in no time: what was told, live and after STOP.

The session's own protocol asks for every job, and the real voice activity network, speaker network and clustering
answer. Time is the audio's: before the next packet comes, all jobs are answered, and what waits for a while waits for
as much audio. So the outcome does not depend on the machine. Partial texts are computed only if they are wanted: no
speaker depends on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.driving import PACKET
from realtime_server.core import messages as m
from realtime_server.core.jobs import (
    Capabilities,
    ClusterJob,
    Decoded,
    DecodeJob,
    EmbedJob,
    Job,
    Result,
    Samples,
    ScoreJob,
    WaitJob,
)
from realtime_server.core.protocol import SessionProtocol
from realtime_server.core.segments import SAMPLES_PER_MS, Sentence, Word, to_ms, to_samples
from realtime_server.core.settings import SessionSettings
from realtime_server.core.turns import spoken
from realtime_server.engines.base import Embedder, Engine, Scorer

WORD_MS = 300  # of a stand-in word
LETTERS = "abcdefghijklmnopqrst"


@dataclass(frozen=True, slots=True)
class Models:
    """What computes."""

    engine: Engine
    scorer: Scorer
    embedder: Embedder | None = None  # None for sessions that do not tell speakers apart
    partials: bool = False  # compute their texts


@dataclass(slots=True)
class Told:
    """What a client was told. live: the first speaker of each sentence, by its id; None if it was told none.

    now: samples that were heard when it is told.
    """

    sentences: dict[int, Sentence] = field(default_factory=dict)  # with the speakers after STOP
    live: dict[int, int | None] = field(default_factory=dict)
    swaps: int = 0  # speakers that became others before STOP
    stopping: bool = False
    now: int = 0

    def take(self, events: Iterable[m.Event]) -> None:
        """Note what the client is told."""
        for event in events:
            if isinstance(event, m.SegmentLocked):
                self.sentences |= {sentence.id: sentence for sentence in event.sentences}
                self.live |= {sentence.id: sentence.speaker for sentence in event.sentences}
            elif isinstance(event, m.SpeakersRevised):
                for change in event.changes:
                    self._revise(change.id, change.before, change.after)

    def _revise(self, number: int, before: int | None, after: int | None) -> None:
        self.sentences[number] = replace(self.sentences[number], speaker=after)
        if not self.stopping:
            self.swaps += before is not None
            self.live[number] = after if before is None else before


class KnownWords:
    """An Engine that hears a word of WORD_MS wherever somebody is known to speak: its texts cost nothing."""

    capabilities = Capabilities(
        languages=None, hotwords="none", words=True, logprobs=False, prefix=False, translate=False,
        longest_s=30.0, partial_window_s=8.0, concurrency=2,
    )  # fmt: skip
    healthy = True

    def __init__(self, spells: Iterable[tuple[int, int]]) -> None:
        """spells: speech from here to there, ms."""
        starts = [at for start, end in spells for at in range(start, end - WORD_MS + 1, WORD_MS)]
        self._words = [Word(_spelled(number), at, at + WORD_MS) for number, at in enumerate(sorted(starts))]

    async def warmup(self) -> None:
        """Do nothing."""

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """The words whose middles lie in the job's audio."""
        start_ms = job.start // SAMPLES_PER_MS
        middles = [to_samples((word.start_ms + word.end_ms) / 2) for word in self._words]
        heard = [word for word, at in zip(self._words, middles, strict=True) if job.start <= at < job.end]
        shifted = tuple(word.shifted(-start_ms) for word in heard)
        return Decoded(" ".join(word.text for word in heard), words=shifted)

    async def aclose(self) -> None:
        """Do nothing."""


async def hear(
    samples: Samples, models: Models, session: str, settings: SessionSettings, told: Told | None = None
) -> Told:
    """Run a session over a recording; return what was told, in `told` if it is given."""
    protocol, told = SessionProtocol(session, settings, models.engine.capabilities), told or Told()
    waiting: list[tuple[int, WaitJob]] = []  # with the sample at which each is due
    protocol.receive_command(m.Start())
    for at in range(0, len(samples), PACKET):
        protocol.receive_audio(samples[None, at : at + PACKET])
        await _settle(protocol, models, told, waiting, at + PACKET)
        for due in [each for each in waiting if each[0] <= at + PACKET]:
            waiting.remove(due)
            protocol.receive_result(due[1], None)
            await _settle(protocol, models, told, waiting, at + PACKET)
    told.stopping = True
    protocol.receive_command(m.Stop())
    await _settle(protocol, models, told, waiting, len(samples))
    while waiting:
        protocol.receive_result(waiting.pop(0)[1], None)
        await _settle(protocol, models, told, waiting, len(samples))
    return told


async def _settle(
    protocol: SessionProtocol, models: Models, told: Told, waiting: list[tuple[int, WaitJob]], now: int
) -> None:
    """Answer jobs until there are none but those that wait."""
    told.now = now
    while True:
        jobs = protocol.jobs_to_run()
        protocol.jobs_to_cancel()
        told.take(protocol.events_to_send())
        waiting += [(now + to_samples(job.wait_ms), job) for job in jobs if isinstance(job, WaitJob)]
        todo = [job for job in jobs if not isinstance(job, WaitJob)]
        if not todo:
            return
        for job, answer in zip(
            todo, await asyncio.gather(*(_answer(job, models) for job in todo)), strict=True
        ):
            protocol.receive_result(job, answer)


async def _answer(job: Job, models: Models) -> Result:
    match job:
        case ScoreJob():
            return await models.scorer.score(job)
        case EmbedJob() if models.embedder:
            return await models.embedder.embed(job)
        case ClusterJob() if models.embedder:
            return await models.embedder.cluster(job)
        case DecodeJob() if models.partials or job.kind != "partial":
            return await models.engine.transcribe(job)
    return Decoded("")


def speech_of(
    sentences: Iterable[Sentence], speakers: Mapping[int, int | None], *, by_words: bool
) -> list[tuple[int, int, int]]:
    """From, to (ms) and speaker of those sentences that have one; by_words: from the first word to the last."""
    found = []
    for sentence in sentences:
        words = sentence.words if by_words else ()
        start, end = spoken(words, sentence.start_ms, sentence.end_ms)
        speaker = speakers[sentence.id]
        if speaker is not None:
            found.append((to_ms(start), to_ms(end), speaker))
    return found


def _spelled(number: int) -> str:
    """A word of its own for each number, in letters."""
    digits: Sequence[int] = [number // len(LETTERS) ** place % len(LETTERS) for place in range(3)]
    return "".join(LETTERS[digit] for digit in digits)

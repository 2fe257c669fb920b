"""Stand-ins for what computes, so that the rest can be measured: known scores, and texts that cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from realtime_server.bench.speech import Recording
from realtime_server.core import messages as m
from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob, Job, Probabilities, Samples, ScoreJob
from realtime_server.core.protocol import SessionProtocol
from realtime_server.core.segments import FRAME, HOP, SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.models.fsmn_vad import FsmnVad

PACKET = SAMPLE_RATE // 10  # samples that a client sends at once
LOOK_AHEAD = 4  # probabilities that the network holds back: its window and its right context
WORD = 2 * SAMPLE_RATE // 5  # samples per word of the stand-in texts: 150 words a minute
WORDS = ("we had everything before us we had nothing before us we were all going direct to heaven").split()
CAPABILITIES = Capabilities(
    languages=None, hotwords="none", words=False, logprobs=False, prefix=False, translate=False,
    longest_s=30.0, partial_window_s=8.0, concurrency=2,
)  # fmt: skip


def say(job: DecodeJob) -> Decoded:
    """A word per 0.4 s, each at its place, so that partials grow and finals agree with them."""
    places = range(job.start // WORD, max(job.start // WORD + 1, job.end // WORD))
    return Decoded(" ".join(WORDS[place % len(WORDS)] for place in places), took_ms=1.0)


class InstantEngine:
    """An Engine that answers with `say` at once."""

    capabilities = CAPABILITIES
    healthy = True
    decodes = 0

    async def warmup(self) -> None:
        """Do nothing."""

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Answer, after one turn of the loop as any real engine."""
        self.decodes += 1
        await asyncio.sleep(0)
        return say(job)

    async def aclose(self) -> None:
        """Do nothing."""


def score(model: FsmnVad, samples: Samples) -> Probabilities:
    """What the network says about samples that are repeated for ever: one probability per HOP."""
    stream = model.stream()
    whole = len(samples) // FRAME * FRAME
    return np.concatenate([stream.feed(samples[:whole]), stream.flush(samples[whole:])])


class KnownScorer:
    """A Scorer that answers at once from what is known of a recording that every stream repeats."""

    def __init__(self, probabilities: Probabilities) -> None:
        self._known = probabilities
        self._places: dict[str, Place] = {}

    async def score(self, job: ScoreJob) -> Probabilities:
        """Answer for the stream's place in the recording."""
        place = self._places.setdefault(job.session, Place())
        return place.advance(job, self._known)

    def forget(self, session: str) -> None:
        """Forget the place."""
        self._places.pop(session, None)

    async def aclose(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Place:
    """How far a stream has come: samples heard, probabilities answered."""

    heard: int = 0
    answered: int = 0

    def advance(self, job: ScoreJob, known: Probabilities) -> Probabilities:
        """The next probabilities, as many as the network would give."""
        self.heard += len(job.samples)
        ready = max(self.answered, self.heard // HOP - LOOK_AHEAD)
        places = np.arange(self.answered, ready) % len(known)
        self.answered = ready
        return known[places]


class CoreDriver:
    """A SessionProtocol that hears a recording again and again; every job is answered within the call.

    probabilities: one per HOP of the recording.
    """

    def __init__(
        self, recording: Recording, probabilities: Probabilities, settings: SessionSettings | None = None
    ) -> None:
        self.protocol = SessionProtocol("benchmark", settings or SessionSettings(), CAPABILITIES)
        self._packets = recording.samples[: len(recording.samples) // PACKET * PACKET].reshape(-1, 1, PACKET)
        hops = self._packets.size // HOP
        self._known = np.resize(probabilities[:hops], hops)
        self._packet, self._place = 0, Place()
        self.protocol.receive_command(m.Start())
        self.protocol.events_to_send()

    def hear(self, packets: int) -> list[list[m.Event]]:
        """Hear this many packets of 100 ms; return the events of every turn that had any."""
        turns = []
        for _ in range(packets):
            self.protocol.receive_audio(self._packets[self._packet])
            self._packet = (self._packet + 1) % len(self._packets)
            while True:
                jobs = self.protocol.jobs_to_run()
                self.protocol.jobs_to_cancel()
                if events := self.protocol.events_to_send():
                    turns.append(events)
                if not jobs:
                    break
                for job in jobs:
                    self.protocol.receive_result(job, self._answer(job))
        return turns

    def _answer(self, job: Job) -> Probabilities | Decoded:
        if isinstance(job, ScoreJob):
            return self._place.advance(job, self._known)
        assert isinstance(job, DecodeJob)
        return say(job)

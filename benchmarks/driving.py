"""Stand-ins for what computes, so that the rest can be measured: known scores, and texts that cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from benchmarks.speech import Recording
from realtime_server.core import messages as m
from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob, Probabilities, Samples, ScoreJob
from realtime_server.core.protocol import SessionProtocol
from realtime_server.core.segments import FRAME, HOP, SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.models.fsmn_vad import FsmnVad

PACKET = SAMPLE_RATE // 10  # samples that a client sends at once
LOOK_AHEAD = 4  # probabilities that the network holds back: its window and its right context
WORD = 2 * SAMPLE_RATE // 5  # samples per word of the stand-in texts: 150 words a minute
WORDS = "we had everything before us we had nothing before us we were all going direct to heaven".split()
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

    async def warmup(self) -> None:
        """Do nothing."""

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Answer, after one turn of the loop as any real engine."""
        await asyncio.sleep(0)
        return say(job)

    async def aclose(self) -> None:
        """Do nothing."""


def score(model: FsmnVad, samples: Samples) -> Probabilities:
    """What the network says about samples that are repeated for ever: one probability per HOP."""
    stream = model.stream()
    whole = len(samples) // FRAME * FRAME
    return np.concatenate([stream.feed(samples[:whole]), stream.flush(samples[whole:])])


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
        self._scores = np.resize(probabilities[:hops], hops)
        self._packet = self._scored = self._heard = 0
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
                    self.protocol.receive_result(job, self._score(job) if isinstance(job, ScoreJob) else say(job))
        return turns

    def _score(self, job: ScoreJob) -> Probabilities:
        self._heard += len(job.samples)
        ready = max(self._scored, self._heard // HOP - LOOK_AHEAD)
        places = np.arange(self._scored, ready) % len(self._scores)
        self._scored = ready
        return self._scores[places]

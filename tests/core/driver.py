"""Runs a SessionProtocol by hand: scores by loudness, decodes by a function, in any order, without a clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from realtime_server.core import messages as m
from realtime_server.core.diarization import SpeakerJob
from realtime_server.core.jobs import (
    Capabilities,
    ClusterJob,
    Decoded,
    DecodeJob,
    Embeddings,
    EmbedJob,
    Job,
    Labels,
    Probabilities,
    Samples,
    ScoreJob,
    WaitJob,
)
from realtime_server.core.protocol import SessionProtocol
from realtime_server.core.segments import HOP, to_ms
from realtime_server.core.settings import SessionSettings
from realtime_server.core.wire_v2 import Wires

CAPABILITIES = Capabilities(
    languages=frozenset({"en", "zh"}), hotwords="full", words=True, logprobs=False, prefix=False,
    translate=False, longest_s=30.0, partial_window_s=8.0, concurrency=2,
)  # fmt: skip

Answer = Decoded | Exception | None  # None: not yet
Spoken = Embeddings | Labels | Exception | None  # None: not yet


def spans(job: DecodeJob) -> Decoded:
    """A text that says which audio was decoded, in ms."""
    return Decoded(f"<{to_ms(job.start)}-{to_ms(job.end)}>".replace("<", "from ").replace(">", ""))


def know_voices(job: EmbedJob | ClusterJob) -> Embeddings | Labels:
    """Tell voices apart by their loudness, in steps of 0.1."""
    if isinstance(job, EmbedJob):
        loud = [float(np.abs(audio).max()) for audio in job.audio]
        return np.eye(10, dtype=np.float32)[[int(10 * level) for level in loud]]
    numbers = np.argmax(job.embeddings, axis=1)
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


class Driver:
    """Feeds a session and answers its jobs; `messages` are those of protocol 1, `events` the typed ones.

    decode: the answer to a job; None keeps it pending in `pending` until `answer` is called for it.  speak: the same
    for jobs about speakers, which are kept in `waiting`; so are all WaitJobs.
    """

    def __init__(
        self,
        decode: Callable[[DecodeJob], Answer] = spans,
        settings: SessionSettings | None = None,
        capabilities: Capabilities = CAPABILITIES,
        speak: Callable[[EmbedJob | ClusterJob], Spoken] = know_voices,
    ) -> None:
        self.decode, self.speak = decode, speak
        self.waiting: list[SpeakerJob] = []
        self.wire = Wires("s")
        self.protocol = SessionProtocol("s", settings or SessionSettings(), capabilities)
        self.events: list[m.Event] = []
        self.messages: list[dict[str, Any]] = []
        self.jobs: list[DecodeJob] = []  # every decode job ever handed out
        self.pending: list[DecodeJob] = []
        self.hastened: list[int] = []
        self.cancelled: list[int] = []
        self.hold_scores = False
        self.held_scores: list[ScoreJob] = []
        self._rest: dict[tuple[int, int], Samples] = {}

    def say(self, *texts: str) -> None:
        """Send text frames."""
        for text in texts:
            for item in self.wire.decode(text):
                assert not isinstance(item, bytes)
                self.protocol.receive_command(self.protocol.prepare(item))
                self.turn()

    def hear(self, samples: Samples, packet: int = 1600) -> None:
        """Send audio in packets."""
        for start in range(0, len(samples), packet):
            self.protocol.receive_audio(samples[None, start : start + packet])
            self.turn()

    def answer(self, job: DecodeJob, answer: Decoded | Exception) -> None:
        """Answer a pending job."""
        if job in self.pending:
            self.pending.remove(job)
        self._tell(job, answer)
        self.turn()

    def begin(self, job: DecodeJob) -> DecodeJob:
        """A pending job's turn has come: return it as it is run."""
        begun = self.protocol.receive_turn(job)
        self.pending[self.pending.index(job)] = begun
        return begun

    def answer_speakers(self, job: SpeakerJob, answer: Embeddings | Labels | Exception | None = None) -> None:
        """Answer a job about speakers that waits, by `know_voices` unless an answer is given."""
        self.waiting.remove(job)
        if answer is None and not isinstance(job, WaitJob):
            answer = know_voices(job)
        self._tell_speakers(job, answer)
        self.turn()

    def release_scores(self) -> None:
        """Score what was held."""
        self.hold_scores = False
        while self.held_scores:
            job = self.held_scores.pop(0)
            self.protocol.receive_result(job, self._score(job))
        self.turn()

    def turn(self) -> None:
        """Do what the protocol wants until it wants nothing more."""
        while True:
            jobs: list[Job] = self.protocol.jobs_to_run()
            self.hastened += self.protocol.jobs_to_hasten()
            cancelled = self.protocol.jobs_to_cancel()
            self.cancelled += cancelled
            self.pending = [job for job in self.pending if job.id not in cancelled]
            events = self.protocol.events_to_send()
            self.events += events
            self.messages += [json.loads(message) for message in self.wire.encode(events)]
            if not jobs:
                return
            for job in jobs:
                self._run(job)

    def of(self, kind: type[m.Event]) -> list[Any]:
        """Events of one type so far."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def sentences(self) -> list[str]:
        """Texts locked so far in all sessions."""
        return [s.text for event in self.of(m.SegmentLocked) for s in event.sentences]

    def _run(self, job: Job) -> None:
        if isinstance(job, ScoreJob):
            if self.hold_scores:
                self.held_scores.append(job)
            else:
                self.protocol.receive_result(job, self._score(job))
            return
        if isinstance(job, DecodeJob):
            self._decode(job)
            return
        spoken = None if isinstance(job, WaitJob) else self.speak(job)
        if spoken is None:
            self.waiting.append(job)
        else:
            self._tell_speakers(job, spoken)

    def _decode(self, job: DecodeJob) -> None:
        self.jobs.append(job)
        answer = self.decode(job)
        if answer is None:
            self.pending.append(job)
        else:
            self._tell(job, answer)

    def _tell(self, job: DecodeJob, answer: Decoded | Exception) -> None:
        if isinstance(answer, Exception):
            self.protocol.receive_failure(job, answer)
        else:
            self.protocol.receive_result(job, replace(answer, took_ms=answer.took_ms or 1.0))

    def _tell_speakers(self, job: SpeakerJob, answer: Embeddings | Labels | Exception | None) -> None:
        if isinstance(answer, Exception):
            self.protocol.receive_failure(job, answer)
        else:
            self.protocol.receive_result(job, answer)

    def _score(self, job: ScoreJob) -> Probabilities:
        key = (job.epoch, job.channel)
        assert job.first == (key not in self._rest), "first goes with the first job of a stream, and no other"
        held = np.concatenate([self._rest.get(key, np.zeros(0, np.float32)), job.samples])
        hops = len(held) // HOP
        self._rest[key] = held[hops * HOP :]
        if job.last:
            self._rest[key] = None  # type: ignore[assignment] # whatever follows fails
        levels = np.abs(held[: hops * HOP]).reshape(hops, HOP).max(axis=1, initial=0.0)
        return (levels > 0.05).astype(np.float32)

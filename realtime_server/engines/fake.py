"""A recognizer, a scorer and an embedder that need no model: `--engine fake`, and the engine of most tests.

FakeEngine serves a fixed number of slots by priority, then by arrival. Without a script it "hears" one number
word per half second since START wherever the audio is loud: text grows with the audio, a segment's final
extends its partials, and adjacent windows neither repeat nor lose a word. Faults are injected at any time:

    engine.faults.inject(Fault(kind="final", nth=2))    the second final from now on raises EngineError
    engine.faults.inject(Fault(error=None))             no job that arrives from now on is answered
    engine.faults.clear()                               later jobs are fine again
    engine.die()                                        no job is answered any more, not the waiting ones either
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from realtime_server.core.jobs import (
    ClusterJob,
    Decoded,
    DecodeJob,
    DecodeKind,
    Embeddings,
    EmbedJob,
    Labels,
    Probabilities,
    Samples,
    ScoreJob,
)
from realtime_server.core.languages import CODES
from realtime_server.core.segments import HOP, SAMPLE_RATE
from realtime_server.engines.base import Capabilities, refuse_unsupported
from realtime_server.engines.fake_hearing import LOUD, hear, levels
from realtime_server.engines.fake_voices import BANDS, sort_voices, voiceprint
from realtime_server.errors import EngineError

CAPABILITIES = Capabilities(
    languages=CODES,
    hotwords="full",
    words=True,
    logprobs=True,
    prefix=True,
    translate=True,
    longest_s=60.0,
    partial_window_s=8.0,
    concurrency=2,
)

Answer = Decoded | str | Exception
Script = Sequence[Answer] | Callable[[DecodeJob], Answer]


def _told_to_fail() -> EngineError:
    return EngineError("the fake engine was told to fail")


@dataclass(frozen=True, slots=True)
class Fault:
    """Which jobs go wrong, and how. It strikes at the end of the decode time, as in a real engine."""

    error: Exception | None = field(default_factory=_told_to_fail)  # None: never answers
    kind: DecodeKind | None = None  # only jobs of this kind; None: every job, and every ScoreJob
    nth: int | None = None  # only the nth matching job after the injection, from 1; None: every one


class Faults:
    """The faults in force; the first that matches a job strikes it."""

    def __init__(self) -> None:
        self._counted: list[tuple[Fault, Iterator[int]]] = []

    def inject(self, fault: Fault) -> None:
        """Let jobs that arrive from now on meet this fault."""
        self._counted.append((fault, itertools.count(1)))

    def clear(self) -> None:
        """Forget all faults; jobs already struck stay struck."""
        self._counted.clear()

    def strike(self, kind: DecodeKind | None) -> Fault | None:
        """Count an arriving job and return what it meets."""
        matching = [(fault, next(seen)) for fault, seen in self._counted if fault.kind in (None, kind)]
        return next((fault for fault, n in matching if fault.nth in (None, n)), None)


class FakeEngine:
    """An `Engine` whose text, pace and faults are chosen.

    slots: jobs worked on at the same time.  decode_s, decode_s_per_s: time per job and per second of audio.
    script: a function of the job, or answers by order of arrival with the default text after the last; an
    exception is raised.  capabilities: `concurrency` becomes `slots`; jobs that ask for more are refused.
    keep_jobs: how many of the latest jobs, audio included, `jobs` holds.
    """

    def __init__(
        self,
        *,
        slots: int = 2,
        decode_s: float = 0.0,
        decode_s_per_s: float = 0.0,
        script: Script = (),
        capabilities: Capabilities = CAPABILITIES,
        keep_jobs: int = 256,
    ) -> None:
        self.capabilities = replace(capabilities, concurrency=slots)
        self.faults = Faults()
        self.jobs: deque[DecodeJob] = deque(maxlen=keep_jobs)
        self.cancelled = 0  # jobs cancelled so far, waiting or running
        self._decode_s, self._decode_s_per_s = decode_s, decode_s_per_s
        self._script = script if callable(script) else _in_turn(script)
        self._slots = _Slots(slots)
        self._closed = asyncio.Event()

    @property
    def running(self) -> int:
        """Jobs that hold a slot."""
        return self.capabilities.concurrency - self._slots.free

    @property
    def waiting(self) -> int:
        """Jobs that wait for a slot."""
        return len(self._slots.waiting)

    @property
    def healthy(self) -> bool:
        """Whether it has neither died nor been closed."""
        return not self._closed.is_set()

    async def warmup(self) -> None:
        """Do nothing; raise EngineError after `aclose`."""
        _refuse_if(self._closed)

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Answer from the script, or `hear`; `on_text` gets the text word by word at the end."""
        _refuse_if(self._closed)
        refuse_unsupported(job, self.capabilities)
        self.jobs.append(job)
        fault, answer = self.faults.strike(job.kind), self._script(job)
        seconds = self._decode_s + self._decode_s_per_s * job.audio.size / SAMPLE_RATE
        try:
            await self._slots.acquire(job.priority)
            try:
                await _work(self._closed, fault, seconds)
            finally:
                self._slots.release()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        decoded = Decoded(answer) if isinstance(answer, str) else answer
        for text in itertools.accumulate(decoded.text.split(), "{} {}".format):
            if on_text is not None:
                on_text(text)
        return decoded

    def die(self) -> None:
        """End all jobs, waiting or running, with EngineError; later ones are refused."""
        self._closed.set()
        self._slots.admit_all()

    async def aclose(self) -> None:
        """The same, on purpose."""
        self.die()


class FakeScorer:
    """A `Scorer` by loudness: 1.0 for each 10 ms whose RMS exceeds `threshold`, else 0.0.

    look_ahead: probabilities held back until a stream's `last` job, as a network with right context does.
    """

    def __init__(self, threshold: float = LOUD, *, look_ahead: int = 0) -> None:
        self.faults = Faults()
        self._threshold, self._look_ahead = threshold, look_ahead
        self._rest: dict[tuple[str, int], Samples] = {}
        self._closed = asyncio.Event()

    async def score(self, job: ScoreJob) -> Probabilities:
        """One probability per whole 10 ms not yet answered; the rest of a stream has none."""
        _refuse_if(self._closed)
        stream = (job.session, job.channel)
        rest = self._rest.pop(stream, job.samples[:0])
        samples = job.samples if job.first else np.concatenate([rest, job.samples])
        hops = max(0, samples.size // HOP - (0 if job.last else self._look_ahead))
        if not job.last:
            self._rest[stream] = samples[hops * HOP :].copy()
        await _work(self._closed, self.faults.strike(None), 0.0)
        return (levels(samples[: hops * HOP]) > self._threshold).astype(np.float32)

    def forget(self, session: str) -> None:
        """Drop every state of `session`."""
        self._rest = {stream: rest for stream, rest in self._rest.items() if stream[0] != session}

    async def aclose(self) -> None:
        """End pending calls with EngineError; later ones are refused."""
        self._closed.set()
        self._rest.clear()


class FakeEmbedder:
    """An `Embedder` for which a voice is the octaves in which it is loud; see fake_voices.py.

    embed_s, cluster_s: time per job.  keep_jobs: how many of the latest jobs `jobs` holds.  The faults of `embed` and
    of `cluster` are injected apart.
    """

    def __init__(self, *, embed_s: float = 0.0, cluster_s: float = 0.0, keep_jobs: int = 256) -> None:
        self.embed_faults, self.cluster_faults = Faults(), Faults()
        self.jobs: deque[EmbedJob | ClusterJob] = deque(maxlen=keep_jobs)
        self._embed_s, self._cluster_s = embed_s, cluster_s
        self._closed = asyncio.Event()

    async def warmup(self) -> None:
        """Do nothing; raise EngineError after `aclose`."""
        _refuse_if(self._closed)

    async def embed(self, job: EmbedJob) -> Embeddings:
        """One vector per window, (windows, 30)."""
        _refuse_if(self._closed)
        self.jobs.append(job)
        voices = [voiceprint(samples) for samples in job.audio]
        await _work(self._closed, self.embed_faults.strike(None), self._embed_s)
        return np.stack(voices) if voices else np.empty((0, BANDS), np.float32)

    async def cluster(self, job: ClusterJob) -> Labels:
        """Label voices in the order in which they are first heard."""
        _refuse_if(self._closed)
        self.jobs.append(job)
        labels = sort_voices(job.embeddings)
        await _work(self._closed, self.cluster_faults.strike(None), self._cluster_s)
        return labels

    async def aclose(self) -> None:
        """End pending calls with EngineError; later ones are refused."""
        self._closed.set()


class _Slots:
    """A semaphore served by priority, then arrival; a cancelled waiter leaves at once."""

    def __init__(self, count: int) -> None:
        self.free = count
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def acquire(self, priority: int) -> None:
        if self.free > 0:
            self.free -= 1
            return
        entry = (priority, asyncio.get_running_loop().create_future())
        self.waiting.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if entry in self.waiting:
                self.waiting.remove(entry)
            else:
                self.release()  # it had been admitted in the same turn of the loop
            raise

    def release(self) -> None:
        self.free += 1
        patient = [entry for entry in self.waiting if not entry[1].done()]
        if patient:
            self._admit(min(patient, key=lambda entry: entry[0]))

    def admit_all(self) -> None:
        for entry in [entry for entry in self.waiting if not entry[1].done()]:
            self._admit(entry)

    def _admit(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        self.free -= 1
        self.waiting.remove(entry)
        entry[1].set_result(None)


async def _work(closed: asyncio.Event, fault: Fault | None, seconds: float) -> None:
    """Take `seconds`, or for ever; raise what the fault says, or EngineError as soon as the engine closes."""
    never = fault is not None and fault.error is None
    with suppress(TimeoutError):
        async with asyncio.timeout(None if never else seconds):
            await closed.wait()
    _refuse_if(closed)
    if fault is not None and fault.error is not None:
        raise fault.error


def _refuse_if(closed: asyncio.Event) -> None:
    if closed.is_set():
        raise EngineError("the fake engine has died or is closed")


def _in_turn(answers: Sequence[Answer]) -> Callable[[DecodeJob], Answer]:
    remaining = iter(answers)

    def script(job: DecodeJob) -> Answer:
        answer = next(remaining, None)
        return hear(job) if answer is None else answer

    return script

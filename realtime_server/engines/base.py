"""The interfaces behind which all computing happens.

Recognizers are `Engine`s, voice activity networks `Scorer`s, speaker networks `Embedder`s. The live server, the
file services and the benchmarks know only these. A fake of each ships in fake.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from realtime_server.core.jobs import (
    Capabilities,
    ClusterJob,
    Decoded,
    DecodeJob,
    Embeddings,
    EmbedJob,
    Labels,
    Probabilities,
    ScoreJob,
)
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import UnsupportedError

__all__ = ["Capabilities", "Embedder", "Engine", "Scorer", "Staffed", "refuse_unsupported"]


def refuse_unsupported(job: DecodeJob, can: Capabilities) -> None:
    """Raise UnsupportedError naming what a job asks for that an engine does not declare."""
    wants = job.options
    lacks = {
        f"more than {can.longest_s:g} s of audio": job.audio.size > can.longest_s * SAMPLE_RATE,
        "a prefix": bool(job.prefix_text) and not can.prefix,
        "hotwords": bool(wants.hotwords) and can.hotwords == "none",
        "word times": wants.words and not can.words,
        "log-probabilities": wants.logprobs and not can.logprobs,
        "translation": wants.task == "translate" and not can.translate,
        f"the language '{wants.language}'": wants.language not in {None, *(can.languages or ())},
    }
    refused = [what for what, missing in lacks.items() if missing]
    if refused:
        raise UnsupportedError(f"this recognizer does not take {', '.join(refused)}")
    if job.audio.size != job.end - job.start:
        raise ValueError(f"job {job.id} holds {job.audio.size} samples for [{job.start}, {job.end})")


class Engine(Protocol):
    """A recognizer shared by all sessions."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; constant over its life."""

    @property
    def healthy(self) -> bool:
        """Whether it works. What has turned false after `warmup` stays so: it has died, only a new process helps."""

    async def warmup(self) -> None:
        """Make the first real job as fast as later ones; raise EngineError if the engine cannot work."""

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Recognise one job; `on_text` may be called with growing text meanwhile.

        Cancelling the call aborts the work. Raises EngineError when the job cannot be done.
        """

    async def aclose(self) -> None:
        """Free everything; jobs still running end with EngineError."""


class Scorer(Protocol):
    """A voice activity network; keeps one streaming state per (session, channel).

    A job with `first` begins anew, whatever became of the stream before: epochs follow each other, so a session
    that is started again and again holds no more than one that is started once.
    """

    async def score(self, job: ScoreJob) -> Probabilities:
        """Probabilities of speech, float32 (n,), one per 10 ms, continuing this stream's earlier answers.

        Over a whole stream of N samples, flush included, at most N / 160 probabilities come back, in order.
        """

    def forget(self, session: str) -> None:
        """Drop every state of a session that ended without a `last` job. Unknown sessions are fine."""

    async def aclose(self) -> None:
        """Free everything."""


@runtime_checkable
class Staffed(Protocol):
    """What a Scorer has besides, if it works in processes of its own."""

    restarts: int  # of them that died or hung and were replaced

    @property
    def up(self) -> int:
        """How many take jobs now."""

    def attach(self) -> None:
        """Listen to them from now on, in the running event loop."""


class Embedder(Protocol):
    """Tells voices apart: a speaker network and the clustering of what it says; shared by all sessions, stateless."""

    async def warmup(self) -> None:
        """Make the first real job as fast as later ones; raise EngineError if it cannot work."""

    async def embed(self, job: EmbedJob) -> Embeddings:
        """One vector for each window, float32 (windows, width), of length 1. Raises EngineError."""

    async def cluster(self, job: ClusterJob) -> Labels:
        """One label for each window, from 0. Off the event loop. Raises EngineError."""

    async def aclose(self) -> None:
        """Free everything; jobs still running end with EngineError."""

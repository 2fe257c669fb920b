"""What the core asks the shell to compute, and what comes back.

The core never computes: it hands out jobs (`SessionProtocol.jobs_to_run`) and is told their results. Every
job carries the session, the epoch (how many STARTs the session has seen) and the channel, so that a result
that comes back late can be recognised and dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.segments import Word

Samples = NDArray[np.float32]  # mono, 16 kHz, in -1..1
Probabilities = NDArray[np.float32]  # probability of speech per 10 ms
Embeddings = NDArray[np.float32]  # speaker embeddings, (windows, width), each of length 1
Labels = NDArray[np.int64]  # a cluster for each window, numbered from 0 in no particular order

DecodeKind = Literal["final", "eager", "partial"]
Finish = Literal["stop", "length", "gated"]
Task = Literal["transcribe", "translate"]
HotwordSupport = Literal["none", "soft", "full"]


class Priority(IntEnum):
    """Order in which a busy engine serves jobs: lower first."""

    FINAL = 0
    EAGER = 1
    FIRST_PARTIAL = 2
    REFRESH = 3
    FILE = 4


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a recognizer can do. A request for anything else is answered, never ignored."""

    languages: frozenset[str] | None  # ISO 639-1 codes it can be told; None: it takes no language
    hotwords: HotwordSupport  # soft: a hint the model may ignore
    words: bool  # word times
    logprobs: bool  # per-token log-probabilities
    prefix: bool  # can continue a given text
    translate: bool  # can translate to English
    longest_s: float  # longest audio of one job, seconds
    partial_window_s: float  # longest audio for which frequent partials are affordable, seconds
    concurrency: int  # jobs it works on at the same time
    batch: int = 1  # partials that it decodes together, when so many wait
    schedule: bool = True  # its segments may grow by a silence schedule; False: a fixed silence ends them


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How a recognizer should decode. What it lacks is in its Capabilities, checked before a job is made."""

    language: str | None = None  # ISO 639-1 code; None: the engine detects it
    expected: str | None = None  # where it detects: the likely language, a hint that it may ignore
    hotwords: tuple[str, ...] = ()  # words that are likely in the audio
    itn: bool = True  # inverse text normalisation: numerals and punctuation as written
    task: Task = "transcribe"
    words: bool = False  # word times
    logprobs: bool = False  # per-token log-probabilities
    max_new_tokens: int | None = None  # None: the engine's own cap for the audio's length


@dataclass(frozen=True, slots=True, eq=False)
class ScoreJob:
    """Score the next samples of a channel: probabilities of speech, one per 10 ms.

    samples: any number of whole 60 ms frames, float32, 16 kHz; with `last` the rest, which may be short or empty.
    first: forget earlier state of this (session, channel).  last: flush the look-ahead, then forget.
    """

    id: int
    session: str
    epoch: int
    channel: int
    samples: Samples
    first: bool
    last: bool


@dataclass(frozen=True, slots=True, eq=False)
class DecodeJob:
    """Recognise samples [start, end) of a channel.

    audio: float32, 16 kHz, exactly end - start samples.  prefix_text: text known to be right for the beginning,
    "" unless the engine's Capabilities declare `prefix`.
    """

    id: int
    session: str
    epoch: int
    channel: int
    kind: DecodeKind
    priority: Priority
    segment: int
    start: int
    end: int
    audio: Samples
    prefix_text: str
    options: DecodingOptions


@dataclass(frozen=True, slots=True)
class Decoded:
    """A recognizer's answer.

    text: the whole text, prefix included.  words: times relative to the job's audio, None if not asked for or
    not to be had.  finish: "stop" normally, "length" if the token cap was hit or the engine knows that speech is
    missing, "gated" if it judged the audio to hold no speech, or, for a partial, too little to tell its language
    (text is then empty).  took_ms: from submission to answer, stamped by the shell.
    """

    text: str
    words: tuple[Word, ...] | None = None
    token_logprobs: tuple[float, ...] | None = None
    language: str | None = None
    finish: Finish = "stop"
    took_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """Samples [start, end) of a channel that are embedded as one voice."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class EmbedJob:
    """Embed windows of one segment; the answer is one vector for each, Embeddings.

    audio: each window's samples, float32, 16 kHz, exactly end - start of them.
    """

    id: int
    session: str
    epoch: int
    channel: int
    segment: int
    windows: tuple[Window, ...]
    audio: tuple[Samples, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterJob:
    """Sort embeddings by speaker; the answer is one label for each, Labels.

    windows: what each was computed from, in order of time.  final: everything that was heard, at STOP; otherwise
    the latest, while the session goes on.
    """

    id: int
    session: str
    epoch: int
    channel: int
    windows: tuple[Window, ...]
    embeddings: Embeddings
    final: bool


@dataclass(frozen=True, slots=True, eq=False)
class WaitJob:
    """Wait, then answer None: the only way in which the core learns that time has passed."""

    id: int
    session: str
    epoch: int
    channel: int
    wait_ms: int


Job = ScoreJob | DecodeJob | EmbedJob | ClusterJob | WaitJob
Result = Decoded | Probabilities | Embeddings | Labels | None

"""In which language the first words of a sentence are shown, and how late, where the recognizer detects languages.

Recordings of one sentence each are joined to sessions: English, Mandarin, and both in turn, where the sentence before
is never a help. They are heard as if all were computed in no time, so the outcome does not depend on the machine.
Only beginnings and finals are decoded: what comes between has enough audio to tell its language.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.hearing import Models, Told, hear
from benchmarks.recordings import RECORDINGS, fetched, shared
from realtime_server.bench import speech
from realtime_server.bench.figures import Report, percentile
from realtime_server.core import messages as m
from realtime_server.core.jobs import Decoded, DecodeJob, Samples
from realtime_server.core.segments import SAMPLE_RATE, SAMPLES_PER_MS, to_ms, to_samples
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.base import Engine
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer

LONGEST_S = 9  # of a recording: longer ones have several sentences
BEGINNING = 2 * SAMPLE_RATE  # samples of the longest partial that is decoded
PAUSE_MS = 2400  # behind a recording: a sentence ends with it
IN_TURN = "in turn"
WRONG = 0.1  # of the sentences of one language, at most, begin in another


@dataclass(frozen=True, slots=True)
class Said:
    """A recording and the code of its language."""

    path: Path
    language: str


class Noting:
    """An Engine that notes in which language it first heard words in each segment of one session."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.capabilities = engine, engine.capabilities
        self.first: dict[int, str | None] = {}

    @property
    def healthy(self) -> bool:
        """Whether the engine works."""
        return self._engine.healthy

    async def warmup(self) -> None:
        """Do nothing."""

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """The engine's answer, but for partials that are no beginning."""
        if job.kind == "partial" and job.end - job.start > BEGINNING:
            return Decoded("")
        decoded = await self._engine.transcribe(job)
        if decoded.text:
            self.first.setdefault(job.segment, decoded.language)
        return decoded

    async def aclose(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Beginnings(Told):
    """One session: when each segment was first shown, ms after it began, and the language of its sentence."""

    shown_ms: dict[int, int] = field(default_factory=dict)
    languages: dict[int, str | None] = field(default_factory=dict)
    ends_ms: dict[int, int] = field(default_factory=dict)

    def take(self, events: Iterable[m.Event]) -> None:
        """Note what the client is told."""
        for event in events:
            if isinstance(event, m.PartialChanged) and event.text:
                self.shown_ms.setdefault(event.segment, to_ms(self.now - event.start))
            elif isinstance(event, m.SegmentLocked) and event.sentences:
                sentence = event.sentences[0]
                self.languages[event.segment] = sentence.language
                self.ends_ms[event.segment] = sentence.end_ms
                # What is first shown as a sentence.
                self.shown_ms.setdefault(event.segment, to_ms(self.now) - sentence.start_ms)


@dataclass(frozen=True, slots=True)
class Found:
    """How a session's sentences began. late_ms: when each was first shown, after its segment began.

    elsewhere: sentences whose first words were in another language than they are.  mistaken: sentences that are
    themselves in another language than what was said.
    """

    sentences: int
    elsewhere: int
    mistaken: int
    late_ms: tuple[int, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recordings."""
    parser.add_argument(
        "--recordings", type=Path, default=RECORDINGS, metavar="FOLDER",
        help="a folder with a MANIFEST.tsv, whose English and Mandarin recordings are heard beside the fetched ones",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Report:
    """Measure."""
    english, mandarin = (_short(arguments.recordings, language) for language in ("en", "zh"))
    in_turn = list(chain.from_iterable(zip(english, mandarin, strict=False)))
    sessions = {"English": english, "Mandarin": mandarin, IN_TURN: in_turn}
    return report_of(asyncio.run(_hear_all(sessions)))


def report_of(found: dict[str, Found]) -> Report:
    """A column for each session; the bound is on those in one language, together."""
    report = Report("languages", "the CPU recognizer, detecting languages, as if it took no time")
    elsewhere = "begin in another language than their own"
    for case, one in found.items():
        count = max(1, one.sentences)
        mean = sum(one.late_ms) / max(1, len(one.late_ms))
        report.add("sentences", one.sentences, case=case)
        report.add(elsewhere, one.elsewhere / count, case=case)
        report.add("are in another language than was spoken", one.mistaken / count, case=case)
        report.add("first shown after the segment's beginning, mean", mean, "ms", case=case)
        report.add("the same, p50", percentile(one.late_ms, 50), "ms", case=case)
        report.add("the same, p95", percentile(one.late_ms, 95), "ms", case=case)
    alone = [one for case, one in found.items() if case != IN_TURN]
    share = sum(one.elsewhere for one in alone) / max(1, sum(one.sentences for one in alone))
    report.add(elsewhere, share, at_most=WRONG, case="one language")
    return report


def find(told: Beginnings, first: dict[int, str | None], spoken: Sequence[tuple[int, str]]) -> Found:
    """What became of a session.

    first: the language of each segment's first words.  spoken: until when (ms), and in which language.
    """
    segments = [segment for segment in told.languages if segment in first]
    truth = {
        segment: next(language for until_ms, language in spoken if told.ends_ms[segment] <= until_ms)
        for segment in segments
    }
    return Found(
        sentences=len(segments),
        elsewhere=sum(first[segment] != told.languages[segment] for segment in segments),
        mistaken=sum(truth[segment] != told.languages[segment] for segment in segments),
        late_ms=tuple(told.shown_ms[segment] for segment in segments),
    )


def joined(recordings: Sequence[tuple[Samples, str]]) -> tuple[Samples, list[tuple[int, str]]]:
    """Recordings with pauses behind each: the samples, and until which ms each language is spoken."""
    pause = np.random.default_rng(0).normal(0.0, 2e-4, to_samples(PAUSE_MS)).astype(np.float32)
    samples = np.concatenate([part for recording, _ in recordings for part in (recording, pause)])
    ends = np.cumsum([len(recording) + len(pause) for recording, _ in recordings]) // SAMPLES_PER_MS
    return samples, [(int(end), language) for end, (_, language) in zip(ends, recordings, strict=True)]


async def _hear_all(sessions: dict[str, list[Said]]) -> dict[str, Found]:
    options = EngineOptions("embedded")
    engine, scorer = load_engine(options), load_scorer(options, "fsmn")
    try:
        return {
            name: await _hear(name, said, Models(Noting(engine), scorer, partials=True))
            for name, said in sessions.items()
        }
    finally:
        await engine.aclose()
        await scorer.aclose()


async def _hear(name: str, said: Sequence[Said], models: Models) -> Found:
    samples, spoken = joined([(speech.load(each.path).samples, each.language) for each in said])
    told = Beginnings()
    await hear(samples, models, name, SessionSettings(), told)
    assert isinstance(models.engine, Noting)
    return find(told, models.engine.first, spoken)


def _short(folder: Path, language: str) -> list[Said]:
    """The fetched recordings in a language, and those of the folder if it exists, that hold one sentence."""
    more = shared(folder, f"{language}/") if (folder / "MANIFEST.tsv").exists() else []
    paths = [recording.path for recording in [*fetched(language), *more]]
    return [
        Said(path, language) for path in paths if len(speech.load(path).samples) <= LONGEST_S * SAMPLE_RATE
    ]

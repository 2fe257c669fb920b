"""Whole recordings: how fast, how right, and beside CTranslate2 alone.

- Every recording of a list at once, for each way of cutting it, with and without speakers: audio seconds per second
  (RTFx), character and word errors.
- One recording with pauses of 0.9 to 1.9 s, in which the offline and the live schedule cut differently: word errors.
- The CPU recognizer through the transcriber, and the same segments through CTranslate2 alone.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from benchmarks import corpus
from benchmarks.corpus import Spoken
from realtime_server import config, flags, memory, weights
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Watch, cores
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import DecodingOptions
from realtime_server.engines.base import Engine
from realtime_server.engines.loading import SpeakerOptions, load_embedder, load_engine, load_scorer
from realtime_server.offline.audio_reader import AudioReader
from realtime_server.offline.options import OFFLINE_ENDPOINTING, FileOptions
from realtime_server.offline.recording import Recording
from realtime_server.offline.transcriber import Transcriber

PAUSES_S = (0.9, 1.9)  # between utterances, where the schedules differ
BUILT_S = 300.0  # the recording with such pauses
NORMALISER = (
    "texts are compared after Whisper's normaliser (English; numbers as digits) or its basic one without spaces\n"
    "(others; digits as Chinese numerals); RTFx is audio seconds per second, all recordings at once, files read before"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    flags.add_engine(parser)
    add = parser.add_argument_group("recordings and measurements").add_argument
    flags.add_decoding(add)
    flags.add_longest_segment(add)
    # fmt: off
    add("--files", type=Path, metavar="TSV", help="list of recordings and texts (default: the fetched ones)")
    add("--only", nargs="+", default=[], metavar="PREFIX", help="of the list, the files whose names begin so")
    add("--vad-modes", nargs="+", default=["dynamic", "energy"], metavar="MODE",
        help="dynamic, fixed:MS, or energy for no VAD (default: dynamic energy)")
    add("--speakers", choices=("off", "on", "both"), default="both", help="but for energy (default: %(default)s)")
    add("--minutes", type=float, default=10.0, help="beside CTranslate2 alone; 0: not (default: %(default)g)")
    # fmt: on


def run(arguments: argparse.Namespace) -> Report:
    """Measure everything."""
    memory.share_heaps()  # as the command does
    watch = Watch()
    spoken = corpus.read_list(arguments.files, arguments.only) if arguments.files else corpus.fetched()
    what = arguments.files.name if arguments.files else "the fetched recordings"
    report = Report("offline", f"{arguments.engine}, {len(spoken)} files of {what}")
    uvloop.run(_Measurement(arguments, spoken, report).run())
    report.notes.append(NORMALISER)
    report.conditions = watch.conditions()
    return report


@dataclass(frozen=True, slots=True)
class Case:
    """A column of the table."""

    name: str
    options: FileOptions


def read_cases(
    modes: Sequence[str], speakers: str, decoding: DecodingOptions, longest_s: float
) -> list[Case]:
    """A case for each VAD mode, without and with speakers. Raises ConfigurationError."""
    cases = []
    for mode in modes:
        if mode == "energy":
            options = FileOptions(decoding, segmentation="energy")
        elif mode == "dynamic":
            options = FileOptions(decoding, endpointing=OFFLINE_ENDPOINTING)
        else:
            options = FileOptions(decoding, endpointing=EndpointingOptions.parse(mode))
        endpointing = replace(
            options.endpointing or OFFLINE_ENDPOINTING, max_segment_ms=round(1000 * longest_s)
        )
        options = replace(options, endpointing=endpointing)
        if speakers != "on" or mode == "energy":
            cases.append(Case(mode, options))
        if speakers != "off" and mode != "energy":
            cases.append(Case(f"{mode}, speakers", replace(options, speakers=True)))
    return cases


class _Measurement:
    """One run of the benchmark."""

    def __init__(self, arguments: argparse.Namespace, spoken: Sequence[Spoken], report: Report) -> None:
        self._arguments, self._spoken, self._report = arguments, spoken, report
        self._options = config.read_engine(arguments)
        self._decoding = config.read_options(arguments)
        self._cases = read_cases(
            arguments.vad_modes, arguments.speakers, self._decoding, arguments.max_segment_seconds
        )
        self._scorer = load_scorer(self._options, arguments.vad)
        self._recordings: list[Recording] = []

    async def run(self) -> None:
        """Measure."""
        reader = AudioReader()
        try:
            self._recordings = [await reader.read(each.path) for each in self._spoken]
        finally:
            await reader.aclose()
        engine = load_engine(self._options)
        wanted = any(case.options.speakers for case in self._cases)
        embedder = load_embedder(SpeakerOptions(), "network") if wanted else None
        try:
            await engine.warmup()
            if embedder:
                await embedder.warmup()
            for case in self._cases:
                await self._add_case(case, Transcriber(engine, self._scorer, embedder))
            await self._add_schedules(Transcriber(engine, self._scorer))
            if self._arguments.minutes and self._arguments.engine == "embedded":
                await self._compare(engine)
        finally:
            await engine.aclose()
            await self._scorer.aclose()
            if embedder:
                await embedder.aclose()

    async def _add_case(self, case: Case, work: Transcriber) -> None:
        """Every recording at once."""
        began_s = time.monotonic()
        made = await asyncio.gather(*(work.transcribe(each, case.options) for each in self._recordings))
        took_s = time.monotonic() - began_s
        audio_s = sum(recording.seconds for recording in self._recordings)
        rates = corpus.judge(self._spoken, [each.text for each in made])
        failed = sum("failed" in sentence.flags for each in made for sentence in each.sentences)
        add = self._report.add
        add("RTFx", audio_s / took_s, case=case.name)
        add("CER", rates.cer, "%", case=case.name)
        add("WER, texts in words", rates.wer, "%", case=case.name)
        add("failed segments", failed, case=case.name)
        self._report.notes += sorted({note for each in made for note in each.notes})

    async def _add_schedules(self, work: Transcriber) -> None:
        """One recording under both schedules."""
        pairs = zip(self._spoken, self._recordings, strict=True)
        known = [(spoken, recording) for spoken, recording in pairs if spoken.in_words]
        if not known:
            return
        text, audio = corpus.with_pauses(known, PAUSES_S, BUILT_S)
        for name, endpointing in (("offline", None), ("live", EndpointingOptions())):
            options = FileOptions(self._decoding, endpointing=endpointing)
            made = await work.transcribe(audio, options)
            self._report.add(f"{name} schedule, WER", corpus.judge([text], [made.text]).wer, "%")
            self._report.add(f"{name} schedule, sentences", len(made.sentences))
        self._report.notes.append(
            f"schedules: {audio.seconds / 60:.0f} minutes of the recordings with words, "
            f"pauses of {PAUSES_S[0]:g} to {PAUSES_S[1]:g} s between and within them"
        )

    async def _compare(self, engine: Engine) -> None:
        from benchmarks.alone import Alone, compare

        model = Path(self._arguments.model) if self._arguments.model else None
        alone = Alone(weights.find("whisper-base", model), self._arguments.workers or cores())
        audio = corpus.repeated(self._recordings, 60 * self._arguments.minutes)
        await compare(self._report, engine, self._scorer, alone, audio)

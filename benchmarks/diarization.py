"""Speakers told apart by the whole live service: whose words are told as another's, live and after STOP.

Conversations are built from recordings of single speakers and heard clean and by telephone; a few are heard with the
CPU recognizer, the rest with words that are known beforehand, because speakers depend on the words only where a
sentence is split. Then two real recordings, single speakers alone for five minutes, at changing levels, in noise and
by telephone, and single speakers for five minutes in which somebody else speaks once, for 3 to 6 s.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks import conversations, monologues, telephone
from benchmarks.conversations import Conversation
from benchmarks.hearing import KnownWords, Models, Told, hear
from benchmarks.recordings import RECORDINGS
from benchmarks.wrong_speakers import Rates, Scores, right_turns, score
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Watch
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.loading import (
    EngineOptions,
    SpeakerOptions,
    load_embedder,
    load_engine,
    load_scorer,
)

SETTINGS = SessionSettings(speakers=True)
LIVE_CONFUSION, FINAL_CONFUSION, CHANGED = 8.0, 6.0, 10.0  # percent, at most
CALL, CALL_TURNS, MEETING = "real call", 6, "real meeting"


@dataclass(frozen=True, slots=True)
class Heard:
    """A conversation, what was told of it, and how wrong that is."""

    conversation: Conversation
    told: Told
    scores: Scores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add(
        "--recordings",
        type=Path,
        default=RECORDINGS,
        metavar="FOLDER",
        help="of single speakers (MANIFEST.tsv)",
    )
    add("--conversations", type=int, default=6, help="of each set of speakers (default: %(default)s)")
    add("--with-words", type=int, default=2, help="of them with the CPU recognizer (default: %(default)s)")
    add(
        "--alone",
        type=float,
        default=300.0,
        metavar="S",
        help="of one speaker alone, and with a guest (default: %(default)g s)",
    )
    add("--times", type=int, default=2, help="that everybody is alone (default: %(default)s)")
    add("--guests", type=int, default=6, help="of each set of speakers, and line (default: %(default)s)")
    add("--seed", type=int, default=1, help="of the first conversation (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure on what recordings there are."""
    watch = Watch()
    report = Report("diarization", f"conversations of two to four speakers, seeds from {arguments.seed}")
    uvloop.run(_measure(report, arguments))
    report.conditions = watch.conditions()
    return report


async def _measure(report: Report, arguments: argparse.Namespace) -> None:
    scorer, embedder = load_scorer(EngineOptions(), "fsmn"), load_embedder(SpeakerOptions(), "network")
    whisper = Models(load_engine(EngineOptions()), scorer, embedder)

    def known(conversation: Conversation) -> Models:
        return Models(KnownWords(conversation.spells), scorer, embedder)

    held_out = conversations.voices(arguments.recordings, conversations.HELD_OUT)
    tuned = conversations.voices(arguments.recordings, conversations.TUNED)
    held_out[conversations.CITIES] = conversations.cities()
    seeds = range(arguments.seed, arguments.seed + arguments.conversations)
    for case, speakers in (("held out", held_out), ("tuned with", tuned)):
        if len(speakers) < 2:
            report.notes.append(f"{case}: the recordings are not in {arguments.recordings}")
            continue
        talks = [conversations.talk(speakers, seed) for seed in seeds]
        _add(report, case, [await _hear(each, known(each)) for each in talks])
        by_telephone = [each.through(telephone.g711) for each in talks]
        _add(report, f"{case}, telephone", [await _hear(each, known(each)) for each in by_telephone])
    if len(held_out) > 1:
        english = {name: parts for name, parts in held_out.items() if name in conversations.ENGLISH}
        talks = [conversations.talk(english, seed) for seed in seeds[: arguments.with_words]]
        _add(report, "held out, CPU recognizer", [await _hear(each, whisper) for each in talks])
    await _add_real(report, arguments.recordings / "multi", whisper)
    for case, speakers in (("held out", held_out), ("tuned with", tuned)):
        await monologues.add(report, case, speakers, arguments, known)
    await whisper.engine.aclose()
    await embedder.aclose()
    report.notes.append(
        "held out, tuned with: see conversations.py; telephone: 8 kHz, mu-law; percent of speech\n"
        "live: the first speaker that a sentence was told with; words: a sentence's, each by its middle\n"
        "words: known, one per 0.3 s of speech, but the CPU recognizer's where it says so and in the real recordings"
    )


async def _hear(conversation: Conversation, models: Models) -> Heard:
    told = await hear(conversation.samples, models, conversation.name, SETTINGS)
    by_words = not isinstance(models.engine, KnownWords)
    return Heard(conversation, told, score(conversation, told, by_words=by_words))


def _add(report: Report, case: str, heard: Sequence[Heard]) -> None:
    """Add the figures of a set of conversations: means, and the worst."""
    for when, limit in (("live", LIVE_CONFUSION), ("after STOP", FINAL_CONFUSION)):
        rates: list[Rates] = [each.scores.live if when == "live" else each.scores.final for each in heard]
        confusion = [each.confusion for each in rates]
        report.add(f"confusion {when}", _mean(confusion), "%", at_most=limit, case=case)
        report.add(f"confusion {when}, worst", max(confusion, default=math.nan), "%", case=case)
        report.add(f"error {when}", _mean([each.error for each in rates]), "%", case=case)
        name = f"error {when}, collar 0.25 s, no overlap"
        report.add(name, _mean([each.collar_error for each in rates]), "%", case=case)
        report.add(
            f"words of the wrong speaker {when}", _mean([each.words for each in rates]), "%", case=case
        )
        counts = zip(rates, heard, strict=True)
        wrong = [abs(each.speakers - one.conversation.speakers) for each, one in counts]
        report.add(f"speakers too many or few {when}", _mean(wrong), case=case)
    changed = [each.scores.changed for each in heard]
    report.add("words whose speaker changes at STOP", _mean(changed), "%", at_most=CHANGED, case=case)
    swaps = sum(each.scores.swaps for each in heard)
    report.add("speakers that changed before STOP", swaps, at_most=0, case=case)
    _add_sizes(report, heard, case)


async def _add_real(report: Report, folder: Path, models: Models) -> None:
    call, meeting = folder / "azure-katiesteve_mono.wav", folder / "ami-dev00.wav"
    if not call.is_file() or not meeting.is_file():
        return
    tables = {
        call: call.with_name(f"{call.stem}.derived.rttm"),
        meeting: folder / "ami-debug.development.rttm",
    }
    for case, audio in ((CALL, call), (MEETING, meeting)):
        heard = await _hear(conversations.recorded(audio, tables[audio], case), models)
        _add(report, case, [heard])
        if case == CALL:
            for when, live in (("live", True), ("after STOP", False)):
                turns = len(right_turns(heard.conversation, heard.told, live=live))
                report.add(f"turns told right {when}, of {CALL_TURNS}", turns, at_least=CALL_TURNS, case=case)


def _add_sizes(report: Report, heard: Sequence[Heard], case: str) -> None:
    report.add("conversations", len(heard), case=case)
    report.add("minutes", sum(each.conversation.ms for each in heard) / 60_000, case=case)


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else math.nan

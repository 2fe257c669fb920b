"""Live speakers against a real server with the CPU recognizer: how fast text is on this machine.

Utterances with known beginnings and ends are spoken with pauses between them; STOP comes right behind the last word
of every second one. With more speakers than the cores can follow, partials must become fewer before finals are late.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import uvloop

from benchmarks.turns import PAUSE_MS, takes_of_turns
from realtime_server.bench import accounting, speech, swarm
from realtime_server.bench.climbing import counts
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.machine import Usage, Watch
from realtime_server.bench.serving import served
from realtime_server.bench.summary import add_service, takes_of

SILENCE_MS = 600  # that ends an utterance
LOAD_STEP_S = 0.37  # between the beginnings of two speakers

# Bounds by number of speakers: a live recognizer must keep them with one and two on two cores.
FIRST_PARTIAL_MS: dict[int, dict[int, float]] = {1: {50: 800}, 2: {95: 1200}}
TEXT_LAG_MS: dict[int, dict[int, float]] = {2: {95: 1000}}
FINAL_MS: dict[int, dict[int, float]] = {2: {95: 2000}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add(
        "--speakers",
        type=counts,
        default="1,2,6",
        metavar="N,...",
        help="at the same time (default: %(default)s)",
    )
    add("--seconds", type=float, default=36.0, help="of audio per speaker (default: %(default)g)")
    add("--workers", type=int, metavar="N", help="decoding threads of the server (default: one per core)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure each number of speakers against a server of its own."""
    watch = Watch()
    parts = [
        *speech.utterances(speech.reading()),
        *(part for clip in speech.clips() for part in speech.utterances(clip)),
    ]
    flags = ["--engine", "embedded", "--vad", "fsmn", "--endpointing", f"fixed:{SILENCE_MS}"]
    flags += ["--workers", str(arguments.workers)] if arguments.workers else []
    report = Report(
        "embedded", f"{arguments.seconds:g} s per speaker, whisper-base, endpointing fixed:{SILENCE_MS}"
    )
    for count in arguments.speakers:
        takes = [takes_of_turns(parts, speaker, arguments.seconds) for speaker in range(count)]
        with served(flags) as server:
            before = Usage.of(server.pid)
            clients = [
                swarm.Client(server.url, each, delay_s=n * LOAD_STEP_S) for n, each in enumerate(takes)
            ]
            logs = uvloop.run(swarm.run(clients))
            _add_text(report, takes_of(logs), count)
            add_service(
                report, logs, (before, Usage.of(server.pid)), takes=sum(map(len, takes)), case=_case(count)
            )
            report.notes += server.troubles()
    report.notes.append(
        "finals late by: from the end of an utterance to its sentence, less the silence that ends it; all\n"
        "beginnings and ends by loudness of the clean recordings; definitions as in `streams`"
    )
    report.conditions = watch.conditions()
    return report


def _case(count: int) -> str:
    return f"{count} speaker{'s' * (count > 1)}"


def _add_text(report: Report, heards: Sequence[accounting.Heard], count: int) -> None:
    case = _case(count)
    firsts = [ms for heard in heards for _, ms in accounting.first_partials(heard, pause_ms=PAUSE_MS)]
    locked = [ms for heard in heards for _, ms in accounting.locks(heard, pause_ms=PAUSE_MS)]
    finals = [accounting.final_ms(heard) for heard in heards]
    name = "first partial from speech onset"
    report.add_percentiles(name, _known(firsts), "ms", bounds=FIRST_PARTIAL_MS.get(count), case=case)
    lags = [lag for heard in heards for _, lag in accounting.text_lags(heard)]
    report.add_percentiles("text lag", lags, "ms", bounds=TEXT_LAG_MS.get(count), case=case)
    intervals = [ms for heard in heards for _, ms in accounting.intervals(heard)]
    report.add_percentiles("partial interval", intervals, "ms", case=case)
    spoken_s = sum(end - start for heard in heards for start, end in heard.spells) / 1000
    report.add("fresh texts per second of speech", len(lags) / spoken_s, case=case)
    report.add_percentiles("STOP to final", _known(finals), "ms", bounds=FINAL_MS.get(count), case=case)
    report.add_percentiles("speech end to locked", _known(locked), "ms", case=case)
    report.add("finals late by, p95", percentile(_known(locked), 95) - SILENCE_MS, "ms", case=case)
    report.add("utterances", len(firsts), case=case)
    empty = [each for heard in heards for each in accounting.empty_first_decodes(heard, pause_ms=PAUSE_MS)]
    report.add("first decodes without text", 100 * sum(empty) / max(1, len(empty)), "%", case=case)
    report.add("without a partial", firsts.count(None), case=case)
    report.add("without a sentence", locked.count(None), at_most=0, case=case)


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]

"""Many paced streams of read speech against a real server with the fake engine: what the service itself costs.

The fake engine takes a fixed time per decode and hardly any CPU; everything else is real. So the text lag is made
of the packet that must be complete (100 ms), whole frames (60 ms), the VAD's look-ahead (35 ms), the decode, and
whatever the event loop adds under this load.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import uvloop

from realtime_server.bench import accounting, full_load, speech, swarm, talk
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.full_load import Outcome
from realtime_server.bench.machine import Watch
from realtime_server.bench.serving import served
from realtime_server.bench.speech import Recording
from realtime_server.bench.summary import NEAR_A_CORE, add_clients, add_front, add_service, takes_of
from realtime_server.errors import ConfigurationError

APART_MS = 700  # after a pause this long the next utterance is a new segment under `fixed:600`
EVERY_MS = 1200  # somebody who reads is to see text at least this often
LAG_MS = 500
MEMORY_MB = 1074  # 1 GiB
SLOTS_PER_STREAM = 0.32  # an eighth of a slot is busy with partials of 100 ms; finals come on top, in bursts


@dataclass(frozen=True, slots=True)
class Load:
    """What is run. stagger_s: the streams begin within this time; most figures count from its end."""

    streams: int
    seconds: float
    stagger_s: float
    flags: tuple[str, ...]  # of the server

    def __post_init__(self) -> None:
        if self.streams < 1 or self.seconds <= self.stagger_s:
            raise ConfigurationError("at least one stream is needed, and more --seconds than --stagger")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--streams", type=int, default=120, help="at the same time (default: %(default)s)")
    add("--seconds", type=float, default=30.0, help="of audio per stream (default: %(default)g)")
    add("--stagger", type=float, default=5.0, metavar="S", help="they begin within (default: %(default)g s)")
    add(
        "--decode-ms",
        type=float,
        default=100.0,
        metavar="MS",
        help="of the fake engine (default: %(default)g)",
    )
    add(
        "--slots",
        type=int,
        metavar="N",
        help="decodes at once of the fake engine (default: 32 per 100 streams)",
    )
    add("--vad-workers", type=int, default=0, metavar="N", help="of the server (default: %(default)s)")
    add("--vad", default="fsmn", choices=("fsmn", "level"), help="of the server (default: %(default)s)")
    add("--endpointing", default="fixed:600", metavar="MODE", help="of the server (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the demo's recording."""
    slots = arguments.slots or max(2, round(SLOTS_PER_STREAM * arguments.streams))
    flags = (
        "--engine", "fake", "--fake-decode-ms", f"{arguments.decode_ms:g}", "--fake-slots", str(slots),
        "--vad", arguments.vad, "--vad-workers", str(arguments.vad_workers),
        "--endpointing", arguments.endpointing, "--max-sessions", str(arguments.streams),
    )  # fmt: skip
    load = Load(arguments.streams, arguments.seconds, arguments.stagger, flags)
    title = (
        f"{load.streams} streams of {load.seconds:g} s, fake engine with {slots} slots of "
        f"{arguments.decode_ms:g} ms, VAD {arguments.vad} in {_place(arguments.vad_workers)}, "
        f"endpointing {arguments.endpointing}"
    )
    watch = Watch()
    report = measure(load, speech.reading(), title)
    report.conditions = watch.conditions()
    return report


def _place(workers: int) -> str:
    return f"{workers} worker process{'es' * (workers > 1)}" if workers else "the server's process"


def measure(load: Load, recording: Recording, title: str) -> Report:
    """Run the load and report."""
    takes = [swarm.take(stream) for stream in talk.talks(recording, round(1000 * load.seconds))]
    with served(load.flags) as server:
        clients = [
            swarm.Client(server.url, [takes[n % len(takes)]], delay_s=delay_s)
            for n, delay_s in enumerate(full_load.starts(load.streams, load.stagger_s))
        ]
        outcome = uvloop.run(full_load.run(clients, server.pid))
        report = Report("streams", title, notes=server.troubles())
    _add_text(report, outcome)
    assert outcome.server  # it is ours
    add_service(report, outcome.logs, outcome.server, takes=load.streams, memory_mb=MEMORY_MB)
    add_front(report, outcome)
    add_clients(report, outcome)
    report.notes += [
        "text lag: when a result comes that accounts for more speech than before, its time of receipt less\n"
        "its duration_ms, that is the age of the newest sound in the text; text age: the same at any moment of\n"
        "speech; without text: the longest part of each spell of speech without such a result",
        _bottleneck(outcome),
    ]
    return report


def _add_text(report: Report, outcome: Outcome) -> None:
    heards = takes_of(outcome.logs)
    firsts = [
        ms
        for heard in heards
        for start, ms in accounting.first_partials(heard, pause_ms=APART_MS)
        if heard.stop_ms - start > EVERY_MS
    ]
    report.add_percentiles("first partial from speech onset", [ms for ms in firsts if ms is not None], "ms")
    report.add("onsets without a partial", firsts.count(None), at_most=0)
    lags = outcome.under_load(accounting.text_lags)
    report.add_percentiles("text lag", lags, "ms", bounds={95: LAG_MS})
    report.add("text age, p95", percentile(outcome.under_load(accounting.text_ages), 95), "ms")
    intervals = outcome.under_load(accounting.intervals)
    report.add_percentiles("partial interval", intervals, "ms")
    report.add("partial interval, longest", max(intervals, default=float("nan")), "ms")
    gaps = [[gap for _, gap in accounting.without_text(heard)] for heard in heards]
    report.add(
        "speech without text, longest", max((g for each in gaps for g in each), default=float("nan")), "ms"
    )
    kept = 100 * sum(max(each, default=0) <= EVERY_MS for each in gaps) / max(1, len(gaps))
    report.add(f"streams with text every {EVERY_MS} ms", kept, "%", at_least=100)
    finals = [ms for heard in heards if (ms := accounting.final_ms(heard)) is not None]
    report.add("STOP to final, p95", percentile(finals, 95), "ms")


def _bottleneck(outcome: Outcome) -> str:
    """Which of the two processes is nearer to a whole core, the most that its event loop can use."""
    assert outcome.front_cores is not None
    server, client = outcome.front_cores, outcome.client_cores
    busier, cores = ("server", server) if server >= client else ("client", client)
    limit = "is the limit" if cores > NEAR_A_CORE else "has room"
    return (
        f"the {busier} is the busier process: {cores:.2f} of the one core that its loop can use; it {limit}"
    )

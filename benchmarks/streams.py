"""Many paced streams of read speech against a real server with the fake engine: what the service itself costs.

The fake engine takes a fixed time per decode and hardly any CPU; everything else is real. So the text lag is made
of the packet that must be complete (100 ms), whole frames (60 ms), the VAD's look-ahead (35 ms), the decode, and
whatever the event loop adds under this load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvloop

from benchmarks import accounting, speech, swarm
from benchmarks.figures import Report, percentile
from benchmarks.machine import Usage, Watch
from benchmarks.serving import served
from benchmarks.speech import Recording
from benchmarks.summary import add_service, takes_of
from realtime_server.errors import ConfigurationError

LEAD_MS = 600  # of silence before a stream's first word
APART_MS = 700  # after a pause this long the next utterance is a new segment under `fixed:600`
EVERY_MS = 1200  # somebody who reads is to see text at least this often
LAG_MS = 300
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients saw, and both processes at the beginning and the end of the full load."""

    logs: Sequence[swarm.Log]
    server: tuple[Usage, Usage]
    client: tuple[Usage, Usage]
    traffic: tuple[tuple[int, int], tuple[int, int]]  # messages and bytes so far, at the same moments

    def under_load(
        self, find: Callable[[accounting.Heard], Sequence[tuple[float, float]]]
    ) -> list[float]:  # fmt: skip
        """Values from (time in the take, value) pairs of all takes whose time fell into the full load."""
        first_s, last_s = (usage.at_s for usage in self.server)
        found = []
        for log in self.logs:
            for heard, began_s in zip(log.takes, log.began_s, strict=True):
                found += [value for at, value in find(heard) if first_s <= began_s + at / 1000 <= last_s]
        return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--streams", type=int, default=100, help="at the same time (default: %(default)s)")
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
    add("--vad", default="fsmn", choices=("fsmn", "level"), help="of the server (default: %(default)s)")
    add("--endpointing", default="fixed:600", metavar="MODE", help="of the server (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the demo's recording."""
    slots = arguments.slots or max(2, round(SLOTS_PER_STREAM * arguments.streams))
    flags = (
        "--engine", "fake", "--fake-decode-ms", f"{arguments.decode_ms:g}", "--fake-slots", str(slots),
        "--vad", arguments.vad, "--endpointing", arguments.endpointing, "--max-sessions", str(arguments.streams),
    )  # fmt: skip
    load = Load(arguments.streams, arguments.seconds, arguments.stagger, flags)
    title = (
        f"{load.streams} streams of {load.seconds:g} s, fake engine with {slots} slots of "
        f"{arguments.decode_ms:g} ms, VAD {arguments.vad}, endpointing {arguments.endpointing}"
    )
    watch = Watch()
    report = measure(load, speech.reading(), title)
    report.conditions = watch.conditions()
    return report


def measure(load: Load, recording: Recording, title: str) -> Report:
    """Run the load and report."""
    takes = _takes(load, recording)
    with served(load.flags) as server:
        outcome = uvloop.run(_run(load, takes, server.pid, server.port))
        report = Report("streams", title, notes=server.troubles())
    _add_text(report, outcome)
    add_service(report, outcome.logs, outcome.server, takes=load.streams)
    _add_clients(report, outcome)
    report.notes += [
        "text lag: when a result comes that accounts for more speech than before, its time of receipt less\n"
        "its duration_ms, that is the age of the newest sound in the text; text age: the same at any moment of\n"
        "speech; without text: the longest part of each spell of speech without such a result",
        _bottleneck(outcome),
    ]
    return report


def _takes(load: Load, recording: Recording) -> list[swarm.Take]:
    """The recording from each of its utterances on, as long as a stream lasts."""
    ms = round(1000 * load.seconds)
    takes = []
    for start, _ in recording.spells:
        turned = recording.from_on(max(0, start - speech.EDGE_MS))
        whole = speech.join([speech.quiet(LEAD_MS), *[turned] * (ms // recording.ms + 1)])
        takes.append(swarm.take(whole.cut(0, ms)))
    return takes


async def _run(load: Load, takes: Sequence[swarm.Take], pid: int, port: int) -> Outcome:
    # Uneven steps, so that the packets of different streams fall on different moments of the 100 ms.
    clients = [
        swarm.Client(
            port, [takes[n % len(takes)]], delay_s=load.stagger_s * (n + n * 0.618 % 1) / load.streams
        )
        for n in range(load.streams)
    ]
    logs = [client.log for client in clients]

    def look() -> tuple[Usage, Usage, tuple[int, int]]:
        counts = sum(log.messages for log in logs), sum(log.bytes for log in logs)
        return Usage.of(pid), Usage.of(os.getpid()), counts

    running = asyncio.create_task(swarm.run(clients))
    await asyncio.sleep(load.stagger_s)
    server, client, traffic = look()
    await asyncio.sleep(load.seconds - load.stagger_s)
    server_then, client_then, traffic_then = look()
    await running
    return Outcome(logs, (server, server_then), (client, client_then), (traffic, traffic_then))


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


def _add_clients(report: Report, outcome: Outcome) -> None:
    """What the clients did, and what came to them."""
    before, after = outcome.client
    report.add("client CPU", 100 * after.cores_since(before), "% of a core")
    late = [ms for heard in takes_of(outcome.logs) for ms in heard.late_ms]
    report.add("frames sent late by, p95", percentile(late, 95), "ms")
    seconds = after.at_s - before.at_s
    (messages, size), (messages_then, size_then) = outcome.traffic
    report.add("messages to clients", (messages_then - messages) / seconds, "/s")
    report.add("bytes to clients", (size_then - size) / seconds / 1000, "kB/s")


def _bottleneck(outcome: Outcome) -> str:
    """Which of the two processes is nearer to a whole core, the most that its event loop can use."""
    server, client = (after.cores_since(before) for before, after in (outcome.server, outcome.client))
    busier, cores = ("server", server) if server >= client else ("client", client)
    limit = "is the limit" if cores > 0.9 else "has room"
    return (
        f"the {busier} is the busier process: {cores:.2f} of the one core that its loop can use; it {limit}"
    )

"""Two hours of speech through one session: memory and cost per minute must not grow with what was heard.

Three things are looked at. The core alone is driven by hand, with known scores and instant texts, twice: once for its
CPU time, once under tracemalloc for the memory of its live objects. It keeps no transcript: what it locks it hands
out. The wire keeps the encoded sentences, because every message of protocol 1 repeats them all; its memory and its
time per message do grow, and are told without a bound.

Last, a server of its own with the real VAD and the fake engine, and one client on a socket, which sends as fast as it
is answered: it is AHEAD_S before what is in texts. In protocol 2 neither memory nor CPU nor bytes per minute may grow.
In protocol 1 bytes do, and with them CPU; what grows then is told.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import uvloop

from benchmarks.driving import PACKET, CoreDriver, score
from realtime_server import weights
from realtime_server.bench import speech, swarm
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Usage, Watch
from realtime_server.bench.serving import served
from realtime_server.bench.speech import Recording
from realtime_server.core import messages as m
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Probabilities
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.core.wire_v1 import WireV1
from realtime_server.core.wire_v2 import WireV2
from realtime_server.errors import ConfigurationError
from realtime_server.models.fsmn_vad import FsmnVad

MINUTE = 60 * SAMPLE_RATE // PACKET  # packets
LOOK = MINUTE // 10  # packets between looks at memory
EARLY = 5  # the minute that later ones are held against
AROUND = 5  # minutes that stand for the one in their middle, as far as there are so many
SETTINGS = SessionSettings(endpointing=EndpointingOptions.parse("fixed:600"))
MEMORY_GROWTH, TIME_GROWTH = 1.10, 1.25  # at most
SIZE_GROWTH = 1.10  # at most, of what protocol 2 sends per second of audio
SERVER_GROWTH = 1.10  # at most, of memory and CPU
AHEAD_S = 5.0  # of audio that was sent, and is in no result
SERVER = (
    "--engine", "fake", "--fake-decode-ms", "10", "--max-session-seconds", "1e6", "--endpointing", "fixed:600",
)  # fmt: skip
STARTS = {1: "START", 2: 'START {"protocol": 2}'}
TEXTS = re.compile(
    rb'"(?:text|stable|unstable|partial)": ?"[^"]*"'
)  # the fake engine's are numbers, which grow
FINAL = re.compile(rb'"is_final": ?true|"type": ?"final"')
TAIL = 4000  # bytes at the end of a message that have its times
PATIENCE_S = 60.0  # for a result
Middle = Callable[[Sequence[float]], float]
HEARD = {
    1: re.compile(rb'"duration_ms": ?(\d+)'),
    2: re.compile(rb'"(?:decoded_ms|end_ms)": ?(\d+)'),  # of progress, which only new audio brings; of texts
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--minutes", type=int, default=120, help="of audio through the core (default: %(default)s)")
    add("--session-minutes", type=int, default=120, help="through a server (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the demo's recording, repeated."""
    if min(arguments.minutes, arguments.session_minutes) < 2 * EARLY + AROUND:
        raise ConfigurationError(f"at least {2 * EARLY + AROUND} minutes are needed")
    watch = Watch()
    recording, model = speech.reading(), FsmnVad.load(weights.find("fsmn-vad"))
    probabilities = score(model, recording.samples)
    report = Report("long", f"{arguments.minutes} minutes of read speech, one session, endpointing fixed:600")
    marks = (EARLY, arguments.minutes // 2, arguments.minutes)
    _add_core(report, recording, probabilities, marks)
    _add_wire(report, recording, probabilities, marks)
    server_marks = (EARLY, arguments.session_minutes // 2, arguments.session_minutes)
    _add_server(report, 2, recording, server_marks, at_most=SERVER_GROWTH)
    _add_server(report, 1, recording, server_marks, at_most=None)
    report.notes.append(
        "core's memory: what it allocated and still holds (tracemalloc)\n"
        f"CPU per minute: of audio, the median of {AROUND}; of the server their mean, for it is known to 10 ms\n"
        f"server: with the VAD, over a socket; the client is {AHEAD_S:g} s ahead of the texts.\n"
        "its messages are told without their texts: the fake engine counts, and large numbers have more letters"
    )
    report.conditions = watch.conditions()
    return report


def _add_core(
    report: Report, recording: Recording, probabilities: Probabilities, marks: Sequence[int]
) -> None:  # fmt: skip
    driver = CoreDriver(recording, probabilities, SETTINGS)
    times = [_timed(lambda: driver.hear(MINUTE)) for _ in range(marks[-1])]
    _add_times(report, "core, CPU per minute", times, marks)
    memory = _core_memory_kb(recording, probabilities, marks)
    for name, place in (("samples, at most", 0), ("other live memory", 1)):
        for mark in marks:
            report.add(f"core, {name} around minute {mark}", memory[mark][place], "kB")
        growth = memory[marks[-1]][place] / memory[marks[0]][place]
        report.add(f"core, {name}, growth", growth, "times", at_most=MEMORY_GROWTH)


def _core_memory_kb(
    recording: Recording, probabilities: Probabilities, marks: Sequence[int]
) -> dict[int, tuple[float, float]]:  # fmt: skip
    """Kilobytes of samples, the most around each mark, and of all other live objects, the median.

    What a session holds depends on where in an utterance it stands, so one moment says little.
    """
    looks = {mark: np.full((2, AROUND * MINUTE // LOOK), np.nan) for mark in marks}  # no object per look
    tracemalloc.start()
    driver = CoreDriver(recording, probabilities, SETTINGS)
    for minute in range(1, marks[-1] + 1):
        near = [mark for mark in marks if minute in _around(mark, marks[-1])]
        for look in range(MINUTE // LOOK):
            driver.hear(LOOK)
            if near:
                place = (minute - _around(near[0], marks[-1])[0]) * (MINUTE // LOOK) + look
                other_kb = _live_kb()
                looks[near[0]][:, place] = tracemalloc.get_traced_memory()[0] / 1000 - other_kb, other_kb
    tracemalloc.stop()
    return {mark: (float(seen[0].max()), float(np.median(seen[1]))) for mark, seen in looks.items()}


def _live_kb() -> float:
    """Live memory without the data of numpy's arrays, which it traces in a domain of its own."""
    gc.collect()
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, 0)])
    return sum(trace.size for trace in ours.traces) / 1000


def _add_wire(
    report: Report, recording: Recording, probabilities: Probabilities, marks: Sequence[int]
) -> None:  # fmt: skip
    """Messages of protocol 1 repeat what was locked; those of protocol 2 tell everything once."""
    for protocol, wire in ((1, WireV1()), (2, WireV2("benchmark"))):
        driver = CoreDriver(recording, probabilities, SETTINGS)
        times, sizes = [], []
        for _ in range(marks[-1]):
            turns = driver.hear(MINUTE)
            messages: list[str] = []
            times.append(_timed(partial(_encode, wire, turns, messages)))
            sizes.append(sum(len(message.encode()) for message in messages) / 60 / 1000)
        name = f"protocol {protocol}, messages"
        for mark in (marks[0], marks[-1]):
            report.add(f"{name}, CPU per minute at minute {mark}", _median(times, mark), "ms")
            report.add(f"{name}, size at minute {mark}", _median(sizes, mark), "kB/s")
        if protocol == 2:
            growth = _median(sizes, marks[-1]) / _median(sizes, marks[0])
            report.add(f"{name}, size, growth", growth, "times", at_most=SIZE_GROWTH)


def _encode(wire: m.Wire, turns: Sequence[Sequence[m.Event]], messages: list[str]) -> None:
    for events in turns:
        messages += wire.encode(events)


@dataclass(slots=True)
class Hours:
    """What was seen of a server: a value for each minute of audio."""

    cpu_ms: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    sent_kb: list[float] = field(default_factory=list)  # per second of audio, texts left out
    sentences: int = 0
    took_s: float = 0.0


def _add_server(
    report: Report, protocol: int, recording: Recording, marks: Sequence[int], *, at_most: float | None
) -> None:  # fmt: skip
    name = f"server, protocol {protocol}"
    with served(SERVER) as server:
        seen = uvloop.run(hear(recording, server.url, server.pid, marks[-1], protocol))
        report.notes += server.troubles()
    _add_times(report, f"{name}: CPU per minute", seen.cpu_ms, marks, at_most=at_most, middle=statistics.mean)
    for what, values, unit in (
        ("memory", seen.memory_mb, "MB"),
        ("messages without texts", seen.sent_kb, "kB/s"),
    ):
        for mark in marks:
            report.add(f"{name}: {what} at minute {mark}", _median(values, mark), unit)
        growth = _median(values, marks[-1]) / _median(values, marks[0])
        report.add(f"{name}: {what}, growth", growth, "times", at_most=at_most)
    report.add(f"{name}: sentences", seen.sentences)
    report.add(f"{name}: times the speed of speech", 60 * marks[-1] / seen.took_s)


async def hear(recording: Recording, url: str, pid: int, minutes: int, protocol: int) -> Hours:
    """Send minutes of audio, and look at the server after each."""
    seen, log, place = Hours(), swarm.Log(), swarm.read_url(url)
    frames = swarm.pack(recording.samples[: len(recording.samples) // PACKET * PACKET])
    loop, began_s = asyncio.get_running_loop(), time.monotonic()
    _, peer = await loop.create_connection(lambda: Listener(log, protocol), place.host, place.port)
    peer.connect(place)
    await peer.opened
    peer.say(STARTS[protocol])
    before = Usage.of(pid)
    for packet in range(minutes * MINUTE):
        peer.write(frames[packet % len(frames)])
        await peer.wait_heard((packet + 1) * PACKET / SAMPLE_RATE - AHEAD_S)
        if (packet + 1) % MINUTE == 0:
            after = Usage.of(pid)
            seen.cpu_ms.append(1000 * (after.cpu_s - before.cpu_s))
            seen.memory_mb.append(after.rss_mb)
            seen.sent_kb.append(peer.bytes / 60 / 1000)
            before, peer.bytes = after, 0
    seen.took_s = time.monotonic() - began_s
    peer.say("STOP")
    seen.sentences = await peer.count_sentences()
    await peer.close()
    return seen


class Listener(swarm.Peer):
    """Keeps nothing but how far the texts are, whatever comes. bytes: of messages, texts left out."""

    def __init__(self, log: swarm.Log, protocol: int) -> None:
        super().__init__(log)
        self.bytes = 0
        self._heard, self._heard_s, self._more = HEARD[protocol], 0.0, asyncio.Event()
        self._final: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def wait_heard(self, seconds: float) -> None:
        """Wait until so many seconds are in texts, or were silence. Raises ClientError."""
        async with asyncio.timeout(PATIENCE_S):
            while self._heard_s < seconds:
                if self.is_closed:
                    raise swarm.ClientError(f"the connection was lost after {self._heard_s:.0f} s of audio")
                self._more.clear()
                await self._more.wait()

    async def count_sentences(self) -> int:
        """How many the final has."""
        async with asyncio.timeout(PATIENCE_S):
            return (await self._final).count(b'"text":')

    def receive_text(self, payload: bytes, now_s: float) -> None:
        """See Peer."""
        self.bytes += len(payload) - sum(map(len, TEXTS.findall(payload)))
        if found := self._heard.search(payload, max(0, len(payload) - TAIL)):
            self._heard_s = max(self._heard_s, int(found[1]) / 1000)
            self._more.set()
        if FINAL.search(payload):
            self._final.set_result(payload)

    def connection_lost(self, error: Exception | None) -> None:
        """See Peer."""
        super().connection_lost(error)
        self._more.set()


def _add_times(
    report: Report, name: str, times: Sequence[float], marks: Sequence[int], *,
    at_most: float | None = TIME_GROWTH, middle: Middle = statistics.median,
) -> None:  # fmt: skip
    for mark in marks:
        report.add(f"{name} at minute {mark}", _median(times, mark, middle), "ms")
    growth = _median(times, marks[-1], middle) / _median(times, marks[0], middle)
    report.add(f"{name}, growth", growth, "times", at_most=at_most)


def _timed(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return 1000 * (time.process_time() - began_s)


def _around(minute: int, minutes: int) -> range:
    """The minutes, from 1, that stand for one."""
    last = min(minute + AROUND // 2, minutes)
    return range(last - AROUND + 1, last + 1)


def _median(values: Sequence[float], minute: int, middle: Middle = statistics.median) -> float:
    return middle([values[each - 1] for each in _around(minute, len(values))])

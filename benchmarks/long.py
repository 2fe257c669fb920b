"""Two hours of speech through one session: memory and cost per minute must not grow with what was heard.

Three things are looked at. The core alone is driven by hand, with known scores and instant texts, twice: once for its
CPU time, once under tracemalloc for the memory of its live objects. It keeps no transcript: what it locks it hands
out. The wire keeps the encoded sentences, because every message of protocol 1 repeats them all; its memory and its
time per message do grow, and are told without a bound. Last, a whole session with the real VAD.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import uvloop

from benchmarks.driving import PACKET, CoreDriver, InstantEngine, score
from realtime_server import weights
from realtime_server.bench import machine, speech
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Watch
from realtime_server.bench.speech import Recording
from realtime_server.core import messages as m
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Probabilities
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.core.wire_v1 import WireV1
from realtime_server.engines.vad import FsmnScorer
from realtime_server.errors import ConfigurationError
from realtime_server.models.fsmn_vad import FsmnVad
from realtime_server.realtime.session import RealtimeASRSession

MINUTE = 60 * SAMPLE_RATE // PACKET  # packets
LOOK = MINUTE // 10  # packets between looks at memory
EARLY = 5  # the minute that later ones are held against
AROUND = 5  # minutes that stand for the one in their middle, as far as there are so many
SETTINGS = SessionSettings(endpointing=EndpointingOptions.parse("fixed:600"))
MEMORY_GROWTH, TIME_GROWTH = 1.10, 1.25  # at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--minutes", type=int, default=120, help="of audio through the core (default: %(default)s)")
    add(
        "--session-minutes",
        type=int,
        default=30,
        help="through a session with the VAD (default: %(default)s)",
    )


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
    _add_session(report, recording, model, (EARLY, arguments.session_minutes // 2, arguments.session_minutes))
    report.notes.append(
        "core's memory: what it allocated and still holds (tracemalloc)\n"
        f"CPU per minute: of audio, the median of {AROUND}\n"
        "session's memory: of the whole process; its log fills up to 4096 events"
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
    """Messages of protocol 1: they repeat what was locked."""
    driver, wire = CoreDriver(recording, probabilities, SETTINGS), WireV1()
    times, sizes = [], []
    for _ in range(marks[-1]):
        turns = driver.hear(MINUTE)
        messages: list[str] = []
        times.append(_timed(partial(_encode, wire, turns, messages)))
        sizes.append(sum(map(len, messages)) / 60 / 1000)
    for mark in (marks[0], marks[-1]):
        report.add(f"messages, CPU per minute at minute {mark}", _median(times, mark), "ms")
        report.add(f"messages, size at minute {mark}", _median(sizes, mark), "kB/s")


def _encode(wire: WireV1, turns: Sequence[Sequence[m.Event]], messages: list[str]) -> None:
    for events in turns:
        messages += wire.encode(events)


def _add_session(report: Report, recording: Recording, model: FsmnVad, marks: Sequence[int]) -> None:
    times, memory = uvloop.run(_session(recording, model, marks[-1]))
    _add_times(report, "session with VAD, CPU per minute", times, marks)
    for mark in (marks[0], marks[-1]):
        report.add(f"session with VAD, process memory at minute {mark}", memory[mark - 1], "MB")


async def _session(recording: Recording, model: FsmnVad, minutes: int) -> tuple[list[float], list[float]]:
    """CPU milliseconds of each minute of audio, and megabytes after it."""
    packets = np.rint(recording.samples[: len(recording.samples) // PACKET * PACKET] * 32767).astype("<i2")
    frames = [row.tobytes() for row in packets.reshape(-1, PACKET)]
    times, memory, at = [], [], 0
    async with RealtimeASRSession(InstantEngine(), FsmnScorer(model), SETTINGS) as session:
        session.feed("START")
        reading = asyncio.create_task(_read(session))
        for _ in range(minutes):
            began_s = time.process_time()
            for _ in range(MINUTE):
                session.feed(frames[at % len(frames)])
                at += 1
                for _ in range(4):  # turns of the loop that score, decode and send
                    await asyncio.sleep(0)
            times.append(1000 * (time.process_time() - began_s))
            memory.append(machine.rss_mb(os.getpid()))
        session.feed("STOP")
        session.end()
        await reading
    return times, memory


async def _read(session: RealtimeASRSession) -> None:
    async for _ in session.messages():
        pass


def _add_times(report: Report, name: str, times: Sequence[float], marks: Sequence[int]) -> None:
    for mark in marks:
        report.add(f"{name} at minute {mark}", _median(times, mark), "ms")
    growth = _median(times, marks[-1]) / _median(times, marks[0])
    report.add(f"{name}, growth", growth, "times", at_most=TIME_GROWTH)


def _timed(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return 1000 * (time.process_time() - began_s)


def _around(minute: int, minutes: int) -> range:
    """The minutes, from 1, that stand for one."""
    last = min(minute + AROUND // 2, minutes)
    return range(last - AROUND + 1, last + 1)


def _median(values: Sequence[float], minute: int) -> float:
    return statistics.median(values[each - 1] for each in _around(minute, len(values)))

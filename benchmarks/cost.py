"""What each part of the service costs: CPU time of this process per second of one stream's audio.

The whole is the real server in this process on real sockets and an engine that answers at once: with the real VAD in
the process, with the real VAD in a worker process, and with a scorer that answers at once. The parts are measured
alone, on the same audio. What they leave of the whole is told too: the shell (a task, a deadline and a wake-up per job,
the event log, the handshake, and every part a little slower than alone), and what the VAD costs more than alone because
other work takes the processor's caches in between. The clients run in a process of their own, faster than speech.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import uvloop
from websockets.asyncio.server import ServerConnection, serve

from benchmarks.driving import PACKET, CoreDriver, InstantEngine, KnownScorer, score
from realtime_server import weights
from realtime_server.bench import machine, speech, swarm
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Watch
from realtime_server.bench.speech import Recording
from realtime_server.core.audio import SampleReader
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, Probabilities
from realtime_server.core.segments import FRAME, SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.core.setup import AudioFormat
from realtime_server.core.wire_v1 import WireV1
from realtime_server.engines.base import Scorer
from realtime_server.engines.vad import FsmnScorer
from realtime_server.engines.vad_workers import WorkerScorer
from realtime_server.models.fsmn_vad import FsmnVad
from realtime_server.realtime.dispatch import Dispatcher
from realtime_server.realtime.server import RealtimeServer, ServerOptions
from realtime_server.resources import find_resource

PACE = 5.0  # times the speed of speech: 24 streams make the events of 120
TEXT = "we had nothing before us "
MESSAGE_PACKETS = 8  # packets per message of the bare socket, about as many as the service sends
RESULT = '{"sentences":[],"partial":"%s","partial_start_ms":0,"duration_ms":0,"is_final":false}' % (TEXT * 8)
JOBS = (FRAME, 2 * FRAME, 2 * FRAME)
DISPATCHED = 5000  # decodes
AFTER_S = 600  # audio before the messages are encoded whose cost is told: protocol 1 repeats every sentence


@dataclass(frozen=True, slots=True)
class Feed:
    """What the clients send."""

    streams: int
    seconds: int

    @property
    def audio_s(self) -> int:
        """Seconds of audio together."""
        return self.streams * self.seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    parser.add_argument("--streams", type=int, default=24, help="at the same time (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="of audio per stream (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure the whole and its parts."""
    watch, feed = Watch(), Feed(arguments.streams, arguments.seconds)
    recording, model = speech.reading(), FsmnVad.load(weights.find("fsmn-vad"))
    probabilities = score(model, recording.samples)
    engine = InstantEngine()
    without, _ = uvloop.run(_service(feed, engine, KnownScorer(probabilities)))
    parts = {
        "socket: websockets and the loop": uvloop.run(_socket(feed)),
        "bytes to samples": _decoding(recording, feed.audio_s),
        "core: segments, partials, texts": _core(recording, probabilities, feed.audio_s),
        "messages: JSON": _encoding(recording, probabilities),
        "dispatch: turns and deadlines of decodes": uvloop.run(_dispatch(engine.decodes / feed.audio_s)),
    }
    parts["shell: tasks, deadlines, wake-ups"] = without - sum(parts.values())
    parts["voice activity, alone"] = voice = _vad(recording, model, feed.audio_s)
    whole, _ = uvloop.run(_service(feed, InstantEngine(), FsmnScorer(model)))
    parts["voice activity, more among others"] = whole - without - voice
    front, workers = uvloop.run(_service_with_worker(feed))
    report = Report(
        "cost", f"{feed.streams} streams of {feed.seconds} s at {PACE:g} times the speed of speech"
    )
    for name, cost in {**parts, "whole, without the recognizer": whole}.items():
        report.add(name, cost, "us/s")
    report.add("streams per core", 1e6 / whole)
    report.add("voice activity in a worker: jobs and answers", front - without, "us/s")
    report.add("whole, with a worker", front, "us/s")
    report.add("streams per core, with a worker", 1e6 / front)
    report.add("the worker", workers, "us/s")
    report.add("streams per core of a worker", 1e6 / workers)
    report.notes.append(
        "us/s: microseconds of CPU per second of one stream's audio, speech nearly all the time\n"
        f"JSON: the messages after {AFTER_S // 60} minutes of speech; every one repeats all sentences (see `long`)"
    )
    report.conditions = watch.conditions()
    return report


# --- on sockets ---------------------------------------------------------------------------------------------


async def _socket(feed: Feed) -> float:
    """A server that takes the frames and does nothing with them, with as many messages as the real one."""

    async def handle(connection: ServerConnection) -> None:
        frames = 0
        async for frame in connection:
            if isinstance(frame, str):
                await connection.send('{"event":"started"}' if frame == "START" else '{"event":"stopped"}')
            elif (frames := frames + 1) % MESSAGE_PACKETS == 0:
                await connection.send(RESULT)

    async with serve(handle, "127.0.0.1", 0, compression=None, server_header=None) as server:
        cost, _ = await _fed(feed, server.sockets[0].getsockname()[1])
        return cost


async def _service(
    feed: Feed, engine: InstantEngine, scorer: Scorer, pids: Sequence[int] = ()
) -> tuple[float, float]:
    """The real server."""
    options = ServerOptions(port=0, max_sessions=feed.streams, late_s=None)
    page = find_resource("static/client_mic.html")
    server = RealtimeServer(engine, scorer, SessionSettings(), options, page=page, description={})
    port = await server.start()
    try:
        return await _fed(feed, port, pids)
    finally:
        await server.stop()


async def _service_with_worker(feed: Feed) -> tuple[float, float]:
    scorer = WorkerScorer(weights.find("fsmn-vad"), 1)
    try:
        return await _service(feed, InstantEngine(), scorer, scorer.pids)
    finally:
        await scorer.aclose()


async def _fed(feed: Feed, port: int, pids: Sequence[int] = ()) -> tuple[float, float]:
    """CPU microseconds of this process, and of others, per second of audio while the clients speak."""
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=speak, args=(port, feed))
    child.start()
    began_s, others_began_s = time.process_time(), sum(map(machine.cpu_s, pids))
    await asyncio.to_thread(child.join)
    took_s, others_s = time.process_time() - began_s, sum(map(machine.cpu_s, pids)) - others_began_s
    if child.exitcode != 0:
        raise swarm.ClientError("the clients met errors")
    return 1e6 * took_s / feed.audio_s, 1e6 * others_s / feed.audio_s


def speak(port: int, feed: Feed) -> None:
    """The clients' process; it fails if anything went wrong."""
    recording = speech.reading()
    whole = speech.join([recording] * (1 + 1000 * feed.seconds // recording.ms))
    take = swarm.take(whole.cut(0, 1000 * feed.seconds))
    step_s = swarm.FRAME_MS / 1000 / PACE / feed.streams
    clients = [
        swarm.Client(f"ws://127.0.0.1:{port}", [take], delay_s=n * step_s, pace=PACE)
        for n in range(feed.streams)
    ]
    errors = [error for log in uvloop.run(swarm.run(clients)) for error in log.errors]
    if errors:
        raise SystemExit("\n".join(errors[:5]))


# --- alone --------------------------------------------------------------------------------------------------


def _timed(work: Callable[[], object], audio_s: float) -> float:
    began_s = time.process_time()
    work()
    return 1e6 * (time.process_time() - began_s) / audio_s


def _decoding(recording: Recording, seconds: int) -> float:
    wire, reader = WireV1(), SampleReader(AudioFormat())
    packet = (recording.samples[:PACKET] * 32767).astype("<i2").tobytes()

    def work() -> None:
        for _ in range(seconds * SAMPLE_RATE // PACKET):
            for piece in wire.decode(packet):
                assert isinstance(piece, bytes)
                reader.receive_bytes(piece)

    return _timed(work, seconds)


def _core(recording: Recording, probabilities: Probabilities, seconds: int) -> float:
    driver = CoreDriver(recording, probabilities)
    return _timed(lambda: driver.hear(seconds * SAMPLE_RATE // PACKET), seconds)


def _vad(recording: Recording, model: FsmnVad, seconds: int) -> float:
    """In the jobs that packets of 100 ms become: a frame, then twice two."""
    stream, turns = model.stream(), len(recording.samples) // sum(JOBS)

    def work() -> None:
        at = 0
        for number in range(seconds * SAMPLE_RATE // sum(JOBS)):
            at = number % turns * sum(JOBS)
            for size in JOBS:
                stream.feed(recording.samples[at : at + size])
                at += size

    return _timed(work, seconds)


async def _dispatch(decodes_per_s: float) -> float:
    """Jobs one after the other through a Dispatcher; what the engine itself takes is left out."""
    engine, audio = InstantEngine(), np.zeros(SAMPLE_RATE, np.float32)
    dispatcher, ids = Dispatcher(engine), itertools.count()

    def job() -> DecodeJob:
        return DecodeJob(
            next(ids),
            "one",
            1,
            0,
            "partial",
            Priority.REFRESH,
            0,
            0,
            len(audio),
            audio,
            "",
            DecodingOptions(),
        )

    costs = []
    for each in (dispatcher, engine):
        began_s = time.process_time()
        for _ in range(DISPATCHED):
            await each.transcribe(job())
        costs.append(1e6 * (time.process_time() - began_s) / DISPATCHED)
    return (costs[0] - costs[1]) * decodes_per_s


def _encoding(recording: Recording, probabilities: Probabilities) -> float:
    driver, wire = CoreDriver(recording, probabilities), WireV1()
    for events in driver.hear(AFTER_S * SAMPLE_RATE // PACKET):
        wire.encode(events)
    turns = driver.hear(AFTER_S // 5 * SAMPLE_RATE // PACKET)
    return _timed(lambda: [wire.encode(events) for events in turns], AFTER_S // 5)

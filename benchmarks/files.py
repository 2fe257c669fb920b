"""Live sessions and /health while whole recordings are transcribed: the same streams with and without them, in turn.

Four clients post five minutes each, again and again, as long as two live sessions speak. With the fake engine, whose
decodes take a fixed time, what is measured is the order in which the service works; with the CPU recognizer, whose
decodes take the machine's cores, it is the machine as well.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvloop

from benchmarks import corpus
from benchmarks.posting import HEADERS, files_host, form_of, wav_of
from benchmarks.turns import PAUSE_MS, takes_of_turns
from realtime_server.bench import accounting, speech, swarm
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.machine import Usage, Watch
from realtime_server.bench.serving import Server, served
from realtime_server.bench.summary import takes_of
from realtime_server.offline.recording import Recording, to_pcm16

SILENCE_MS = 600  # that ends an utterance
APART_S = 0.37  # between the beginnings of two sessions
LOOK_S = 0.05  # between two requests for /health
MOST_HEALTH_MS = 100
MOST_RATIO = 1.2  # of a final's delay, with recordings to without
ENGINES = ("fake", "embedded")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    # fmt: off
    add("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="default: both")
    add("--pairs", type=int, default=5, help="runs without and with recordings (default: %(default)s)")
    add("--sessions", type=int, default=2, help="live, at the same time (default: %(default)s)")
    add("--seconds", type=float, default=16.0, help="of audio per session (default: %(default)g)")
    add("--files", type=int, default=4, help="recordings at the same time (default: %(default)s)")
    add("--minutes", type=float, default=5.0, help="of audio per recording (default: %(default)g)")
    add("--decode-ms", type=float, default=100.0, metavar="MS", help="of the fake engine (default: %(default)g)")
    # fmt: on


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the fetched recordings."""
    watch = Watch()
    title = (
        f"{arguments.pairs} pairs of runs of {arguments.sessions} sessions of {arguments.seconds:g} s; "
        f"{arguments.files} recordings of {arguments.minutes:g} minutes in one of each, endpointing fixed:{SILENCE_MS}"
    )
    report = Report("files", title)
    reading = speech.reading()
    parts = [*speech.utterances(reading), *(p for clip in speech.clips() for p in speech.utterances(clip))]
    sessions = [takes_of_turns(parts, number, arguments.seconds) for number in range(arguments.sessions)]
    recording = Recording()
    recording.append(to_pcm16(reading.samples))
    form = form_of(wav_of(corpus.repeated([recording], 60 * arguments.minutes)))
    for engine in arguments.engines:
        flags = ["--engine", engine, "--endpointing", f"fixed:{SILENCE_MS}", "--http-port", "0"]
        flags += ["--fake-decode-ms", f"{arguments.decode_ms:g}"] if engine == "fake" else []
        pairs = [
            (_measure(flags, sessions, form, 0), _measure(flags, sessions, form, arguments.files))
            for _ in range(arguments.pairs)
        ]
        _add_pairs(report, engine, pairs)
    report.notes.append(
        "speech end to locked: the silence that ends an utterance included; ratios are medians over the pairs of the\n"
        f"p50 and p95 of a run; /health is asked for on the recordings' port every {1000 * LOOK_S:g} ms, on a new\n"
        f"connection; fake: {arguments.decode_ms:g} ms per decode, two at once; embedded: whisper-base"
    )
    report.conditions = watch.conditions()
    return report


@dataclass(slots=True)
class Run:
    """What one run showed; times in ms.  segments: of recordings, decoded meanwhile.  cores: used by the server."""

    locked: list[float] = field(default_factory=list)
    finals: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    lost: int = 0  # utterances without a sentence
    segments: int = 0
    took_s: float = 0.0
    cores: float = 0.0
    errors: list[str] = field(default_factory=list)


def _measure(flags: Sequence[str], sessions: Sequence[Sequence[swarm.Take]], form: bytes, files: int) -> Run:
    seen = Run()
    with served(flags) as server:
        host = files_host(server)
        with _posting(host, form, files, seen):
            before = Usage.of(server.pid)
            logs = uvloop.run(_speak(server, host, sessions, seen))
            seen.cores = Usage.of(server.pid).cores_since(before)
    heards = takes_of(logs)
    locked = [ms for heard in heards for _, ms in accounting.locks(heard, pause_ms=PAUSE_MS)]
    finals = [accounting.final_ms(heard) for heard in heards]
    seen.locked = [ms for ms in locked if ms is not None]
    seen.finals = [ms for ms in finals if ms is not None]
    seen.lost = locked.count(None) + finals.count(None)
    seen.errors += [error for log in logs for error in log.errors]
    return seen


async def _speak(
    server: Server, host: str, sessions: Sequence[Sequence[swarm.Take]], seen: Run
) -> list[swarm.Log]:
    looking = asyncio.create_task(_watch_health(host, seen))
    began_s = time.monotonic()
    clients = [swarm.Client(server.url, each, delay_s=n * APART_S) for n, each in enumerate(sessions)]
    try:
        logs = await swarm.run(clients)
    finally:
        looking.cancel()
        await asyncio.wait([looking])
    seen.took_s = time.monotonic() - began_s
    counted = re.search(r'decode_seconds_count\{kind="file"\} (\S+)', await _get(host, "/metrics"))
    seen.segments = round(float(counted[1])) if counted else 0
    return logs


async def _watch_health(host: str, seen: Run) -> None:
    while True:
        began_s = time.monotonic()
        answer = await _get(host, "/health")
        seen.health.append(1000 * (time.monotonic() - began_s))
        if " 200 " not in answer[:20]:
            seen.errors.append(f"/health: {answer[:60]}")
        await asyncio.sleep(LOOK_S)


async def _get(host: str, path: str) -> str:
    address, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return (await reader.read()).decode(errors="replace")
    finally:  # also when the watch ends in its middle
        writer.close()


@contextmanager
def _posting(host: str, form: bytes, files: int, seen: Run) -> Iterator[None]:
    """Clients that post the form again and again while the block runs; what is under way at its end is given up."""
    ended, connections = threading.Event(), [http.client.HTTPConnection(host) for _ in range(files)]
    threads = [threading.Thread(target=_post, args=(each, form, ended, seen)) for each in connections]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for connection in connections:
            if connection.sock:
                connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _post(connection: http.client.HTTPConnection, form: bytes, ended: threading.Event, seen: Run) -> None:
    try:
        while not ended.is_set():
            connection.request("POST", "/asr", form, HEADERS)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != http.client.OK:
                seen.errors.append(f"a recording: {answer.status} {body[:80]!r}")
                return
    except (OSError, http.client.HTTPException) as error:
        if not ended.is_set():
            seen.errors.append(f"a recording: {error!r}")


def _add_pairs(report: Report, engine: str, pairs: Sequence[tuple[Run, Run]]) -> None:
    for place, name in enumerate(("alone", "beside files")):
        runs, case = [pair[place] for pair in pairs], f"{engine}, {name}"
        add = report.add
        for what, of in DELAYS:
            for percent in (50, 95):
                value = _median(percentile(of(run), percent) for run in runs)
                add(f"{what}, p{percent}", value, "ms", case=case)
        every = [ms for run in runs for ms in run.health]
        add("/health, p95", percentile(every, 95), "ms", case=case)
        add("/health, longest", max(every), "ms", at_most=MOST_HEALTH_MS, case=case)
        add("server CPU, of a core", 100 * _median(run.cores for run in runs), "%", case=case)
        add("segments of recordings", _median(run.segments / run.took_s for run in runs), "per s", case=case)
        add("without a sentence", sum(run.lost for run in runs), at_most=0, case=case)
        add("errors", sum(len(run.errors) for run in runs), at_most=0, case=case)
        report.notes += sorted({error for run in runs for error in run.errors})[:5]
    for what, of in DELAYS:
        for percent, bound in ((50, MOST_RATIO), (95, None)):
            ratio = _median(percentile(of(w), percent) / percentile(of(wo), percent) for wo, w in pairs)
            report.add(
                f"{what}, p{percent}, beside : alone", ratio, at_most=bound, case=f"{engine}, beside files"
            )


def _locked(run: Run) -> list[float]:
    return run.locked


def _finals(run: Run) -> list[float]:
    return run.finals


DELAYS = (("speech end to locked", _locked), ("STOP to final", _finals))


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)

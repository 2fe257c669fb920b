"""What viewers cost those who speak: the same streams with and without them, in turn.

The viewers are a process of their own, as overlays are: most read everything, some accept their connection and never
read. The fake engine hardly uses the CPU, so that what the viewers take from the server shows. Pairs alternate,
because the machine changes more between two minutes than between two halves of one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from benchmarks.speakers import APART_MS, SILENCE_MS, takes_of_utterances
from realtime_server.bench import accounting, swarm
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.machine import Usage, Watch
from realtime_server.bench.serving import ServerError, served
from realtime_server.bench.summary import takes_of

MOST_RATIO = 1.2  # of the finals' p95, with viewers to without
LOOK_S = 0.1  # between two tries to view a session that has not begun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--pairs", type=int, default=5, help="runs with and without (default: %(default)s)")
    add("--streams", type=int, default=10, help="at the same time (default: %(default)s)")
    add("--viewers", type=int, default=50, help="of all streams together (default: %(default)s)")
    add("--stalled", type=int, default=5, help="of them that read nothing (default: %(default)s)")
    add("--seconds", type=float, default=20.0, help="of audio per stream (default: %(default)g)")
    add(
        "--decode-ms",
        type=float,
        default=100.0,
        metavar="MS",
        help="of the fake engine (default: %(default)g)",
    )


Figures = tuple[float, float, float]  # finals' p95, STOP to final's p95 in ms, server CPU in cores


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the demo's recording."""
    watch = Watch()
    title = (
        f"{arguments.pairs} pairs of runs of {arguments.streams} streams of {arguments.seconds:g} s, fake engine of "
        f"{arguments.decode_ms:g} ms, {arguments.viewers} viewers, {arguments.stalled} of them stalled"
    )
    report = Report("viewers", title)
    takes = takes_of_utterances(arguments.streams, arguments.seconds)
    counts = (0, 0), (arguments.viewers, arguments.stalled)
    pairs, heard = [], 0
    for number in range(arguments.pairs):
        runs = {}
        for viewers, stalled in counts if number % 2 else counts[::-1]:
            runs[viewers], messages = _measure(takes, arguments.decode_ms, viewers, stalled)
            heard += messages
        pairs.append((runs[0], runs[arguments.viewers]))
    _add_pairs(report, pairs)
    report.add("messages to viewers who read", heard / max(1, arguments.pairs), "a run")
    report.notes.append(
        "finals late by: from the end of an utterance to its sentence, less the silence that ends it; the ratio is\n"
        "the median over the pairs; each stream is watched by its share of the viewers, in protocol 2; what the\n"
        "stalled ones do not read waits in the sockets' buffers for so short a stream"
    )
    report.conditions = watch.conditions()
    return report


def _measure(
    takes: Sequence[swarm.Take], decode_ms: float, viewers: int, stalled: int
) -> tuple[Figures, int]:
    """One run, and how many messages its viewers read."""
    flags = ["--engine", "fake", "--fake-decode-ms", f"{decode_ms:g}", "--fake-slots", str(2 * len(takes))]
    flags += ["--endpointing", f"fixed:{SILENCE_MS}"]
    with ExitStack() as stack:
        server = stack.enter_context(served(flags))
        names = [f"stream-{number}" for number in range(len(takes))]
        watching = stack.enter_context(_watched(server.url, names, viewers, stalled)) if viewers else None
        before = Usage.of(server.pid)
        clients = [
            swarm.Client(f"{server.url}?session={name}", [each], delay_s=0.137 * n)
            for n, (name, each) in enumerate(zip(names, takes, strict=True))
        ]
        heards = takes_of(uvloop.run(swarm.run(clients)))
        cores = Usage.of(server.pid).cores_since(before)
        messages = _messages_of(watching, viewers) if watching else 0
    locked = [
        ms for heard in heards for _, ms in accounting.locks(heard, pause_ms=APART_MS) if ms is not None
    ]
    finals = [ms for heard in heards if (ms := accounting.final_ms(heard)) is not None]
    return (percentile(locked, 95) - SILENCE_MS, percentile(finals, 95), cores), messages


def _add_pairs(report: Report, pairs: Sequence[tuple[Figures, Figures]]) -> None:
    for place, case in enumerate(("without viewers", "with viewers")):
        runs = [pair[place] for pair in pairs]
        report.add("finals late by, p95", statistics.median(run[0] for run in runs), "ms", case=case)
        report.add("STOP to final, p95", statistics.median(run[1] for run in runs), "ms", case=case)
        report.add("server CPU", 100 * statistics.median(run[2] for run in runs), "% of a core", case=case)
    report.add(
        "finals late by, with : without",
        statistics.median(w[0] / wo[0] for wo, w in pairs),
        at_most=MOST_RATIO,
    )
    report.add("STOP to final, with : without", statistics.median(w[1] / wo[1] for wo, w in pairs))


# --- the viewers, a process of their own --------------------------------------------------------------------


@contextmanager
def _watched(url: str, names: Sequence[str], viewers: int, stalled: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.viewers", url, str(viewers), str(stalled), *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _messages_of(process: subprocess.Popen[str], viewers: int) -> int:
    """What the viewers read, once the sessions are over. Raises ServerError if not all of them came."""
    told, _ = process.communicate(timeout=60)
    came, messages = map(int, told.split())
    if came != viewers:
        raise ServerError(f"only {came} of {viewers} viewers were let in")
    return messages


async def _view(url: str, came: list[str], *, stalled: bool) -> int:
    """Watch a session to its end, once it can be seen; how many messages came."""
    while True:
        try:
            viewer = await connect(url, compression=None, proxy=None, max_queue=1 if stalled else 16)
            break
        except InvalidStatus:
            await asyncio.sleep(LOOK_S)
    came.append(url)
    messages = 0
    try:
        if stalled:
            viewer.transport.pause_reading()
            await asyncio.Event().wait()
        async for _ in viewer:
            messages += 1
    except ConnectionClosed:
        pass
    return messages


async def _view_all(url: str, viewers: int, stalled: int, names: Sequence[str]) -> tuple[int, int]:
    came: list[str] = []
    tasks = [
        asyncio.create_task(
            _view(f"{url}sessions/{names[number % len(names)]}", came, stalled=number < stalled)
        )
        for number in range(viewers)
    ]
    found = await asyncio.gather(*tasks[stalled:])
    for task in tasks[:stalled]:  # they never leave by themselves
        task.cancel()
    await asyncio.gather(*tasks[:stalled], return_exceptions=True)
    return len(came), sum(found)


if __name__ == "__main__":
    print(*asyncio.run(_view_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))

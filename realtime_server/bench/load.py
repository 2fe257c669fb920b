"""How many clients a server holds: more and more of them speak until its texts or its finals come too late.

The server is any that speaks protocol 1, or one that is started for it. What is measured is defined in accounting.py;
it counts while all clients of a step speak.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Coroutine, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from realtime_server import flags
from realtime_server.bench import climbing, full_load, machine, plot, speech, swarm, talk
from realtime_server.bench.climbing import Climb, Step
from realtime_server.bench.figures import Report, publish
from realtime_server.bench.load_report import report_on
from realtime_server.bench.options import Load
from realtime_server.bench.serving import served
from realtime_server.errors import ConfigurationError

MANY = "100000"  # sessions, unless the flags of the started server say another number
BETWEEN_FILES_MS = 500
BEGINNING = flags.bounded(float, "a number of seconds from 0 to 3600", 0, 3600)
HERE = ("localhost", "127.0.0.1", "::1")
NOTES = (
    "text lag: when a result comes that accounts for more speech than before, its time of receipt less its\n"
    "duration_ms; speech end to locked: with the silence that ends an utterance; words changed: of those shown, the\n"
    "ones that a later result took back or replaced; servers compare only where their partials are equally many",
)
DESCRIPTION = """\
Put more and more clients on a live server, until its texts or its finals come too late. Without --server one is started
for it, with the flags behind --; without --audio the clients speak the fetched demo recording."""
EPILOG = """\
examples
  realtime-server bench                                        # this machine with the CPU recognizer
  realtime-server bench -- --engine fake --vad level           # without a model
  realtime-server bench --server ws://localhost:10095 --clients 1,2,4 --plot load.png

exit codes
  0 the server held at least as many clients as --at-least says   1 it did not   2 wrong arguments"""
UNKNOWN_SERVER = "the server's process is not known: --server-pid names one on this machine"

T = TypeVar("T")


# fmt: off
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    load, add = Load(), parser.add_argument
    add("--server", metavar="URL",
        help="ws://HOST:PORT of a server that runs (default: one is started, with the flags behind --)")
    add("--token", default=os.environ.get(flags.variable("--token")), metavar="TOKEN",
        help=f"that it wants; rather set {flags.variable('--token')}. It must also allow so many connections a minute")
    add("--server-pid", type=flags.count, metavar="PID",
        help="its process, of which CPU and memory are told (default: found, if it is on this machine and yours)")
    add("--load", choices=list(talk.LOADS), default=load.kind,
        help="talk: speech with short pauses; call: one side of a call, silent while the other speaks "
             "(default: %(default)s)")
    add("--audio", type=Path, nargs="+", metavar="FILE",
        help="recorded speech, with little noise (default: the fetched demo recording)")
    add("--clients", type=climbing.counts, metavar="N,...",
        help="at the same time, one number after the other (default: 1, 4, 8, 16 and so on)")
    add("--most", type=flags.count, default=512, metavar="N", help="clients without --clients (default: %(default)s)")
    add("--at-least", type=flags.count, default=1, metavar="N",
        help="clients that must hold for the exit code 0 (default: %(default)s)")
    add("--seconds", type=flags.seconds, default=load.seconds, metavar="S",
        help="of audio per client and step (default: %(default)g)")
    add("--stop-every", type=flags.seconds, default=load.stop_every_s, metavar="S",
        help="of audio, then STOP and START follow the next word (default: %(default)g)")
    add("--stagger", type=BEGINNING, default=load.stagger_s, metavar="S",
        help="the clients of a step begin within (default: %(default)g)")
    add("--pace", type=flags.pace, default=load.pace,
        help="1: as spoken; 0: as fast as the server reads, without bounds (default: %(default)g)")
    add("--pause-ms", type=flags.count, default=load.pause_ms, metavar="MS",
        help="silence after which the server has surely ended an utterance (default: %(default)s)")
    add("--max-lag-ms", type=flags.milliseconds, default=load.lag_ms, metavar="MS",
        help="bound of the text lag, p95 (default: %(default)g)")
    add("--max-stop-ms", type=flags.milliseconds, default=load.stop_ms, metavar="MS",
        help="bound of STOP to final, p95 (default: %(default)g)")
    add("--plot", type=Path, metavar="FILE.png", help="draw the steps; needs matplotlib")
    add("serve_flags", nargs="*", metavar="-- SERVE_FLAG",
        help="of the server to start, such as: -- --engine fake --vad level")
# fmt: on


def main(arguments: argparse.Namespace) -> int:
    """Put more and more clients on a server, until it does not hold them."""
    return publish("load", run(arguments))


def run(arguments: argparse.Namespace) -> Report:
    """Climb; each step's line of JSON is printed as it ends."""
    load, recording = _read_load(arguments), _read_audio(arguments.audio)
    if arguments.plot and (reason := plot.why_not()):
        print(reason, flush=True)
    watch = machine.Watch() if machine.LINUX else None
    report = _climb_on_any(arguments, load, recording)
    # A server that was started here has ended: it does not count as others.
    report.conditions = watch.conditions() if watch else {}
    return report


def measure(
    load: Load, title: str, takes: Sequence[Sequence[swarm.Take]], url: str, pid: int | None,
    token: str | None = None,
) -> Report:  # fmt: skip
    """Let clients speak, one for each sequence of takes."""
    stagger_s = load.stagger_s if load.paced else 0.0
    clients = [
        swarm.Client(url, each, delay_s=delay_s, pace=load.pace, token=token)
        for each, delay_s in zip(takes, full_load.starts(len(takes), stagger_s), strict=True)
    ]
    outcome = _on_a_loop(full_load.run(clients, pid, load.pace))
    return report_on(load, title, takes, outcome)


def takes_of(load: Load, recording: speech.Recording, clients: int) -> list[list[swarm.Take]]:
    """What each client says; from some number on they say what others say, too.

    Raises ConfigurationError if there is a client that would say nothing.
    """
    streams = talk.LOADS[load.kind](recording, round(1000 * load.seconds))
    different = [
        [swarm.take(part) for part in talk.divide(stream, round(1000 * load.stop_every_s))]
        for stream in islice(streams, clients)
    ]
    if not all(different):
        raise ConfigurationError(f"--seconds {load.seconds:g} are too few: a client would say nothing")
    return [different[n % len(different)] for n in range(clients)]


def _read_load(arguments: argparse.Namespace) -> Load:
    if arguments.server and arguments.serve_flags:
        raise ConfigurationError("--server names a server that runs: it cannot be given flags")
    if arguments.at_least > max(arguments.clients or [arguments.most]):
        raise ConfigurationError(f"--at-least {arguments.at_least}: so many clients are not tried")
    return Load(
        kind=arguments.load, seconds=arguments.seconds, stop_every_s=arguments.stop_every,
        stagger_s=arguments.stagger, pace=arguments.pace, pause_ms=arguments.pause_ms,
        lag_ms=arguments.max_lag_ms, stop_ms=arguments.max_stop_ms,
    )  # fmt: skip


def _read_audio(paths: Sequence[Path] | None) -> speech.Recording:
    if not paths:
        return speech.reading()
    files = (each for path in paths for each in (speech.load(path), speech.quiet(BETWEEN_FILES_MS)))
    recording = speech.join(files)
    if not recording.spells:
        raise ConfigurationError(f"no speech is heard in {', '.join(map(str, paths))}")
    return recording


def _climb_on_any(arguments: argparse.Namespace, load: Load, recording: speech.Recording) -> Climb:
    """On the server that runs, or on one that is started."""
    if arguments.server:
        url = swarm.read_url(arguments.server)
        pid = arguments.server_pid or (machine.listener(url.port) if url.host in HERE else None)
        return _climb(arguments, load, recording, arguments.server, pid)
    with served(["--max-sessions", MANY, *arguments.serve_flags]) as server:
        report = _climb(arguments, load, recording, server.url, server.pid if machine.LINUX else None)
        report.notes += server.troubles()
    return report


def _climb(
    arguments: argparse.Namespace, load: Load, recording: speech.Recording, url: str, pid: int | None
) -> Climb:  # fmt: skip
    where = url if arguments.server else " ".join(["serve", *arguments.serve_flags])
    title, steps = f"{load.title}; {where}", []

    def measure_step(clients: int) -> Report:
        return measure(load, title, takes_of(load, recording, clients), url, pid, arguments.token)

    for step in climbing.climb(arguments.clients or climbing.doubling(arguments.most), measure_step):
        print(step.report.json_line(), flush=True)
        steps.append(step)
    summary = climbing.summarize(steps, title, arguments.at_least)
    summary.notes += [*([] if pid else [UNKNOWN_SERVER]), *NOTES, *_drawn(arguments.plot, steps, title)]
    return summary


def _drawn(path: Path | None, steps: Sequence[Step], title: str) -> list[str]:
    if path is None:
        return []
    if reason := plot.why_not():
        return [reason]
    plot.draw(path, steps, title)
    return [f"plot: {path}"]


def _on_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it exists, so that a client costs little."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)

"""python -m benchmarks [NAME...]: measure on this machine; exit code 1 if a bound is missed."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol

from realtime_server.bench import machine
from realtime_server.bench.figures import MISSED, Report, publish
from realtime_server.errors import RealtimeServerError

BENCHMARKS = {
    "vad": "CPU of voice activity detection",
    "cost": "CPU of each part of the service, per second of audio",
    "long": "two hours of audio through one session: flat memory, flat cost",
    "streams": "120 live streams through a real server with the fake engine",
    "idle": "1000 live sessions in which nobody speaks",
    "offline": "whole recordings: speed, errors, beside CTranslate2 alone",
    "memory": "of a server to which two hours of audio are posted",
    "files": "live sessions and /health while recordings are transcribed",
    "viewers": "what 50 viewers, 5 of them stalled, cost those who speak",
    "speakers": "what telling speakers apart costs recognition",
    "diarization": "who spoke: conversations, one speaker alone, real recordings",
    "embedded": "one, two and six speakers through a real server with the CPU recognizer",
    "formats": "one recording in every format of protocol 2 (only when it is named)",
    "stability": "what partials take back, and what sentences make of them (only when it is named)",
    "languages": "in which language sentences begin, and how late (only when it is named)",
    "load": "how many clients a server holds: one that runs, or one started for it (only when it is named)",
}
ON_REQUEST = ("load", "stability", "languages", "formats")  # takes as long as the server holds


class Benchmark(Protocol):
    """What each module here provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its flags."""

    def run(self, arguments: argparse.Namespace) -> Report:
        """Measure."""


def main(argv: Sequence[str]) -> int:
    """Run benchmarks; return 0 if all bounds are kept, 1 if not, 2 for wrong arguments."""
    names = list(takewhile(lambda word: not word.startswith("-"), argv))
    flags = argv[len(names) :]
    if len(names) != 1:
        _overview().parse_args([*names, *flags])
        return _run_each(names or [name for name in BENCHMARKS if name not in ON_REQUEST])
    _overview().parse_args(names)
    return run_one(names[0], importlib.import_module(f"benchmarks.{names[0]}"), flags)


def _overview() -> argparse.ArgumentParser:
    rows = "\n".join(f"  {name:13}{about}" for name, about in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"benchmarks:\n{rows}\n\npython -m benchmarks NAME -h shows the flags of one",
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[*BENCHMARKS, []], help="default: all but load"
    )
    return parser


def run_one(name: str, benchmark: Benchmark, flags: Sequence[str]) -> int:
    """Run one benchmark with its flags; print its report and the bounds it missed; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=BENCHMARKS.get(name))
    benchmark.add_arguments(parser)
    try:
        report = benchmark.run(parser.parse_args(flags))
    except RealtimeServerError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return publish(name, report)


def _run_each(names: Sequence[str]) -> int:
    """Run every benchmark in a process of its own: what one leaves behind would be the next one's cost."""
    print(f"{machine.describe()}, Python {sys.version.split()[0]}\n", flush=True)
    missed: list[str] = []
    for name in names:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks", name], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        found = [line for line in process.stdout if not print(line, end="", flush=True)]
        named = [line.strip() for line in found if line.startswith(MISSED)]
        failed = process.wait() != 0
        missed += named or [f"{MISSED}{name}: it did not run"] * failed
        print(flush=True)
    print("\n".join(missed) or "every bound is kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Fun-ASR-Nano on a GPU: throughput and latency of the whole engine, its encoder's precision, slower ways beside it.

    python -m benchmarks.gpu                     on a GPU; about five minutes
    python -m benchmarks.gpu --tiny              on a CPU, small shapes: shows that it runs, its times mean nothing
    python -m benchmarks.gpu --parts service     one part; the parts are encoder, service, trained, torch, reference
    python -m benchmarks.gpu --parts live        only when named: live, versus, sdk, selfcheck

The checkpoint has the official form and the real shapes; its weights are random and its audio is noise, so that its
figures say nothing about accuracy. Every answer is made to have the same number of tokens. Only the part `trained`
runs on weights that were trained, the tests' tiny ones, and on speech: it says what bfloat16 does to texts. It needs
espeak-ng, or with --utterances a file that `python -m scripts.held_out` wrote where that is. The part `reference`
needs PyPI funasr; where its packages do not go with vLLM's, --reference-site names a folder that has them. A part that
takes much longer than it should is given up. Exit code 1 if a bound is missed or a part failed.

`live` climbs with paced streams on the live server, `versus` compares it with FunASR's own server, `sdk` runs a program
of one's own, `selfcheck` the tests that need a GPU. They start servers of their own: run them alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from benchmarks.gpu.bench import TINY, Bench, LiveInputs, Scale
from realtime_server.bench import climbing
from realtime_server.bench.figures import Report
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.vllm_setup import set_environment
from realtime_server.weights import cache_folder

AGAIN_S = 20.0  # until a part that went on although its time was over is interrupted again

logger = logging.getLogger("benchmarks.gpu")


class Measurable(Protocol):
    """What gives a report."""

    def measure(self, bench: Bench) -> Report:
        """Measure."""


@dataclass(frozen=True, slots=True)
class Part:
    """module: below benchmarks.gpu, has `measure`.  limit_s: after that it is given up.  random: uses those weights."""

    module: str
    limit_s: float
    random: bool = True

    def measure(self, bench: Bench) -> Report:
        """Import it and run it; TimeoutError if it takes too long."""
        with limited(self.limit_s):
            report: Report = import_module(f"benchmarks.gpu.{self.module}").measure(bench)
        return report


PARTS = {  # in the order in which they are run
    "encoder": Part("encoder", 120),
    "service": Part("service", 360),
    "live": Part("live", 3600),
    "versus": Part("versus", 3600),
    "trained": Part("trained", 150, random=False),
    "torch": Part("with_transformers", 120),
    "reference": Part("with_funasr", 150),
    "sdk": Part("sdk", 270),
    "selfcheck": Part("selfcheck", 220, random=False),
}
LIVE = frozenset({"live", "versus", "sdk"})  # need speech, and run only when they are named
USUAL = [name for name in PARTS if name not in LIVE | {"selfcheck"}]


def main(argv: list[str] | None = None) -> int:
    """Measure and print; see the module."""
    began_s = time.monotonic()
    arguments = _arguments(argv)
    device = "cpu" if arguments.tiny else "cuda"
    set_environment(device)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parts = {name: part for name, part in PARTS.items() if name in arguments.parts}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started must be ended, too
    with tempfile.TemporaryDirectory(prefix="gpu-benchmark-") as place:
        live = _live(arguments, Path(place), read=not LIVE.isdisjoint(parts))
        os.environ["REALTIME_SERVER_CACHE"] = str(Path(place) / "cache")
        folder = Path(place) / "Fun-ASR-Nano-random"
        if any(part.random for part in parts.values()):
            _write(folder, device, tiny=arguments.tiny)
        scale = TINY if arguments.tiny else Scale()
        options = NanoOptions(
            model=str(folder), device=device, longest_s=scale.longest_s,
            max_model_len=512 if arguments.tiny else 4096,
            tensor_parallel_size=arguments.tensor_parallel_size,
        )  # fmt: skip
        bench = Bench(
            scale, options, arguments.tiny, arguments.utterances, arguments.reference_site, live,
            began_s + arguments.within, arguments.log,
        )  # fmt: skip
        return run(parts, bench)


def _live(arguments: argparse.Namespace, place: Path, *, read: bool) -> LiveInputs:
    """What the parts with a server need, of the fetched files where nothing else is named."""
    speech = arguments.speech or place / "speech.npz"
    if read and arguments.speech is None:
        from benchmarks.gpu.live_clients import save_speech

        save_speech(speech)
    vad_model = arguments.vad_model or cache_folder() / "fsmn-vad"
    return LiveInputs(
        speech.absolute(), vad_model.absolute(), tuple(arguments.streams), arguments.vad_workers
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tiny", action="store_true", help="small shapes on the CPU")
    add("--parts", nargs="+", choices=PARTS, default=USUAL, metavar="PART")
    add("--tensor-parallel-size", type=int, default=1, metavar="GPUS", help="of the service's language model")
    add("--utterances", type=Path, metavar="FILE", help="for the part `trained`, instead of espeak-ng")
    add("--reference-site", type=Path, metavar="FOLDER", help="has funasr, looked at for that part only")
    add("--speech", type=Path, metavar="FILE", help="for the live parts, instead of the fetched recording")
    add("--vad-model", type=Path, metavar="FOLDER", help="for the live parts, instead of the fetched one")
    add(
        "--streams",
        type=climbing.counts,
        default=[],
        metavar="N,...",
        help="of the live parts, the first one first",
    )
    add("--vad-workers", type=int, default=4, metavar="N", help="of the part `live`, processes (default: 4)")
    add(
        "--within",
        type=float,
        default=3600.0,
        metavar="S",
        help="the live parts begin nothing too late for that",
    )
    add("--log", type=Path, metavar="FILE", help="that the lines of JSON are added to, as they come")
    return parser.parse_args(argv)


def run(parts: Mapping[str, Measurable], bench: Bench) -> int:
    """Measure the parts, each whatever became of the others; return the exit code."""
    failed = False
    for name, part in parts.items():
        logger.info("%s begins", name)
        began_s = time.monotonic()
        try:
            report = part.measure(bench)
        except Exception:  # whatever a part raises: the time on a GPU is dear, and the others can be measured
            traceback.print_exc()
            print(f"{name} failed after {time.monotonic() - began_s:.0f} s", flush=True)
            failed = True
            continue
        finally:
            _forget(bench.device)
        logger.info("%s took %.0f s", name, time.monotonic() - began_s)
        print(report.table(), flush=True)
        bench.tell(report)
        for figure in report.missed:
            print(f"missed: {figure}", flush=True)
            failed = True
    return 1 if failed else 0


class _Expired(KeyboardInterrupt):
    """A part's time is over: what stops an event loop, and nobody's `except Exception` takes."""


@contextmanager
def limited(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError from the block when its time is over, having printed what every thread is at."""

    def expire(*_: object) -> None:
        raise _Expired

    before = signal.signal(signal.SIGALRM, expire)
    faulthandler.dump_traceback_later(limit_s)
    signal.setitimer(signal.ITIMER_REAL, limit_s + 0.1, AGAIN_S)
    try:
        yield
    except _Expired:
        raise TimeoutError(f"given up after {limit_s:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _write(folder: Path, device: str, *, tiny: bool) -> None:
    from benchmarks.gpu.checkpoint import write_folder

    began_s = time.monotonic()
    write_folder(folder, tiny=tiny, device=device)
    logger.info("the checkpoint is written after %.1f s", time.monotonic() - began_s)


def _forget(device: str) -> None:
    """Give the memory of what is no longer used back to the GPU."""
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())

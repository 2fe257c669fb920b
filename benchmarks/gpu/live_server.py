"""The live server with random weights and scripted texts, in a process of its own, as `realtime-server serve` is one.

    python -m benchmarks.gpu.live_server [--vad-workers N] [--interval-ms MS] -- SERVE_FLAG...

One engine serves two ports, of which one is used at a time: `front` scores voice activity in this process, `workers`,
where the flag is given, in N others. A line tells each address when it can be used.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from realtime_server import config, flags
from realtime_server.config import ServeConfig

FRONT, WORKERS = "front", "workers"
LISTENING = "listening"  # begins what a line says, then name and address
PAGE = "static/client_mic.html"

logger = logging.getLogger("benchmarks.gpu.live_server")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    settings = read(argv)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    import uvloop

    uvloop.run(_serve(settings))
    return 0


def read(argv: Sequence[str] | None) -> dict[str, ServeConfig]:
    """The settings of each port, by its name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.live_server", description=__doc__)
    parser.add_argument("--vad-workers", type=flags.count, metavar="N")
    parser.add_argument("--interval-ms", type=flags.count, metavar="MS", help="between partials, of audio")
    parser.add_argument("serve_flags", nargs="*", metavar="-- SERVE_FLAG")
    arguments = parser.parse_args(argv)
    given: list[str] = [*arguments.serve_flags, "--engine", "funasr-nano", "--port", "0"]
    ways = {FRONT: given}
    if arguments.vad_workers:
        ways[WORKERS] = [*given, "--vad-workers", str(arguments.vad_workers)]
    serve = argparse.ArgumentParser()
    flags.add_arguments(serve)
    settings = {name: config.read_arguments(serve.parse_args(way)) for name, way in ways.items()}
    if arguments.interval_ms is None:
        return settings
    return {name: _paced(each, arguments.interval_ms) for name, each in settings.items()}


def _paced(settings: ServeConfig, interval_ms: int) -> ServeConfig:
    pace = replace(settings.session.pace, interval_ms=interval_ms)
    return replace(settings, session=replace(settings.session, pace=pace))


async def _serve(settings: Mapping[str, ServeConfig]) -> None:
    from benchmarks.gpu.scripted import ScriptedEngine
    from realtime_server.engines.loading import load_scorer
    from realtime_server.engines.vllm_engine import load
    from realtime_server.realtime.server import RealtimeServer
    from realtime_server.resources import find_resource

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    scorers = {name: load_scorer(each.engine, each.vad) for name, each in settings.items()}
    engine = ScriptedEngine(load(settings[FRONT].engine.nano))
    servers = []
    try:
        await engine.warmup()
        for name, each in settings.items():
            server = RealtimeServer(
                engine, scorers[name], each.session, each.server,
                page=find_resource(PAGE), description={"place": name}, clocks=each.clocks,
            )  # fmt: skip
            logger.info("%s %s ws://127.0.0.1:%d/", LISTENING, name, await server.start())
            servers.append(server)
        await stop.wait()
    finally:
        await asyncio.gather(*(server.stop() for server in servers))
        await asyncio.gather(engine.aclose(), *(scorer.aclose() for scorer in scorers.values()))
    logger.info("stopped")


if __name__ == "__main__":
    sys.exit(main())

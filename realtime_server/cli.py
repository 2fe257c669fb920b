"""The command `realtime-server`: serve, transcribe, demo, models, bench."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import realtime_server
from realtime_server import (
    __version__,
    cli_models,
    cli_transcribe,
    config,
    demo,
    descriptors,
    ending,
    flags,
    memory,
)
from realtime_server.bench import load
from realtime_server.config_doors import Doors
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.engines.loading import (
    AbsentEmbedder,
    load_embedder_if_possible,
    load_engine,
    load_scorer,
    model_names,
)
from realtime_server.errors import ConfigurationError, EngineError, RealtimeServerError
from realtime_server.offline.audio_source import check_temporary_folder
from realtime_server.realtime.server import DIED, RealtimeServer
from realtime_server.resources import find_resource, pip_install

if TYPE_CHECKING:  # imported only when it is asked for
    from realtime_server.http.serving import HttpServer

logger = logging.getLogger(__name__)

PAGE = "static/client_mic.html"
EVERYWHERE = ("0.0.0.0", "::", "")
HTTP_PACKAGES, FILE_PACKAGES = ("fastapi", "uvicorn", "python_multipart"), ("soundfile", "soxr", "av")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0 done, 1 failed or died, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="realtime-server", description=realtime_server.__doc__)
    parser.add_argument("--version", action="version", version=f"realtime-server {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve live sessions and the page", description=_serve.__doc__)
    flags.add_arguments(serve)
    serve.set_defaults(run=_serve)
    demonstrate = commands.add_parser(
        "demo", help="hear it work: fetch, serve, stream a recording, print the text"
    )
    demo.add_arguments(demonstrate)
    demonstrate.set_defaults(run=demo.run)
    transcribe = commands.add_parser("transcribe", help="turn recordings into text, subtitles or JSON")
    cli_transcribe.add_arguments(transcribe)
    transcribe.set_defaults(run=cli_transcribe.run)
    models = commands.add_parser("models", help="list, fetch and verify the weights and the demo recording")
    cli_models.add_arguments(models)
    models.set_defaults(run=cli_models.run)
    bench = commands.add_parser(
        "bench", help="put more and more clients on a live server, until it does not hold"
    )
    bench.formatter_class = argparse.RawDescriptionHelpFormatter
    bench.description, bench.epilog = load.DESCRIPTION, load.EPILOG
    load.add_arguments(bench)
    bench.set_defaults(run=load.main)
    arguments = parser.parse_args(argv)
    memory.share_heaps()
    try:
        if arguments.run is not _serve:  # which listens for it
            ending.let_hangup_in()
        if arguments.run not in (_serve, cli_transcribe.run):  # these let signals in when they listen
            ending.let_signals_in()
        code: int = arguments.run(arguments)
    except RealtimeServerError as error:
        return ending.tell(error)
    except KeyboardInterrupt:
        return 130
    return code


def _serve(arguments: argparse.Namespace) -> int:
    """Serve live speech recognition over a WebSocket, with the page and health checks on the same port."""
    with ending.at_once_on_signals(code=0):  # until it serves there is nothing to do before the end
        _load_and_serve(arguments)
    return 0


def _load_and_serve(arguments: argparse.Namespace) -> None:
    settings = config.read_arguments(arguments)
    config.check_address(settings.server.host, settings.server.port)  # known before the models are loaded
    if settings.http:
        config.check_address(settings.http.host, settings.http.port, "--http-port or --host")
        _check_files_service()
    logging.basicConfig(
        level=settings.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    descriptors.raise_limit()
    doors = Doors(settings.doors)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: doors.reload())  # it may come while a model is loaded
        ending.let_hangup_in()
    logger.info("loading the recognizer '%s'", settings.engine.engine)
    scorer = load_scorer(settings.engine, settings.vad)
    embedder = load_embedder_if_possible(settings.speaker, settings.speakers) if settings.speakers else None
    # Last: it may hold a GPU, and is closed from here on whatever happens.
    engine = load_engine(settings.engine)
    _run(_serve_until_signal(settings, doors, engine, scorer, embedder))


async def _serve_until_signal(
    settings: config.ServeConfig, doors: Doors, engine: Engine, scorer: Scorer, embedder: Embedder | None
) -> None:
    """Serve, then close what serves, in bounded time; the process ends here if that hangs."""
    stop = asyncio.Event()
    _listen_for_signals(stop)
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, doors.reload)
    try:
        settings = config.fit_engine(settings, engine.capabilities)
        warm, telling = await _warm_up_speakers(embedder, stop) if embedder else (True, None)
        if warm and await _warm_up(engine, stop):
            memory.give_back()
            await _listen(settings, doors, engine, scorer, telling, stop)
    finally:
        parts: dict[str, ending.Closable] = {"recognizer": engine, "voice activity detection": scorer}
        if embedder:
            parts["speaker network"] = embedder
        if not await ending.close_all(parts):
            error = sys.exception()
            ending.end_process(ending.tell(error) if error else 0)
    logger.info("stopped")


def _listen_for_signals(stop: asyncio.Event) -> None:
    """The first signal sets `stop`; the next ends the process at once, as if nobody had listened for it."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)

    def begin() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, lambda number, _: ending.end_process(128 + number))

    for number in numbers:
        loop.add_signal_handler(number, begin)


async def _warm_up_speakers(embedder: Embedder, stop: asyncio.Event) -> tuple[bool, Embedder]:
    """The same, and what tells speakers apart: a failure costs the sessions their speakers and nothing else."""
    try:
        return await _warm_up(embedder, stop), embedder
    except EngineError as error:
        logger.error("serving without speakers: %s", error)
        return True, AbsentEmbedder(str(error))


async def _warm_up(engine: Engine | Embedder, stop: asyncio.Event) -> bool:
    """Warm up unless told to stop meanwhile; True if the engine is ready."""
    stopping, warming = asyncio.create_task(stop.wait()), asyncio.create_task(engine.warmup())
    await asyncio.wait((stopping, warming), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if warming.done():
        await warming
        return not stop.is_set()
    warming.cancel()
    await asyncio.wait((warming,))
    return False


async def _listen(
    settings: config.ServeConfig,
    doors: Doors,
    engine: Engine,
    scorer: Scorer,
    embedder: Embedder | None,
    stop: asyncio.Event,
) -> None:
    description = {
        "engine": settings.engine.engine,
        "endpointing": settings.endpointing,
        "speakers": "unavailable" if isinstance(embedder, AbsentEmbedder) else settings.speakers or "off",
    }
    server = RealtimeServer(
        engine, scorer, settings.session, settings.server,
        page=find_resource(PAGE), description=description, clocks=settings.clocks,
        embedder=embedder, door=doors.door, tls=doors.tls.context if doors.tls else None,
    )  # fmt: skip
    port = await server.start()
    host, s = _to_open(settings.server.host), "s" if server.tls else ""
    files = await _listen_for_files(settings, scorer, embedder, server, port)
    page, address = f"http{s}://{host}:{port}/", f"ws{s}://{host}:{port}/"
    other = "" if settings.server.host not in EVERYWHERE else ", for other machines with this one's name"
    logger.info("ready: the page is at %s%s, clients connect to %s", page, other, address)
    died = await _until_stopped(server, stop)
    if died:
        logger.error("%s: ending the sessions, then this process", DIED)
    logger.info("stopping: sessions that wait for their finals: %d", len(server.hub.sessions))
    async with asyncio.TaskGroup() as stopping:
        stopping.create_task(server.stop())
        if files:
            stopping.create_task(files.stop())
    if died:
        raise EngineError(f"{DIED}; only a new process helps")


def _to_open(host: str) -> str:
    """The host of an address that can be opened on this machine: 0.0.0.0 cannot."""
    host = "localhost" if host in EVERYWHERE else host
    return f"[{host}]" if ":" in host else host


async def _listen_for_files(
    settings: config.ServeConfig, scorer: Scorer, embedder: Embedder | None, server: RealtimeServer,
    live_port: int,
) -> HttpServer | None:  # fmt: skip
    """Take recordings over HTTP, if that is asked for, on the same engine and in the same event loop."""
    if not settings.http:
        return None
    from realtime_server.http.app import LiveService
    from realtime_server.http.serving import build
    from realtime_server.http.taps import Taps

    live = LiveService(
        port=live_port, page=find_resource(PAGE), state=server.state, why_not_ready=server.why_not_ready,
        busy=lambda: bool(server.hub.sessions), metrics=server.metrics, gallery=server.gallery,
        reception=server.reception, tls=server.tls, taps=Taps(server, settings.calls),
    )  # fmt: skip
    names = model_names(settings.engine)
    files = build(server.dispatcher, scorer, embedder, settings.session, settings.http, live, names)
    port = await files.start()
    scheme = "https" if live.tls else "http"
    host = _to_open(settings.http.host)
    logger.info("recordings are taken at %s://%s:%d/, which /docs explains", scheme, host, port)
    return files


def _check_files_service() -> None:
    """Raise ConfigurationError if something is missing of what takes recordings over HTTP."""
    for extra, packages in (("http", HTTP_PACKAGES), ("files", FILE_PACKAGES)):
        absent = [package for package in packages if not find_spec(package)]
        if absent:
            words = f"--http-port: the package '{absent[0]}' is not installed"
            raise ConfigurationError(f"{words}; run: {pip_install(extra)}")
    check_temporary_folder()


async def _until_stopped(server: RealtimeServer, stop: asyncio.Event) -> bool:
    """Wait for a signal; True if the recognizer died instead."""
    watching = asyncio.create_task(server.wait_died())
    watching.add_done_callback(lambda _: stop.set())
    counting = asyncio.create_task(descriptors.watch())
    await stop.wait()
    died = watching.done()
    watching.cancel()
    counting.cancel()
    return died


def _run(main: Coroutine[None, None, None]) -> None:
    """Run on uvloop where it exists."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)

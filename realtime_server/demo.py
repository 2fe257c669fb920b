"""`realtime-server demo`: fetch what is needed, serve, stream a recording, print the text; each step is told.

The server is a process of its own, started as a user would start it, and the client is the one in clients/:
what works here works by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, Any

from realtime_server import config, flags, weights
from realtime_server.engines.loading import ENGINES
from realtime_server.errors import ConfigurationError, RealtimeServerError
from realtime_server.resources import command, find_resource

HOST = "127.0.0.1"
DOORS = (
    flags.variable("--token"),
    flags.variable("--token-file"),
)  # of another server: nobody else reaches this one
READY_S = 180.0  # for the server to load its models
STOP_S = 40.0  # for it to stop
NEEDS: dict[str, list[str]] = {"embedded": ["embedded"], "fake": []}  # other recognizers fetch their own
RECORDING = "two_cities.wav"
TEXT = """
It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness,
it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the season of
darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we had nothing
before us, we were all going direct to heaven, we were all going direct the other way. In short, the period was
so far like the present period that some of its noisiest authorities insisted on its being received, for good or
for evil, in the superlative degree of comparison only.
"""  # read in RECORDING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `demo`."""
    parser.add_argument("--file", type=Path, help="stream this recording (default: 44 s of Dickens, fetched)")
    parser.add_argument("--port", type=flags.port, default=0, help="of the server (default: a free one)")
    engines = sorted(ENGINES)
    parser.add_argument(
        "--engine", choices=engines, default="embedded", help="as for serve (default: %(default)s)"
    )
    parser.add_argument("--pace", type=flags.pace, default=1.0, help="1: as spoken, 0: as fast as it goes")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if the final text arrived, is not empty, and the server stopped without an error."""
    _on_signals(signal.default_int_handler)  # both raise KeyboardInterrupt, and `with` ends the server
    client, port = load_client(), config.check_address(HOST, arguments.port, flags="--port")
    recording = _fetch(arguments.engine, arguments.file)
    _say(f"2/4 Starting the server with the recognizer '{arguments.engine}' on port {port}")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        with _server(arguments.engine, port, log) as process:
            _wait_until_ready(process, port, log)
            _say(f"3/4 Streaming {recording} (pace {arguments.pace:g})")
            text = _stream(client, f"ws://{HOST}:{port}", recording, arguments.pace)
            _say("4/4 Stopping the server")
        if process.returncode != 0:
            raise RealtimeServerError(_last_words(process, log))
    if text is None:
        return 1
    _report(text, arguments)
    return 0 if text else 1


def load_client() -> Any:
    """Import clients/client_python.py, which stands alone, from the checkout or the wheel."""
    spec = importlib.util.spec_from_file_location("client_python", find_resource("clients/client_python.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve_flags(engine: str) -> list[str]:
    """The flags of `serve` for this recognizer that need nothing but what was fetched for it."""
    return ["--engine", engine, *(["--vad", "level"] if engine == "fake" else [])]


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.findall(r"[\w']+", text.lower())


def count_errors(said: str, heard: str) -> int:
    """Count the words to change, remove or add to get from one text to the other."""
    above: Sequence[int] = range(len(words_of(heard)) + 1)
    for row, word in enumerate(words_of(said), start=1):
        line = [row]
        for column, other in enumerate(words_of(heard)):
            line.append(min(above[column] + (word != other), above[column + 1] + 1, line[column] + 1))
        above = line
    return above[-1]


def _say(text: str) -> None:
    print(text, flush=True)


def _on_signals(handler: Callable[..., object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _fetch(engine: str, file: Path | None) -> Path:
    """Fetch what this demo lacks and return the recording."""
    if file is not None and not file.is_file():
        raise ConfigurationError(f"--file {file}: there is no such file")
    groups = [*NEEDS.get(engine, ["fsmn-vad"]), *(["demo"] if file is None else [])]
    _say(f"1/4 Fetching and checking: {' and '.join(groups) or 'nothing to do'}")
    weights.fetch(groups)
    return file or weights.find("recordings") / RECORDING


@contextmanager
def _server(engine: str, port: int, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `realtime-server serve`, and stop it as a service manager would."""
    serve = [sys.executable, "-m", "realtime_server", "serve", *serve_flags(engine)]
    serve += ["--host", HOST, "--port", str(port)]
    interrupts: list[int] = []
    _on_signals(lambda number, _: interrupts.append(number))  # raised in Popen, they would orphan the server
    # Out of reach of the terminal's Ctrl-C, which is for the client: it still wants its final text.
    quiet = subprocess.DEVNULL
    others = {name: value for name, value in os.environ.items() if name not in DOORS}
    process = subprocess.Popen(serve, stdin=quiet, stdout=log, stderr=log, start_new_session=True, env=others)
    try:
        _on_signals(signal.default_int_handler)
        if interrupts:
            raise KeyboardInterrupt
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: IO[str]) -> None:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError, HTTPException), closing(HTTPConnection(HOST, port, timeout=5)) as connection:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise RealtimeServerError(_last_words(process, log))


def _last_words(process: subprocess.Popen[bytes], log: IO[str]) -> str:
    log.seek(0)
    how = "is not ready in time" if process.poll() is None else f"ended with code {process.returncode}"
    return f"the server {how}. It said:\n{log.read()[-4000:]}"


def _stream(client: Any, address: str, recording: Path, pace: float) -> str | None:
    """Stream as the client's command line does; return the final text, or say why there is none."""
    options = client.Options(server=address, file=recording, pace=pace)
    try:
        sentences = asyncio.run(client.transcribe(options, client.Display(sys.stdout, sys.stderr)))
        return str(client.printable(" ".join(sentence.text for sentence in sentences)))
    except client.ClientError as error:
        print(error, file=sys.stderr)
        return None
    finally:
        _on_signals(signal.default_int_handler)


def _report(text: str, arguments: argparse.Namespace) -> None:
    _say(f"\nThe whole transcript:\n\n{text}\n")
    if arguments.file is None:
        words, errors = len(words_of(TEXT)), count_errors(TEXT, text)
        _say(f"Of the {words} words of the reading, {errors} are wrong, missing or added.\n")
    _say("To talk to it yourself, start the server and open http://localhost:10095/ in a browser:")
    _say(f"\n    {command('serve', *serve_flags(arguments.engine))}")

"""`realtime-server serve`: its flags, and the options they become. Defaults live in the options classes.

A number is held against its bounds as it is parsed, so that the error names the flag and quotes what was given.
The options classes check again, in the words of their fields: those are for programs that build a server.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from realtime_server.core.endpointing import EndpointingOptions, SilenceSchedule
from realtime_server.core.endpointing_options import SHORTEST_CAP_MS
from realtime_server.core.jobs import Capabilities, DecodingOptions
from realtime_server.core.languages import code_of
from realtime_server.core.messages import split_words
from realtime_server.core.postprocess import neutralise
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.engines.loading import ENGINES, EngineOptions
from realtime_server.engines.nano_options import DEVICES, HUBS, NanoOptions
from realtime_server.errors import ConfigurationError, ProtocolError
from realtime_server.realtime.server import ServerOptions
from realtime_server.realtime.session import Clocks
from realtime_server.resources import command

EPILOG = """\
examples:
  {serve}                              # the CPU recognizer, the page at http://127.0.0.1:10095/
  {serve} --endpointing fixed:600      # lock a sentence after every pause of 0.6 s
  {serve} --language zh --hotword-file hotword_list.txt
  {serve} --engine fake --vad level    # no model at all: try clients and load

endpointing decides when a sentence is locked:
  dynamic       2 s of silence after a short sentence, less the longer it grows (the default)
  dynamic:5000:2000,15000:800,inf:300   the same with your own LENGTH_MS:SILENCE_MS rows
  fixed:600     always after 600 ms
  client        only when the client sends COMMIT (or STOP), and after 30 s
"""

Number = TypeVar("Number", int, float)


def bounded(kind: Callable[[str], Number], what: str, least: float, most: float) -> Callable[[str], Number]:
    """Make an argparse type for numbers from `least` to `most`; argparse puts the flag before its errors."""

    def read(text: str) -> Number:
        with suppress(ValueError):
            value = kind(text)
            if least <= value <= most:  # not so for nan
                return value
        raise argparse.ArgumentTypeError(f"expected {what}, not {text}")

    return read


ABOVE_ZERO = math.ulp(0.0)  # the least number that is
count = bounded(int, "a whole number above zero", 1, math.inf)
seconds = bounded(float, "a number of seconds above zero, at most a billion", ABOVE_ZERO, 1e9)
segment_seconds = bounded(float, "a number of seconds from 1 to 60", SHORTEST_CAP_MS / 1000, 60)
milliseconds = bounded(float, "a number of milliseconds from 0 to a billion", 0, 1e9)
share = bounded(float, "a share, above 0 and at most 1", ABOVE_ZERO, 1)
port = bounded(int, "a whole number from 0 to 65535", 0, 65_535)
pace = bounded(float, "a number from 0 to 1000", 0, 1000)


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Everything `serve` needs."""

    engine: EngineOptions
    vad: str
    session: SessionSettings
    server: ServerOptions
    clocks: Clocks
    endpointing: str  # as given, for /health
    log_level: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `serve`."""
    limits, server, clocks, nano = Limits(), ServerOptions(), Clocks(), NanoOptions()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG.format(serve=command("serve"))
    parser.usage = "%(prog)s [--FLAG [VALUE]]...  (--help lists the flags)"  # all of them would hide an error
    add = parser.add_argument_group("recognizer").add_argument
    add(
        "--engine",
        choices=sorted(ENGINES),
        default="embedded",
        help="embedded: whisper-base on the CPU; funasr-nano: Fun-ASR-Nano in vLLM; funasr-nano-torch: the same, slow, "
        "without vLLM; fake: counts half seconds (default: embedded)",
    )
    add(
        "--model",
        metavar="DIR|NAME",
        help="folder with the recognizer's weights, or for funasr-nano their name at the hub (default: the fetched "
        f"ones; {nano.model})",
    )
    add(
        "--hub",
        choices=HUBS,
        default=nano.hub,
        help="where funasr-nano is fetched: ms ModelScope, hf Hugging Face (default: %(default)s)",
    )
    add("--device", choices=DEVICES, default=nano.device, help="of funasr-nano (default: %(default)s)")
    add("--dtype", default=nano.dtype, help="of funasr-nano: auto, bfloat16, float32 (default: %(default)s)")
    add(
        "--tensor-parallel-size",
        type=count,
        default=nano.tensor_parallel_size,
        metavar="N",
        help="GPUs that funasr-nano's language model is spread over (default: %(default)s)",
    )
    add(
        "--gpu-memory-utilization",
        type=share,
        default=nano.gpu_memory_utilization,
        metavar="SHARE",
        help="of the GPU's memory, for funasr-nano's language model (default: %(default)s)",
    )
    add(
        "--max-model-len",
        type=count,
        default=nano.max_model_len,
        metavar="N",
        help="longest prompt and answer of funasr-nano together, tokens (default: %(default)s)",
    )
    add(
        "--workers",
        type=count,
        metavar="N",
        help="decoding threads of the embedded engine (default: one per core)",
    )
    add(
        "--vad",
        choices=("fsmn", "level"),
        default="fsmn",
        help="fsmn: a network; level: loudness, for tests (default: fsmn)",
    )
    add("--vad-model", type=Path, metavar="DIR", help="folder with FSMN-VAD (default: the fetched one)")
    add(
        "--fake-decode-ms",
        type=milliseconds,
        default=0.0,
        metavar="MS",
        help="time per decode of the fake engine (default: 0)",
    )
    add(
        "--fake-slots",
        type=count,
        default=2,
        metavar="N",
        help="decodes at once of the fake engine (default: 2)",
    )
    add = parser.add_argument_group("defaults of a session (clients may change the first two)").add_argument
    add(
        "--language",
        default="auto",
        help="name or code, Chinese or English: zh, 中文, English (default: auto)",
    )
    add(
        "--hotword-file",
        type=Path,
        metavar="FILE",
        help="words that are likely to be spoken, one per line, # for comments",
    )
    add(
        "--endpointing",
        "--endpoint-mode",
        default="dynamic",
        metavar="MODE",
        help="dynamic, fixed:MS or client; see below (default: dynamic)",
    )
    add(
        "--silence-schedule",
        metavar="ROWS",
        help="LENGTH_MS:SILENCE_MS,… for dynamic endpointing; inf for the last length",
    )
    add(
        "--max-segment-seconds",
        type=segment_seconds,
        default=30.0,
        metavar="S",
        help="longer speech is cut at a quiet place (default: 30)",
    )
    add("--no-eager", action="store_true", help="do not decode in pauses before they are long enough to lock")
    add = parser.add_argument_group("listening").add_argument
    add(
        "--host",
        default=server.host,
        help="address; 0.0.0.0 lets other machines in, unencrypted (default: %(default)s)",
    )
    add("--port", type=port, default=server.port, help="0 takes a free one (default: %(default)s)")
    add = parser.add_argument_group("limits").add_argument
    add(
        "--max-sessions",
        type=count,
        default=server.max_sessions,
        metavar="N",
        help="connections at once; more get HTTP 503 (default: %(default)s)",
    )
    add(
        "--max-message-bytes",
        type=count,
        default=server.max_message_bytes,
        metavar="N",
        help="of one frame; more closes with 1009 (default: %(default)s)",
    )
    add(
        "--max-session-seconds",
        type=seconds,
        default=limits.session_s,
        metavar="S",
        help="audio of one session (default: %(default)g)",
    )
    add(
        "--max-undecoded-seconds",
        type=seconds,
        default=limits.undecoded_s,
        metavar="S",
        help="audio that waits to be decoded (default: %(default)g)",
    )
    add(
        "--max-sentences",
        type=count,
        default=limits.sentences,
        metavar="N",
        help="of one session (default: %(default)s)",
    )
    add(
        "--max-hotwords",
        type=count,
        default=limits.hotwords,
        metavar="N",
        help="words in one list (default: %(default)s)",
    )
    add(
        "--max-hotword-characters",
        type=count,
        default=limits.hotword_characters,
        metavar="N",
        help="of one list together (default: %(default)s)",
    )
    add(
        "--stall-seconds",
        type=seconds,
        default=clocks.stall_s,
        metavar="S",
        help="without audio for so long, the open sentence is locked (default: %(default)g)",
    )
    add(
        "--deadline-seconds",
        type=seconds,
        default=clocks.deadline_s,
        metavar="S",
        help="of a decode, plus twice its audio (default: %(default)g)",
    )
    add(
        "--shutdown-seconds",
        type=seconds,
        default=server.shutdown_s,
        metavar="S",
        help="for the finals of all sessions after SIGTERM (default: %(default)g)",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="transcripts appear at debug only (default: info)",
    )


def read_arguments(arguments: argparse.Namespace) -> ServeConfig:
    """Validate the flags once. Raises ConfigurationError saying which one cannot be."""
    return ServeConfig(
        engine=EngineOptions(
            engine=arguments.engine,
            model=Path(arguments.model) if arguments.model else None,
            nano=_read_nano(arguments),
            workers=arguments.workers,
            vad_model=arguments.vad_model,
            fake_slots=arguments.fake_slots,
            fake_decode_s=arguments.fake_decode_ms / 1000,
        ),
        vad=arguments.vad,
        session=SessionSettings(
            options=_read_options(arguments),
            endpointing=_read_endpointing(arguments),
            limits=_read_limits(arguments),
        ),
        server=ServerOptions(
            host=arguments.host,
            port=arguments.port,
            max_sessions=arguments.max_sessions,
            max_message_bytes=arguments.max_message_bytes,
            shutdown_s=arguments.shutdown_seconds,
        ),
        clocks=Clocks(stall_s=arguments.stall_seconds, deadline_s=arguments.deadline_seconds),
        endpointing=f"dynamic:{arguments.silence_schedule}"
        if arguments.silence_schedule
        else arguments.endpointing,
        log_level=arguments.log_level,
    )


def check_engine(config: ServeConfig, can: Capabilities) -> None:
    """Refuse flags that the loaded recognizer cannot honour. Raises ConfigurationError naming the flag."""
    options, segment_s = config.session.options, config.session.endpointing.max_segment_ms / 1000
    if segment_s > can.longest_s:
        raise ConfigurationError(
            f"--max-segment-seconds {segment_s:g}: this recognizer takes at most {can.longest_s:g} s at once"
        )
    if options.language and (can.languages is None or options.language not in can.languages):
        raise ConfigurationError(
            f"--language {options.language}: this recognizer cannot be told that language"
        )
    if options.hotwords and can.hotwords == "none":
        raise ConfigurationError("--hotword-file: this recognizer cannot use hotwords")


def check_address(host: str, port: int, flags: str = "--port or --host") -> int:
    """Return the port that `serve` would listen on now, for 0 a free one.

    Raises ConfigurationError where it could not, naming the `flags` that help.
    """
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _first_port(places)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "that is no name of a host"
        raise ConfigurationError(f"cannot listen on {host}:{port}: {why}; choose another {flags}") from error


def _first_port(places: Sequence[tuple[Any, ...]]) -> int:
    """Bind to every place and let go again; a kind of address that this machine lacks may be among several."""
    ports, lacking = list[int](), OSError()
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # as the server does; elsewhere it would share the port
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
                ports.append(int(probe.getsockname()[1]))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            lacking = error
    if not ports:
        raise lacking
    return ports[0]


def read_hotwords(path: Path) -> tuple[str, ...]:
    """Read a hotword file: one word or phrase per line, `#` starts a comment. Raises ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"--hotword-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--hotword-file {path}: it is not text in UTF-8") from error
    words = (word for line in lines for word in split_words(line.partition("#")[0]))
    return tuple(dict.fromkeys(safe for word in words if (safe := neutralise(word))))


def _read_nano(arguments: argparse.Namespace) -> NanoOptions:
    return NanoOptions(
        model=arguments.model or NanoOptions().model,
        hub=arguments.hub,
        device=arguments.device,
        dtype=arguments.dtype,
        longest_s=max(30.0, arguments.max_segment_seconds),
        tensor_parallel_size=arguments.tensor_parallel_size,
        gpu_memory_utilization=arguments.gpu_memory_utilization,
        max_model_len=arguments.max_model_len,
    )


def _read_limits(arguments: argparse.Namespace) -> Limits:
    return Limits(
        session_s=arguments.max_session_seconds,
        undecoded_s=arguments.max_undecoded_seconds,
        sentences=arguments.max_sentences,
        hotwords=arguments.max_hotwords,
        hotword_characters=arguments.max_hotword_characters,
    )


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    try:
        yield
    except (ConfigurationError, ProtocolError) as error:
        raise ConfigurationError(f"{flag}: {error}") from error


def _read_options(arguments: argparse.Namespace) -> DecodingOptions:
    with _naming("--language"):
        language = code_of(arguments.language)
    hotwords = read_hotwords(arguments.hotword_file) if arguments.hotword_file else ()
    return DecodingOptions(language=language, hotwords=hotwords)


def _read_endpointing(arguments: argparse.Namespace) -> EndpointingOptions:
    with _naming("--endpointing"):
        options = EndpointingOptions.parse(arguments.endpointing)
    if arguments.silence_schedule:
        if options.mode != "dynamic":
            raise ConfigurationError("--silence-schedule goes with --endpointing dynamic only")
        with _naming("--silence-schedule"):
            options = replace(options, schedule=SilenceSchedule.parse(arguments.silence_schedule))
    eager_ms = None if arguments.no_eager else options.eager_ms
    return replace(options, eager_ms=eager_ms, max_segment_ms=round(1000 * arguments.max_segment_seconds))

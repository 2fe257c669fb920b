"""`realtime-server serve`: its flags, and the options they become. Defaults live in the options classes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from realtime_server.core.endpointing import EndpointingOptions, SilenceSchedule
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

EPILOG = """\
examples:
  realtime-server serve                              the CPU recognizer, the page at http://127.0.0.1:10095/
  realtime-server serve --endpointing fixed:600      lock a sentence after every pause of 0.6 s
  realtime-server serve --language zh --hotword-file hotword_list.txt
  realtime-server serve --engine fake --vad level    no model at all: try clients and load

endpointing decides when a sentence is locked:
  dynamic       2 s of silence after a short sentence, less the longer it grows (the default)
  dynamic:5000:2000,15000:800,inf:300   the same with your own LENGTH_MS:SILENCE_MS rows
  fixed:600     always after 600 ms
  client        only when the client sends COMMIT (or STOP), and after 30 s
"""


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
    parser.epilog = EPILOG
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
        type=int,
        default=nano.tensor_parallel_size,
        metavar="N",
        help="GPUs that funasr-nano's language model is spread over (default: %(default)s)",
    )
    add(
        "--gpu-memory-utilization",
        type=float,
        default=nano.gpu_memory_utilization,
        metavar="SHARE",
        help="of the GPU's memory, for funasr-nano's language model (default: %(default)s)",
    )
    add(
        "--max-model-len",
        type=int,
        default=nano.max_model_len,
        metavar="N",
        help="longest prompt and answer of funasr-nano together, tokens (default: %(default)s)",
    )
    add(
        "--workers",
        type=int,
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
        type=float,
        default=0.0,
        metavar="MS",
        help="time per decode of the fake engine (default: 0)",
    )
    add(
        "--fake-slots",
        type=int,
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
        type=float,
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
    add("--port", type=int, default=server.port, help="0 takes a free one (default: %(default)s)")
    add = parser.add_argument_group("limits").add_argument
    add(
        "--max-sessions",
        type=int,
        default=server.max_sessions,
        metavar="N",
        help="connections at once; more get HTTP 503 (default: %(default)s)",
    )
    add(
        "--max-message-bytes",
        type=int,
        default=server.max_message_bytes,
        metavar="N",
        help="of one frame; more closes with 1009 (default: %(default)s)",
    )
    add(
        "--max-session-seconds",
        type=float,
        default=limits.session_s,
        metavar="S",
        help="audio of one session (default: %(default)g)",
    )
    add(
        "--max-undecoded-seconds",
        type=float,
        default=limits.undecoded_s,
        metavar="S",
        help="audio that waits to be decoded (default: %(default)g)",
    )
    add(
        "--max-sentences",
        type=int,
        default=limits.sentences,
        metavar="N",
        help="of one session (default: %(default)s)",
    )
    add(
        "--max-hotwords",
        type=int,
        default=limits.hotwords,
        metavar="N",
        help="words in one list (default: %(default)s)",
    )
    add(
        "--max-hotword-characters",
        type=int,
        default=limits.hotword_characters,
        metavar="N",
        help="of one list together (default: %(default)s)",
    )
    add(
        "--stall-seconds",
        type=float,
        default=clocks.stall_s,
        metavar="S",
        help="without audio for so long, the open sentence is locked (default: %(default)g)",
    )
    add(
        "--deadline-seconds",
        type=float,
        default=clocks.deadline_s,
        metavar="S",
        help="of a decode, plus twice its audio (default: %(default)g)",
    )
    add(
        "--shutdown-seconds",
        type=float,
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


def read_hotwords(path: Path) -> tuple[str, ...]:
    """Read a hotword file: one word or phrase per line, `#` starts a comment. Raises ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--hotword-file {path}: {error}") from error
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


def _read_options(arguments: argparse.Namespace) -> DecodingOptions:
    try:
        language = code_of(arguments.language)
    except ProtocolError as error:
        raise ConfigurationError(f"--language: {error}") from error
    hotwords = read_hotwords(arguments.hotword_file) if arguments.hotword_file else ()
    return DecodingOptions(language=language, hotwords=hotwords)


def _read_endpointing(arguments: argparse.Namespace) -> EndpointingOptions:
    options = EndpointingOptions.parse(arguments.endpointing)
    if arguments.silence_schedule:
        if options.mode != "dynamic":
            raise ConfigurationError("--silence-schedule goes with --endpointing dynamic only")
        options = replace(options, schedule=SilenceSchedule.parse(arguments.silence_schedule))
    eager_ms = None if arguments.no_eager else options.eager_ms
    return replace(options, eager_ms=eager_ms, max_segment_ms=round(1000 * arguments.max_segment_seconds))

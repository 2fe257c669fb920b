"""What the flags of `realtime-server serve` become: the options of the engine, the server and its sessions.

The options classes check their values again, in the words of their fields: for programs that build a server.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from realtime_server.config_calls import read_calls
from realtime_server.config_doors import DoorConfig, read_doors
from realtime_server.core.commands import split_words
from realtime_server.core.endpointing import EndpointingOptions, SilenceSchedule
from realtime_server.core.jobs import Capabilities, DecodingOptions
from realtime_server.core.languages import code_of
from realtime_server.core.postprocess import neutralise
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.engines.loading import EngineOptions, SpeakerOptions, usual_nano
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError
from realtime_server.flags import AssumedMode, AssumedSeconds, naming
from realtime_server.http.options import CallOptions, HttpOptions
from realtime_server.offline.audio_source import AudioLimits
from realtime_server.offline.calls import Deadlines
from realtime_server.realtime.server import ServerOptions
from realtime_server.realtime.session import Clocks


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Everything `serve` needs."""

    engine: EngineOptions
    vad: str
    speakers: str | None  # the kind of network that tells them apart; None: nothing does
    speaker: SpeakerOptions
    session: SessionSettings
    server: ServerOptions
    clocks: Clocks
    endpointing: str  # as given, for /health
    assumed: frozenset[str]  # flags that were not given, and give way to what the recognizer bears
    log_level: str
    http: HttpOptions | None  # None: no recordings over HTTP
    calls: CallOptions
    doors: DoorConfig


def read_arguments(arguments: argparse.Namespace) -> ServeConfig:
    """Validate the flags once. Raises ConfigurationError saying which one cannot be."""
    return ServeConfig(
        engine=read_engine(arguments),
        vad=arguments.vad,
        speakers=arguments.speakers,
        speaker=SpeakerOptions(model=arguments.speaker_model),
        session=SessionSettings(
            options=read_options(arguments),
            endpointing=_read_endpointing(arguments),
            limits=_read_limits(arguments),
            speakers=arguments.speakers is not None,
        ),
        server=ServerOptions(
            host=arguments.host,
            port=arguments.port,
            max_sessions=arguments.max_sessions,
            max_viewers=arguments.max_viewers,
            keep_transcripts_s=arguments.keep_transcripts_seconds,
            max_message_bytes=arguments.max_message_bytes,
            shutdown_s=arguments.shutdown_seconds,
            late_s=arguments.max_late_seconds or None,
        ),
        clocks=Clocks(stall_s=arguments.stall_seconds, deadline_s=arguments.deadline_seconds),
        endpointing=f"dynamic:{arguments.silence_schedule}"
        if arguments.silence_schedule
        else str(arguments.endpointing),
        assumed=_find_assumed(arguments),
        log_level=arguments.log_level,
        http=None if arguments.http_port is None else _read_http(arguments),
        calls=read_calls(arguments),
        doors=read_doors(arguments),
    )


def read_engine(arguments: argparse.Namespace) -> EngineOptions:
    """Options of the recognizer, from the flags of flags.add_engine() and the longest segment."""
    return EngineOptions(
        engine=arguments.engine,
        model=Path(arguments.model) if arguments.model else None,
        nano=NanoOptions() if arguments.engine == "vllm" else _read_nano(arguments),
        speech=_read_speech(arguments) if arguments.engine == "vllm" else SpeechOptions(),
        workers=arguments.workers,
        vad_model=arguments.vad_model,
        vad_workers=arguments.vad_workers,
        fake_slots=arguments.fake_slots,
        fake_decode_s=arguments.fake_decode_ms / 1000,
    )


def fit_engine(config: ServeConfig, can: Capabilities) -> ServeConfig:
    """Return the same, as the loaded recognizer bears it: what was not asked for gives way.

    Raises ConfigurationError naming a flag that it cannot honour.
    """
    options, endpointing = config.session.options, config.session.endpointing
    segment_s, named = endpointing.max_segment_ms / 1000, config.endpointing
    if segment_s > can.longest_s:
        if "--max-segment-seconds" not in config.assumed:
            raise ConfigurationError(
                f"--max-segment-seconds {segment_s:g}: this recognizer takes at most {can.longest_s:g} s at once"
            )
        endpointing = replace(endpointing, max_segment_ms=int(1000 * can.longest_s))
    if not can.schedule and endpointing.mode == "dynamic":
        if "--endpointing" not in config.assumed:
            raise ConfigurationError(
                f"--endpointing {named}: this recognizer bears no silence schedule; use fixed:800 or client"
            )
        endpointing = endpointing.fitting(schedule=False)
        named = f"fixed:{endpointing.silence_ms}"
    if options.language and (can.languages is None or options.language not in can.languages):
        raise ConfigurationError(
            f"--language {options.language}: this recognizer cannot be told that language"
        )
    if options.hotwords and can.hotwords == "none":
        raise ConfigurationError("--hotword-file: this recognizer cannot use hotwords")
    return replace(config, session=replace(config.session, endpointing=endpointing), endpointing=named)


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


def _find_assumed(arguments: argparse.Namespace) -> frozenset[str]:
    found = set()
    if isinstance(arguments.max_segment_seconds, AssumedSeconds):
        found.add("--max-segment-seconds")
    if isinstance(arguments.endpointing, AssumedMode) and not arguments.silence_schedule:
        found.add("--endpointing")
    return frozenset(found)


def _read_model(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given of the flags that all models in vLLM have."""
    given = {
        "model": arguments.model or None,
        "hub": arguments.hub,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "tensor_parallel_size": arguments.tensor_parallel_size,
        "gpu_memory_utilization": arguments.gpu_memory_utilization,
        "max_model_len": arguments.max_model_len,
    }
    return {name: value for name, value in given.items() if value is not None}


def _read_nano(arguments: argparse.Namespace) -> NanoOptions:
    if arguments.vllm_arg:
        raise ConfigurationError(f"--vllm-arg {arguments.vllm_arg[0]}: it goes with --engine vllm only")
    longest_s = max(30.0, arguments.max_segment_seconds)
    return replace(usual_nano(arguments.engine), longest_s=longest_s, **_read_model(arguments))


def _read_speech(arguments: argparse.Namespace) -> SpeechOptions:
    return SpeechOptions(
        segment_s=arguments.max_segment_seconds,
        vllm_args=dict(map(_read_vllm_arg, arguments.vllm_arg)),
        **_read_model(arguments),
    )


def _read_vllm_arg(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; a value that is no JSON is text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--vllm-arg {text}: expected NAME=VALUE, as in enforce-eager=true")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


def _read_limits(arguments: argparse.Namespace) -> Limits:
    return Limits(
        session_s=arguments.max_session_seconds,
        undecoded_s=arguments.max_undecoded_seconds,
        sentences=arguments.max_sentences,
        characters=arguments.max_characters,
        hotwords=arguments.max_hotwords,
        hotword_characters=arguments.max_hotword_characters,
    )


def _read_http(arguments: argparse.Namespace) -> HttpOptions:
    if arguments.http_port == arguments.port != 0:
        raise ConfigurationError(f"--http-port {arguments.http_port}: --port has it already; choose another")
    limits = AudioLimits(
        file_bytes=arguments.max_file_bytes,
        duration_s=arguments.max_file_seconds,
        processes=arguments.file_workers,
    )
    return HttpOptions(
        host=arguments.host,
        port=arguments.http_port,
        max_files=arguments.max_files,
        limits=limits,
        deadlines=Deadlines(base_s=arguments.deadline_seconds),
        shutdown_s=arguments.shutdown_seconds,
    )


def read_options(arguments: argparse.Namespace) -> DecodingOptions:
    """Language and hotwords, from the flags of flags.add_decoding(). Raises ConfigurationError."""
    with naming("--language"):
        language = code_of(arguments.language)
    hotwords = read_hotwords(arguments.hotword_file) if arguments.hotword_file else ()
    return DecodingOptions(language=language, hotwords=hotwords)


def _read_endpointing(arguments: argparse.Namespace) -> EndpointingOptions:
    with naming("--endpointing"):
        options = EndpointingOptions.parse(arguments.endpointing)
    if arguments.silence_schedule:
        if options.mode != "dynamic":
            raise ConfigurationError("--silence-schedule goes with --endpointing dynamic only")
        with naming("--silence-schedule"):
            options = replace(options, schedule=SilenceSchedule.parse(arguments.silence_schedule))
    eager_ms = None if arguments.no_eager else options.eager_ms
    return replace(options, eager_ms=eager_ms, max_segment_ms=round(1000 * arguments.max_segment_seconds))

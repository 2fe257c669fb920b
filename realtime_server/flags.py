"""The flags of `realtime-server serve`, some of which `transcribe` has, too. A number is held against its bounds as it
is parsed, so that the error names the flag and quotes what was given; defaults live in the options classes that
config.py makes of them.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from realtime_server.core.endpointing_options import SHORTEST_CAP_MS
from realtime_server.core.settings import Limits
from realtime_server.doors.door import DoorOptions
from realtime_server.engines.loading import ENGINES, usual_nano
from realtime_server.engines.nano_options import DEVICES, HUBS, NanoOptions
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError, ProtocolError
from realtime_server.http.options import HttpOptions
from realtime_server.realtime.options import ServerOptions
from realtime_server.realtime.session import Clocks

EPILOG = """\
examples:
  realtime-server serve                              # the CPU recognizer, the page at http://127.0.0.1:10095/
  realtime-server serve --endpointing fixed:600      # lock a sentence after every pause of 0.6 s
  realtime-server serve --language zh --hotword-file hotword_list.txt
  realtime-server serve --engine fake --vad level    # no model at all: try clients and load

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


class FromEnvironment(str):
    """The value of an environment variable in place of a flag's; what is wrong with it names the variable."""

    def __new__(cls, name: str) -> FromEnvironment:
        value = super().__new__(cls, os.environ[name])
        value.name = name
        return value

    name: str

    def __format__(self, form: str) -> str:
        return f"{self!s} (from {self.name})"


class AssumedSeconds(float):
    """A flag's default, which gives way to what the recognizer bears."""


class AssumedMode(str):
    """The same."""

    __slots__ = ()


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Put the flag before what is wrong with its value."""
    try:
        yield
    except (ConfigurationError, ProtocolError) as error:
        raise ConfigurationError(f"{flag}: {error}") from error


def variable(flag: str) -> str:
    """The environment variable that may be set in place of a flag."""
    return "REALTIME_SERVER" + flag[1:].replace("-", "_").upper()


ABOVE_ZERO = math.ulp(0.0)  # the least number that is
count = bounded(int, "a whole number above zero", 1, math.inf)
workers = bounded(int, "a whole number from 0 to 64", 0, 64)
seconds = bounded(float, "a number of seconds above zero, at most a billion", ABOVE_ZERO, 1e9)
lateness = bounded(float, "a number of seconds from 0 to 3600", 0, 3600)
segment_seconds = bounded(float, "a number of seconds from 1 to 60", SHORTEST_CAP_MS / 1000, 60)
milliseconds = bounded(float, "a number of milliseconds from 0 to a billion", 0, 1e9)
share = bounded(float, "a share, above 0 and at most 1", ABOVE_ZERO, 1)
span = bounded(float, "a number of seconds from 0 to a billion", 0, 1e9)
rate = bounded(int, "a whole number from 0 to a billion", 0, 1e9)
port = bounded(int, "a whole number from 0 to 65535", 0, 65_535)
pace = bounded(float, "a number from 0 to 1000", 0, 1000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `serve`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.usage = "%(prog)s [--FLAG [VALUE]]...  (--help lists the flags)"  # all of them would hide an error
    add_engine(parser)
    _add_scorers(parser.add_argument_group("voice activity").add_argument)
    _add_session(
        parser.add_argument_group("defaults of a session (clients may change the first two)").add_argument
    )
    _add_server(parser.add_argument_group("listening").add_argument)
    _add_doors(parser.add_argument_group("who may come in").add_argument)
    _add_limits(parser.add_argument_group("limits").add_argument)
    _add_files(parser.add_argument_group("recordings over HTTP").add_argument)
    _add_calls(parser.add_argument_group("telephone calls, which come in at the HTTP port").add_argument)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the recognizer; config.read_engine() reads them."""
    parser.set_defaults(vad_workers=0)
    _add_recognizer(parser.add_argument_group("recognizer").add_argument)
    _add_vllm(parser.add_argument_group("models in vLLM: Fun-ASR-Nano, GLM-ASR-Nano, any other").add_argument)


Add = Callable[..., argparse.Action]


# fmt: off
def _add_recognizer(add: Add) -> None:
    add("--engine", choices=sorted(ENGINES), default="embedded",
        help="embedded: whisper-base on the CPU; funasr-nano: Fun-ASR-Nano in vLLM; funasr-nano-torch: the same, slow, "
             "without vLLM; glm-asr: GLM-ASR-Nano in vLLM; vllm: any speech-to-text model of vLLM's, which --model "
             "names; fake: counts half seconds (default: embedded)")
    add("--model", metavar="DIR|NAME",
        help="folder with the recognizer's weights, or for models in vLLM their name at the hub (default: the fetched "
             f"ones; {NanoOptions().model}; {usual_nano('glm-asr').model}; for vllm none)")
    add("--workers", type=count, metavar="N",
        help="decoding threads of the embedded engine (default: one per core)")
    add("--vad", choices=("fsmn", "level"), default="fsmn",
        help="fsmn: a network; level: loudness, for tests (default: fsmn)")
    add("--vad-model", type=Path, metavar="DIR", help="folder with FSMN-VAD (default: the fetched one)")
    add("--fake-decode-ms", type=milliseconds, default=0.0, metavar="MS",
        help="time per decode of the fake engine (default: 0)")
    add("--fake-slots", type=count, default=2, metavar="N",
        help="decodes at once of the fake engine (default: 2)")


def _add_scorers(add: Add) -> None:
    add("--vad-workers", type=workers, default=0, metavar="N",
        help="processes for voice activity; 0: the server's own (default: 0)")


def _add_vllm(add: Add) -> None:
    nano, speech = NanoOptions(), SpeechOptions()
    add("--hub", choices=HUBS,
        help="where the model is fetched: ms ModelScope, hf Hugging Face "
             f"(default: {nano.hub} for Fun-ASR-Nano, else hf)")
    add("--device", choices=DEVICES, default=nano.device, help="default: %(default)s")
    add("--dtype", default=nano.dtype, help="auto, bfloat16, float32; with vllm float16, too (default: %(default)s)")
    add("--tensor-parallel-size", type=count, default=nano.tensor_parallel_size, metavar="N",
        help="GPUs that the language model is spread over (default: %(default)s)")
    add("--gpu-memory-utilization", type=share, metavar="SHARE",
        help="of the GPU's memory, for the language model "
             f"(default: {nano.gpu_memory_utilization}; with vllm {speech.gpu_memory_utilization})")
    add("--max-model-len", type=count, metavar="N",
        help=f"longest prompt and answer together, tokens (default: {nano.max_model_len}; with vllm the model's own)")
    add("--vllm-arg", action="append", default=[], metavar="NAME=VALUE",
        help="with --engine vllm, any other argument of vLLM's, as in tokenizer-mode=mistral; may be repeated")


def add_decoding(add: Add) -> None:
    """Add the flags that config.read_options() reads."""
    add("--language", default="auto",
        help="a language's name, in English or Chinese, or its code: zh, 中文, English (default: auto)")
    add("--hotword-file", type=Path, metavar="FILE",
        help="words that are likely to be spoken, one per line, # for comments")


def add_longest_segment(add: Add) -> None:
    """Add the flag of the longest segment, which config.read_engine() reads, too."""
    add("--max-segment-seconds", type=segment_seconds, default=AssumedSeconds(30.0), metavar="S",
        help="longer speech is cut at a quiet place (default: 30, or what the recognizer takes, if that is less)")


def add_speakers(add: Add) -> None:
    """Add the flags of telling speakers apart."""
    add("--speakers", nargs="?", choices=("network", "bands"), const="network", metavar="KIND",
        help="tell speakers apart; network: CAM++, fetched by `models fetch speakers`; bands: no model, for tests "
             "(default: no speakers; without KIND: network)")
    add("--speaker-model", type=Path, metavar="DIR",
        help="folder with the speaker network: CAM++, or ERes2NetV2 as the hub has it (default: the fetched CAM++)")


def _add_session(add: Add) -> None:
    add_decoding(add)
    add("--endpointing", "--endpoint-mode", default=AssumedMode("dynamic"), metavar="MODE",
        help="dynamic, fixed:MS or client; see below (default: dynamic)")
    add("--silence-schedule", metavar="ROWS",
        help="LENGTH_MS:SILENCE_MS,… for dynamic endpointing; inf for the last length")
    add_longest_segment(add)
    add_speakers(add)
    add("--no-eager", action="store_true",
        help="do not decode in pauses before they are long enough to lock")


def _add_server(add: Add) -> None:
    server = ServerOptions()
    add("--host", default=server.host,
        help="address; 0.0.0.0 lets other machines in, which takes a token (default: %(default)s)")
    add("--port", type=port, default=server.port, help="0 takes a free one (default: %(default)s)")
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"),
        help="transcripts appear at debug only (default: info)")


def from_environment(flag: str) -> str | None:
    """The default of a flag that may be set by its environment variable."""
    name = variable(flag)
    return FromEnvironment(name) if os.environ.get(name) else None


def _add_doors(add: Add) -> None:
    add("--token", default=from_environment("--token"), metavar="TOKEN",
        help="whoever comes in must send it; the flag can be read in the list of processes, so rather set "
             f"{variable('--token')}")
    add("--token-file", type=Path, default=from_environment("--token-file"), metavar="FILE",
        help="several of them: lines of NAME TOKEN [max_sessions=N] [rights=transcribe,view,metrics]; read again at "
             f"SIGHUP (or set {variable('--token-file')})")
    add("--token-key-file", type=Path, metavar="FILE",
        help="secret that signs session tokens, for servers that shall accept each other's (default: a new one)")
    add("--insecure", action="store_true", help="let other machines in without a token")
    add("--allow-origin", action="append", default=[], metavar="ORIGIN",
        help="pages that may connect, such as https://talk.example, null for those from disk, * for all; may be given "
             "several times (default: pages from this host)")
    add("--max-requests-per-minute", type=rate, default=DoorOptions().per_minute, metavar="N",
        help="handshakes and requests of one address, or one IPv6 network of 64 bits; more get HTTP 429; 0: any number "
             "(default: %(default)s)")
    add("--max-connections-per-address", type=rate, metavar="N",
        help="open at once, on both ports together; more get HTTP 429, or are cut off; those from this machine are not "
             f"counted; 0: any number (default: {DoorOptions().connections}, or twice --max-sessions if that is more)")
    add("--trust-proxy", type=count, nargs="?", const=1, default=0, metavar="N",
        help="believe X-Forwarded-For of N proxies in front of this server (default: of none; without N: of one)")
    add("--tls-cert", type=Path, metavar="FILE",
        help="serve https and wss with this certificate, in PEM form; read again at SIGHUP")
    add("--tls-key", type=Path, metavar="FILE", help="its private key (default: in the same file)")


def _add_limits(add: Add) -> None:
    limits, server, clocks = Limits(), ServerOptions(), Clocks()
    add("--max-sessions", type=count, default=server.max_sessions, metavar="N",
        help="connections at once; more get HTTP 503 (default: %(default)s)")
    add("--max-late-seconds", type=lateness, default=server.late_s, metavar="S",
        help="newcomers get HTTP 503 while finals wait longer than this for the recognizer, or partials or the age of "
             "texts are 2.5 times as long; 0: whatever they do (default: %(default)g)")
    add("--max-viewers", type=count, default=server.max_viewers, metavar="N",
        help="readers of sessions at once, beside their speakers (default: %(default)s)")
    add("--keep-transcripts-seconds", type=span, default=server.keep_transcripts_s, metavar="S",
        help="how long an ended session can be viewed and exported; 0 for not at all (default: %(default)g)")
    add("--max-message-bytes", type=count, default=server.max_message_bytes, metavar="N",
        help="of one frame; more closes with 1009 (default: %(default)s)")
    add("--max-session-seconds", type=seconds, default=limits.session_s, metavar="S",
        help="audio of one session (default: %(default)g)")
    add("--max-undecoded-seconds", type=seconds, default=limits.undecoded_s, metavar="S",
        help="audio that waits to be decoded (default: %(default)g)")
    add("--max-sentences", type=count, default=limits.sentences, metavar="N",
        help="of one session (default: %(default)s)")
    add("--max-characters", type=count, default=limits.characters, metavar="N",
        help="of the texts of one session together (default: %(default)s)")
    add("--max-hotwords", type=count, default=limits.hotwords, metavar="N",
        help="words in one list (default: %(default)s)")
    add("--max-hotword-characters", type=count, default=limits.hotword_characters, metavar="N",
        help="of one list together (default: %(default)s)")
    add("--stall-seconds", type=seconds, default=clocks.stall_s, metavar="S",
        help="without audio for so long, the open sentence is locked (default: %(default)g)")
    add("--deadline-seconds", type=seconds, default=clocks.deadline_s, metavar="S",
        help="of a decode, plus twice its audio (default: %(default)g)")
    add("--shutdown-seconds", type=seconds, default=server.shutdown_s, metavar="S",
        help="for the finals of all sessions after SIGTERM (default: %(default)g)")


def _add_files(add: Add) -> None:
    http = HttpOptions()

    def add_one(flag: str, kind: Callable[[str], float], default: float | None, metavar: str, what: str) -> None:
        told = "none" if default is None else f"{default:.10g}"
        add(flag, type=kind, default=from_environment(flag) or default, metavar=metavar,
            help=f"{what} (default: {told}; or set {variable(flag)})")

    add_one("--http-port", port, None, "PORT", f"take recordings over HTTP too, such as {http.port}; 0: a free one")
    add_one("--max-files", count, http.max_files, "N", "requests at once; more get HTTP 429")
    add_one("--max-file-bytes", count, http.limits.file_bytes, "N", "of one recording as sent")
    add_one("--max-file-seconds", seconds, http.limits.duration_s, "S", "audio of one recording")
    add_one("--file-workers", count, http.limits.processes, "N", "recordings decoded at once, each by a process")


def _add_calls(add: Add) -> None:
    add("--calls-dir", type=Path, metavar="DIR",
        help="write a file of JSON lines for each call that comes in at /twilio; made if it is missing (default: none)")
    add("--calls-webhook", metavar="URL",
        help="POST the sentences of each call there, and its final; http or https (default: nowhere)")
    add("--calls-webhook-token", default=from_environment("--calls-webhook-token"), metavar="TOKEN",
        help=f"Bearer token for it; rather set {variable('--calls-webhook-token')}")
# fmt: on

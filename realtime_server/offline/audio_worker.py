"""The process in which AudioReader decodes: `python -m realtime_server.offline.audio_worker DESCRIPTOR LIMITS`.

Decoders meet files that were made to break them. Here a crash, a loop or a memory bomb ends this process, not the
server: a few kilobytes of MP4 can make FFmpeg ask for gigabytes. DESCRIPTOR is a socket. Over it come jobs, a JSON
object and the descriptor of a file each; back go messages, of a kind (1 byte), a length (4 bytes, little-endian)
and so many bytes:

    S   samples: PCM16, mono, 16 kHz
    E   the end: JSON {"notes": [...]}, or in place of it {"error": text, "code": code} of an AudioError,
        {"configuration": text} of a ConfigurationError, or {"bug": traceback}
"""

from __future__ import annotations

import json
import math
import os
import resource
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from realtime_server.errors import AudioError, ConfigurationError
from realtime_server.offline.audio_file import AudioFile
from realtime_server.offline.audio_source import AudioLimits
from realtime_server.offline.recording import to_pcm16

HEADER = struct.Struct("<cI")
JOB_BYTES = 1 << 12
NICENESS = 5  # live sessions come first


def main(arguments: list[str]) -> None:
    """Decode until the socket is closed."""
    limits = AudioLimits(**json.loads(arguments[1]))
    os.nice(NICENESS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # C libraries remark on files there
    _limit(resource.RLIMIT_AS, limits.decoder_bytes)
    with socket.socket(fileno=int(arguments[0])) as connection:
        connection.setblocking(True)
        with suppress(ConnectionError):
            while True:
                job, descriptors, _, _ = socket.recv_fds(connection, JOB_BYTES, 1)
                if not job:
                    return
                _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + limits.decode_s))
                _answer(connection, descriptors[0], limits, json.loads(job))


def _answer(connection: socket.socket, descriptor: int, limits: AudioLimits, job: dict[str, Any]) -> None:
    with open(descriptor, "rb", buffering=0) as file:
        try:
            audio = AudioFile(file, limits, channel=job["channel"])
            for block in audio.blocks():
                _send(connection, b"S", to_pcm16(block).tobytes())
            end: dict[str, object] = {"notes": audio.notes()}
        except ConnectionError:
            raise
        except Exception as error:
            end = _explain(error)
    _send(connection, b"E", json.dumps(end).encode())


def _explain(error: Exception) -> dict[str, object]:
    match error:
        case AudioError():
            return {"error": str(error), "code": error.code}
        case MemoryError():
            return {
                "error": "decoding the recording takes more memory than is allowed",
                "code": "undecodable",
            }
        case ConfigurationError():
            return {"configuration": str(error)}
    return {"bug": "".join(traceback.format_exception(error))}


def _send(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    connection.sendall(HEADER.pack(kind, len(payload)) + payload)


def _limit(what: int, value: int) -> None:
    """Lower a limit of this process, where the system knows it."""
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (value, resource.getrlimit(what)[1]))


if __name__ == "__main__":
    main(sys.argv[1:])

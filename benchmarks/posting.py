"""Recordings for a server's HTTP port: as a form, and where to post it."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Mapping
from urllib.parse import urlsplit

from realtime_server.bench.serving import Server, ServerError
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.offline.recording import Recording, to_pcm16

BOUNDARY = "recording"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def wav_of(recording: Recording) -> bytes:
    """A WAV file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes(to_pcm16(recording.read(0, len(recording))).tobytes())
    return file.getvalue()


def form_of(wav: bytes, fields: Mapping[str, str] | None = None) -> bytes:
    """The body of a request whose headers are HEADERS."""
    head = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (fields or {}).items()
    )
    head += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="talk.wav"\r\n\r\n'
    return head.encode() + wav + f"\r\n--{BOUNDARY}--\r\n".encode()


def files_host(server: Server) -> str:
    """HOST:PORT where a server takes recordings. Raises ServerError if it takes none."""
    found = re.search(r"recordings are taken at (http://\S+?)/", server.log.read_text(errors="replace"))
    if not found:
        raise ServerError("the server takes no recordings")
    return urlsplit(found[1]).netloc

#!/usr/bin/env python3
"""Replay a recording as a telephone call: a stream like Twilio's Media Streams, to a server's /twilio.

    client_call_tap.py --file call.wav --watch
    client_call_tap.py --file call.wav --pace 0 --language en --session desk-7 --parameter FirstName=Ada

The left channel of a stereo file is the caller (inbound), the right one the other side (outbound); a mono file is the
caller alone. Both become 8 kHz mu-law, sent in pieces of 20 ms at the pace of speech. With --watch the transcript is
printed as a viewer of the session sees it, each sentence with its time and track; with --json its messages, one a line.

The server must run with --http-port. Exit status: 0 the call was taken to its end, 1 it was not, 2 wrong arguments or
unusable audio. Needs client_python.py beside it, numpy and websockets>=15; soxr unless the file has 8 kHz. The Python
of a server that `make` installed, .venv/bin/python, has them.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import time
import uuid
import wave
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

try:
    import numpy as np
    from client_python import TOKEN, ClientError, need, open_socket, printable
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed
except ImportError as error:
    if __name__ != "__main__" or error.name == "client_python":
        raise
    print(
        f"{error.name} is missing; use the server's Python, .venv/bin/python, or run: "
        f"{sys.executable} -m pip install numpy 'websockets>=15'",
        file=sys.stderr,
    )
    sys.exit(2)

RATE = 8_000
PIECE_MS = 20
PIECE = RATE * PIECE_MS // 1000  # bytes
TRACKS = ("inbound", "outbound")
APPEARS_S = 10.0  # for the session to be there once the call began
START = "make run ARGS='--http-port 8899', or realtime-server serve --http-port 8899"
CLIP, BIAS = 32_635, 132  # of mu-law


@dataclass(frozen=True)
class Options:
    file: Path
    server: str
    pace: float
    session: str | None
    parameters: dict[str, str]
    watch: bool
    json: bool
    token: str | None


def read_tracks(path: Path) -> list[bytes]:
    """Mu-law of each channel. Raises ClientError."""
    try:
        with wave.open(str(path)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise ClientError(f"{path}: {getattr(error, 'strerror', None) or error}", 2) from None
    if width != 2 or channels > len(TRACKS):
        raise ClientError(f"{path}: a WAV file of 16 bits with one or two channels is wanted", 2)
    samples = np.frombuffer(data, "<i2").reshape(-1, channels)
    if rate != RATE:
        samples = need("soxr").resample(samples, rate, RATE)
    return [encode_mulaw(samples[:, channel]) for channel in range(channels)]


def encode_mulaw(samples: Any) -> bytes:
    """16-bit samples as G.711 mu-law, one byte each."""
    wide = np.asarray(samples, np.int32)
    size = np.minimum(np.abs(wide), CLIP) + BIAS
    exponent = np.floor(np.log2(size)).astype(np.int32) - 7
    mantissa = size >> (exponent + 3) & 15
    coded = (wide < 0) << 7 | exponent << 4 | mantissa
    return bytes((~coded & 255).astype(np.uint8))


def messages_of(tracks: list[bytes], call: str, parameters: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The stream: messages, and when each is due, in ms."""
    stream, numbers = f"MZ{uuid.uuid4().hex}", iter(range(1, 1 << 62))

    def write(event: str, content: dict[str, Any]) -> str:
        return json.dumps(
            {"event": event, "sequenceNumber": str(next(numbers)), event: content, "streamSid": stream}
        )

    names = TRACKS[: len(tracks)]
    yield 0, json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})
    start = {"accountSid": "AC0", "streamSid": stream, "callSid": call, "tracks": names}
    format = {"encoding": "audio/x-mulaw", "sampleRate": RATE, "channels": 1}
    yield 0, write("start", {**start, "mediaFormat": format, "customParameters": parameters})
    for chunk, begin in enumerate(range(0, len(tracks[0]), PIECE)):
        at_ms = chunk * PIECE_MS
        for name, audio in zip(names, tracks, strict=True):
            payload = base64.b64encode(audio[begin : begin + PIECE]).decode()
            media = {"track": name, "chunk": str(chunk + 1), "timestamp": str(at_ms), "payload": payload}
            yield at_ms + PIECE_MS, write("media", media)
    yield 0, write("stop", {"accountSid": "AC0", "callSid": call})


async def replay(options: Options) -> None:
    """Send the call, and show its transcript if asked. Raises ClientError."""
    tracks = read_tracks(options.file)
    call = f"CA{uuid.uuid4().hex}"
    given = {**options.parameters, **({"session": options.session} if options.session else {})}
    shown = given.get("session", call)
    if options.token:
        given["token"] = options.token
    socket = await open_socket(f"{options.server}/twilio", start=START)
    try:
        sending = asyncio.create_task(send(socket, messages_of(tracks, call, given), options.pace))
        watching = asyncio.create_task(watch(options, shown)) if options.watch else None
        await sending
        await socket.wait_closed()
        close = socket.close_code, socket.close_reason
        if watching and close[0] != 1000:
            watching.cancel()
        if close[0] != 1000:
            raise ClientError(f"the call was cut short ({close[0]}): {printable(close[1])}")
        if watching:
            await watching
    finally:
        await socket.close()


async def send(socket: ClientConnection, messages: Iterator[tuple[int, str]], pace: float) -> None:
    """Send each message when it is due, until the server closes."""
    begun_s = time.monotonic()
    try:
        for due_ms, message in messages:
            if pace and (left_s := begun_s + due_ms / 1000 / pace - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            await socket.send(message)
    except ConnectionClosed:
        return


async def watch(options: Options, session: str) -> None:
    """Print what a viewer is told."""
    async for text in view(options, session):
        message = json.loads(text)
        if options.json:
            print(printable(text), flush=True)
        elif message["type"] == "sentence":
            track = TRACKS[message["channel"]]
            print(f"[{message['start_ms'] / 1000:.1f} {track}] {printable(message['text'])}", flush=True)


async def view(options: Options, session: str) -> AsyncIterator[str]:
    """What a viewer is told, from when the session is there."""
    give_up_s = time.monotonic() + APPEARS_S
    while True:
        try:
            socket = await open_socket(f"{options.server}/sessions/{session}", options.token, START)
            break
        except ClientError as error:
            if error.status != HTTPStatus.NOT_FOUND or time.monotonic() > give_up_s:
                raise
            await asyncio.sleep(0.1)
    try:
        async for message in socket:
            yield str(message)
    finally:
        await socket.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Replay a WAV file as a telephone call, as Twilio streams one.",
        epilog="example: .venv/bin/python clients/client_call_tap.py --file call.wav --watch   (the server runs with "
        "--http-port 8899; other files: ffmpeg -i call.mp3 -c:a pcm_s16le call.wav)",
    )
    parser.add_argument(
        "--file", type=Path, required=True, help="a WAV file, 16 bits: caller left, other side right"
    )
    parser.add_argument(
        "--server", default="ws://localhost:8899", help="its HTTP port (default: %(default)s)"
    )
    parser.add_argument("--pace", type=float, default=1.0, help="1: speech, 0: as fast as it goes")
    parser.add_argument("--session", help="what the session is called (default: the call's id)")
    parser.add_argument("--language", help="what is spoken, a name or code (default: the server's)")
    parser.add_argument("--hotwords", help="words to expect, separated by commas")
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="NAME=VALUE", help="another of the stream"
    )
    parser.add_argument("--watch", action="store_true", help="print the sentences as they are locked")
    parser.add_argument("--json", action="store_true", help="print the messages of protocol 2 instead")
    parser.add_argument("--token", default=os.environ.get(TOKEN), help=f"that it wants; rather set {TOKEN}")
    given = parser.parse_args(arguments)
    if not 0 <= given.pace <= 1000:
        parser.error(f"argument --pace: {given.pace:g} is not a number from 0 to 1000")
    if urlsplit(given.server).scheme not in ("ws", "wss"):
        parser.error(f"argument --server: {given.server} is no address like ws://localhost:8899")
    if unclear := [text for text in given.parameter if "=" not in text]:
        parser.error(f"argument --parameter: {unclear[0]} is not NAME=VALUE")
    parameters = dict(text.split("=", 1) for text in given.parameter)
    named = {"language": given.language, "hotwords": given.hotwords}
    parameters |= {name: value for name, value in named.items() if value is not None}
    options = Options(
        given.file, given.server.rstrip("/"), given.pace, given.session, parameters,
        given.watch or given.json, given.json, given.token,
    )  # fmt: skip
    try:
        asyncio.run(replay(options))
    except ClientError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

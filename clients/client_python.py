#!/usr/bin/env python3
"""Stream a microphone or an audio file to a live recognition server and show the text as it comes.

    client_python.py --mic
    client_python.py --file interview.mp3 --language English --hotwords "Manette,Saint Antoine"

What goes over the socket (the client's text frames are commands, the server's are JSON):

    client                         server
    START                          {"event": "started"}
    LANGUAGE:English (optional)    {"event": "language_set", "language": "English"}
    HOTWORDS:a,b     (optional)    {"event": "hotwords_set", "hotwords": ["a", "b"]}
    binary frames: 16-bit          {"sentences": [{"text": "...", "start": 300, "end": 1200}],
    little-endian samples,          "partial": "...", "duration_ms": 3400, "is_final": false},
    16 kHz, mono                    whenever something changed
    STOP                           the same with "is_final": true, then {"event": "stopped"}

"sentences" is the whole list so far, and what is in it stays; "partial" is being said now and may change.
The transcript goes to standard output, all else to standard error. Ctrl-C ends the audio and waits for the
final text. Exit status: 0 the final text of all audio arrived, 1 it did not, 2 wrong arguments or unusable
audio. Needs numpy and websockets>=15; soundfile and soxr unless a file is 16-bit 16 kHz WAV, sounddevice for
--mic. The Python of a server that `make` installed, .venv/bin/python, has all but the last.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import re
import shutil
import signal
import ssl
import sys
import time
import unicodedata
import wave
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

try:
    import numpy as np
    import numpy.typing as npt
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
except ImportError as error:
    if __name__ != "__main__":
        raise
    print(
        f"{error.name} is missing; use the server's Python, .venv/bin/python, or run: "
        f"{sys.executable} -m pip install numpy 'websockets>=15'",
        file=sys.stderr,
    )
    sys.exit(2)

SAMPLE_RATE = 16_000  # of the wire
FRAME_BYTES = 2 * SAMPLE_RATE // 10  # 100 ms a message
MIC_QUEUE_BLOCKS = 600  # a minute of microphone audio is held while the network is stuck
FILE_LEAD_MS = 120_000  # a file is sent at most this far ahead of the results,
HOLD_S = 1.0  # then a frame a second: a server takes seconds without audio for the end of a sentence
NEWS_S = 5.0  # between two lines about what is being said, where there is no terminal
WORD = re.compile(r"\s+|[!-\u2e7f]+|.")  # a Chinese, Japanese or Korean character is one
PORTAUDIO = "on Debian and Ubuntu: apt install libportaudio2"
JOINERS = "\u200c\u200d"  # of Persian and Indic letters, and of emoji

CLOSE_CODES = {
    1000: "the server closed the connection",
    1006: "the connection was lost",
    1008: "the server cut the session short",
    1009: "the server found a message too big",
    1011: "the server failed",
    1012: "the server is shutting down",
    1013: "the server is overloaded",
}
REFUSALS = {403: "not allowed", 429: "too many sessions or connections, try later", 503: "full, try later"}
START = "make run, or realtime-server serve"  # commands
TOKEN = "REALTIME_SERVER_TOKEN"  # the environment variable; arguments can be read in the list of processes

Samples = npt.NDArray[np.float32]
Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Note = Callable[[str], None]  # shows the user a line
OnBlock = Callable[[Any, int, Any, Any], None]  # (16-bit samples in a buffer, count, time, status)
OpenStream = Callable[[OnBlock, Callable[[], None]], AbstractContextManager[object]]  # (on block, on end)


class ClientError(Exception):
    """One sentence for the user, and the exit status. status: by which a server refused, of HTTP."""

    def __init__(self, message: str, exit_code: int = 1, status: int | None = None) -> None:
        super().__init__(message)
        self.exit_code, self.status = exit_code, status


@dataclass(frozen=True)
class Options:
    server: str = "ws://localhost:10095"
    file: Path | None = None  # None: the microphone
    language: str | None = None  # None: the server's default
    hotwords: str | None = None  # separated by commas
    pace: float = 1.0  # of a file, in times the speed of speech; 0: as fast as the server takes it
    json: bool = False  # print the server's messages, not a transcript
    device: int | None = None  # number of the microphone
    token: str | None = field(default=None, repr=False)  # of a server that wants one


@dataclass(frozen=True)
class Sentence:
    """Text that the server has locked, and its start and end from START."""

    times_ms: tuple[int, int]
    text: str
    speaker: int | None

    def __str__(self) -> str:
        start, end = (f"{ms // 60_000}:{ms // 1000 % 60:02}.{ms // 100 % 10}" for ms in self.times_ms)
        speaker = "" if self.speaker is None else f"Speaker {self.speaker + 1}: "  # counted as the page does
        return f"[{start}-{end}] {speaker}{printable(self.text)}"


class FileAudio:
    """A file in frames of 100 ms, each handed over when its last sample would have been spoken."""

    def __init__(
        self, path: Path, pace: float, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._frames, self._pace, self._clock, self._sleep = open_audio(path), pace, clock, sleep
        self.heard_ms, self._stopped = 0.0, False  # what the results account for

    async def frames(self) -> AsyncGenerator[bytes]:
        start, samples = self._clock(), 0
        while (frame := await asyncio.to_thread(next, self._frames, b"")) and not self._stopped:
            samples += len(frame) // 2
            due = start + (samples / SAMPLE_RATE / self._pace if self._pace else 0)  # by the count: no drift
            if samples * 1000 / SAMPLE_RATE - self.heard_ms > FILE_LEAD_MS:
                due = max(due, self._clock() + HOLD_S)
            while (wait := due - self._clock()) > 0 and not self._stopped:
                await self._sleep(min(wait, 0.1))
            yield frame

    def stop(self) -> None:
        self._stopped = True


class MicAudio:
    """The microphone; its driver calls back on a thread of its own, which has to wake the event loop."""

    heard_ms = 0.0  # it cannot wait for the results

    def __init__(self, open_stream: OpenStream, note: Note) -> None:
        self._loop, self._note, self._dropped = asyncio.get_running_loop(), note, 0
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()  # b"" ends it
        self._stream = open_stream(self._on_block, self.stop)

    def _on_block(self, samples: Any, count: int, moment: Any, status: Any) -> None:
        self._loop.call_soon_threadsafe(self._take, bytes(samples), bool(status))

    def _take(self, block: bytes, overflow: bool) -> None:
        full = self._queue.qsize() >= MIC_QUEUE_BLOCKS
        if (full or overflow) and not self._dropped:
            self._note("the network or this computer does not keep up: microphone audio is being dropped")
        self._dropped += full or overflow
        if not full:
            self._queue.put_nowait(block)

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._stream:
            self._note("listening; Ctrl-C ends the recording")
            while block := await self._queue.get():
                yield block
        if self._dropped:
            self._note(f"dropped {self._dropped} blocks of microphone audio, 0.1 s each")

    def stop(self) -> None:
        """End the frames, after the block that the driver is filling."""
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.1, self._queue.put_nowait, b"")


def open_microphone(device: int | None, note: Note) -> MicAudio:
    driver = need("sounddevice")
    form = {"samplerate": SAMPLE_RATE, "blocksize": FRAME_BYTES // 2, "channels": 1, "dtype": "int16"}
    stream = partial(driver.RawInputStream, device=device, **form)
    try:
        return MicAudio(lambda take, end: stream(callback=take, finished_callback=end), note)
    except (driver.PortAudioError, ValueError) as error:
        raise ClientError(f"cannot open the microphone ({error}); see --list-devices", 2) from None


def open_audio(path: Path) -> Iterator[bytes]:
    """Return the file's frames, the first one read already so that a useless file is refused at once."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise ClientError(f"cannot read {path}: {error.strerror}", 2) from None
    frames = cut_frames(decode(path))
    if empty or not (first := next(frames, b"")):
        raise ClientError(f"{path} {'is empty' if empty else 'holds no audio'}", 2)
    return chain([first], frames)


def decode(path: Path) -> Iterator[Samples]:
    """Yield the audio in blocks of about a second, mono, 16 kHz; the file is never held whole."""
    with suppress(wave.Error, EOFError), wave.open(str(path), "rb") as plain:
        if plain.getsampwidth() == 2 and plain.getframerate() == SAMPLE_RATE:
            size = 2 * plain.getnchannels()
            while len(data := plain.readframes(SAMPLE_RATE)) >= size:
                pcm = np.frombuffer(data[: len(data) // size * size], "<i2").reshape(-1, size // 2)
                yield pcm.mean(axis=1, dtype=np.float32) / 32768
            return
    soundfile = need("soundfile")
    try:
        with soundfile.SoundFile(path) as file:
            rate = file.samplerate
            soxr = None if rate == SAMPLE_RATE else need("soxr").ResampleStream(rate, SAMPLE_RATE, 1)
            while len(block := file.read(rate, dtype="float32", always_2d=True)):
                yield soxr.resample_chunk(block.mean(axis=1)) if soxr else block.mean(axis=1)
            if soxr:
                yield soxr.resample_chunk(np.zeros(0, np.float32), last=True)
    except soundfile.SoundFileError as error:
        raise ClientError(f"cannot read {path} as audio ({error}); ffmpeg can turn it into WAV", 2) from None


def cut_frames(blocks: Iterable[Samples]) -> Iterator[bytes]:
    """Yield frames of 16-bit samples; all but the last are full."""
    pending = b""
    for block in blocks:
        pending += np.clip(np.rint(np.nan_to_num(block) * 32768), -32768, 32767).astype("<i2").tobytes()
        while len(pending) >= FRAME_BYTES:
            yield pending[:FRAME_BYTES]
            pending = pending[FRAME_BYTES:]
    if pending:
        yield pending


def need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        library = f" ({PORTAUDIO}, too)" if module == "sounddevice" else ""
        words = f"{module} is missing; run: {sys.executable} -m pip install {module}{library}"
        raise ClientError(words, 2) from None
    except OSError as error:  # sounddevice without its library
        raise ClientError(f"{module}: {error} ({PORTAUDIO})", 2) from None


def printable(text: object) -> str:
    """Drop what could steer a terminal (control, formatting, half surrogates), but not joiners of letters."""
    text = str(text).replace("\n", " ")
    return "".join(c for c in text if c in JOINERS or unicodedata.category(c) not in ("Cc", "Cf", "Cs"))


def end_that_fits(text: str, columns: int) -> str:
    """Cut to terminal columns: a Chinese, Japanese or Korean character takes two, a combining mark none."""
    start = len(text)
    while start and columns >= 0:
        start -= 1
        if unicodedata.category(text[start]) not in ("Mn", "Me", "Cf"):
            columns -= 1 + (unicodedata.east_asian_width(text[start]) in "WF")
    return text[start + (columns < 0) :]


class Display:
    """Locked sentences, each once, and below them what is being said now: one moving line, or news at times."""

    def __init__(self, out: TextIO, err: TextIO, json: bool = False, clock: Clock = time.monotonic) -> None:
        self._out, self._err, self._json, self._clock = out, err, json, clock
        self._live = out.isatty() and not json
        self._locked: list[Sentence] = []
        self._partial, self._told, self._due = "", list[str](), 0.0  # told: the words of it in a pipe

    def message(self, message: dict[str, Any]) -> None:
        if self._json:
            self._write(printable(json.dumps(message, ensure_ascii=False)) + "\n")

    def result(self, sentences: list[Sentence], partial: str, final: bool) -> None:
        """Print what is new; the list grows, or starts again if the server lists one utterance at a time."""
        known = len(self._locked)
        if [s.times_ms for s in sentences[:known][-1:]] != [s.times_ms for s in self._locked[-1:]]:
            known = 0
        pairs = zip(self._locked, sentences[:known], strict=False)
        revised = [str(new) for old, new in pairs if new.speaker != old.speaker]
        self._locked = sentences
        self._draw(sentences[known:], printable(partial))
        if final and revised:
            self.note("now that all was heard, some speakers are different:\n" + "\n".join(revised))

    def note(self, text: str) -> None:
        live = self._live and self._partial
        self._write("\r\x1b[K" * bool(live))
        self._err.write(f"{text}\n")
        self._err.flush()
        self._write(self._line() * bool(live))

    def finish(self) -> None:
        """Keep the last partial of a session that has no final text, and say what it is."""
        self._draw([f"[unconfirmed] {self._partial}"] if self._partial else [], "")

    def _draw(self, lines: Iterable[object], partial: str) -> None:
        changed, self._partial = partial != self._partial, partial
        text = "".join(f"{line}\n" for line in lines)
        if self._live and (text or changed):
            self._write("\r" + "\x1b[K" * bool(text) + text + self._line())
        elif not self._live and not self._json:
            self._write(text + self._news(bool(text)))

    def _news(self, locked: bool) -> str:
        """What a pipe gets of the partial: from the first word that is new, if nothing was written for a while."""
        if locked:
            self._told, self._due = [], self._clock() + NEWS_S
        words = WORD.findall(self._partial)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._told, words, strict=False))
        news = "".join(words[len(list(same)) :]).strip()
        if not news or self._clock() < self._due:
            return ""
        self._told, self._due = words, self._clock() + NEWS_S
        return f"... {news}\n"

    def _line(self) -> str:
        columns = shutil.get_terminal_size().columns - 1
        return end_that_fits(self._partial, columns) + "\x1b[K"  # erased after the text: no flicker

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())  # for the flush at exit
            raise ClientError("nobody reads the output any more") from None


class Client:
    """One session: commands, then audio out and results in at the same time, then STOP and the final text."""

    def __init__(self, options: Options, audio: FileAudio | MicAudio, display: Display) -> None:
        self._options, self._audio, self._display = options, audio, display
        self._sentences: list[Sentence] = []
        self._failure: ClientError | None = None
        self._stopping = self._final = False

    async def run(self) -> list[Sentence]:
        """Return the final sentences; raises ClientError without a final text for all of the audio."""
        self._task = asyncio.current_task()
        try:
            self._socket = await open_socket(self._options.server, self._options.token)
            async with AsyncExitStack() as stack:  # `async with` the socket would call a ClientError a crash
                stack.push_async_callback(self._socket.close)
                await self._start()
                async with asyncio.TaskGroup() as tasks:
                    sender = tasks.create_task(self._send_audio())
                    tasks.create_task(self._receive_results(sender))
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            self._failure = ClientError("stopped before the final text: what is shown may be incomplete")
        finally:
            self._display.finish()
        if self._failure or not self._final:
            raise self._failure or ClientError("the server ended the session without a final text")
        if not self._sentences:
            self._display.note("no speech was heard")
        return self._sentences

    def stop(self) -> None:
        """End the audio; the final text follows."""
        if not self._stopping:
            self._stopping = True
            self._audio.stop()
            self._display.note("waiting for the final text; Ctrl-C quits without it")

    def interrupt(self) -> None:
        """Do what Ctrl-C does: stop, and the second time quit."""
        if self._stopping and self._task:
            self._task.cancel()
        self.stop()

    async def _start(self) -> None:
        """Set the session up; the answer to a command is the next message."""
        commands = {"START": "started"}
        if self._options.language is not None:
            commands[f"LANGUAGE:{self._options.language}"] = "language_set"
        if self._options.hotwords is not None:
            commands[f"HOTWORDS:{self._options.hotwords}"] = "hotwords_set"
        for command, acknowledgement in commands.items():
            await self._socket.send(command)
            if (answer := await self._receive()).get("event") != acknowledgement:
                why = printable(answer.get("error", "it answers something else"))
                raise ClientError(f"the server does not accept {command[:80]}: {why}", 2)

    async def _send_audio(self) -> None:
        with suppress(ConnectionClosed):  # the receiver reports it
            try:
                async with aclosing(self._audio.frames()) as frames:
                    async for frame in frames:
                        await self._socket.send(frame)
            except ClientError as damaged:  # what could be read is still worth its text
                self._failure = damaged
            await self._socket.send("STOP")

    async def _receive_results(self, sender: asyncio.Task[None]) -> None:
        """Receive until the server has nothing more to say, however long the final text takes."""
        try:
            while (message := await self._receive()).get("event") != "stopped":
                if message.get("event") == "error" and not self._options.json:
                    self._display.note(f"the server says: {printable(message.get('error'))}")
        except ClientError as lost:
            self._failure = lost
        finally:
            sender.cancel()

    async def _receive(self) -> dict[str, Any]:
        """Show the next message, unless it is an error, and return it; raises ClientError when there is none."""
        try:
            message: dict[str, Any] = json.loads(await self._socket.recv())
            self._display.message(message)
            if message.get("sentences") is not None:
                self._take_result(message)
            return message
        except ConnectionClosed as closed:
            code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")
            words = CLOSE_CODES.get(code, f"the connection was closed with code {code}")
            reason = "" if code in (1011, 1012) else reason  # the words say it already
            raise ClientError(f"{words} ({printable(reason)})" if reason else words) from None
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ClientError(f"the server speaks another protocol ({error!r})") from None

    def _take_result(self, message: dict[str, Any]) -> None:
        found = message["sentences"]
        self._sentences = [Sentence((s["start"], s["end"]), s["text"], s.get("spk")) for s in found]
        self._audio.heard_ms = float(message.get("duration_ms", "inf"))
        self._final = message["is_final"]
        self._display.result(self._sentences, message["partial"], self._final)


async def open_socket(server: str, token: str | None = None, start: str = START) -> ClientConnection:
    """Connect. start: commands that start such a server. Raises ClientError."""
    settings: dict[str, Any] = {"max_size": None, "compression": None}  # a message holds the whole list
    settings |= {"ping_timeout": 120, "close_timeout": 2}  # pings wait behind audio
    if urlsplit(server).hostname in ("localhost", "127.0.0.1", "::1"):
        settings["proxy"] = None
    if token:
        settings["additional_headers"] = {"Authorization": f"Bearer {token}"}
    try:
        return await connect(server, **settings)
    except InvalidStatus as refused:
        status = refused.response.status_code
        why = REFUSALS.get(status, f"HTTP status {status}")
        if status == 401:
            why = (
                "it does not accept this token"
                if token
                else f"it wants a token; set {TOKEN}, or give --token"
            )
        raise ClientError(f"{server} refuses: {why}", status=status) from None
    except ssl.SSLCertVerificationError as error:
        why = f"{error.verify_message}; if you signed it yourself, set SSL_CERT_FILE to its file"
        raise ClientError(f"the certificate of {server} is not accepted: {why}") from None
    except OSError as error:
        why = error.strerror or str(error) or "no answer"
        if "Connect call failed" in why:
            why = os.strerror(error.errno) if error.errno else "Connection refused"
            why += f"; start it with: {start}"
        elif server.startswith("wss:") and isinstance(error, (ssl.SSLError, ConnectionError)):
            why = "the TLS handshake failed; without TLS the address starts with ws://"
        raise ClientError(f"no server at {server}: {why}") from None
    except (WebSocketException, ValueError) as error:
        why = f"{error}; is it wss://?" if server.startswith("ws:") else str(error)
        raise ClientError(f"{server} is not a live recognition server: {why}") from None


async def transcribe(options: Options, display: Display) -> list[Sentence]:
    """Run one session; Ctrl-C and SIGTERM end its audio. Raises ClientError."""
    file = options.file
    audio = FileAudio(file, options.pace) if file else open_microphone(options.device, display.note)
    client, loop = Client(options, audio, display), asyncio.get_running_loop()
    actions = {signal.SIGINT: client.interrupt, signal.SIGTERM: client.stop}
    for number in actions:
        signal.signal(number, lambda number, _: loop.call_soon_threadsafe(actions[signal.Signals(number)]))
    try:
        return await client.run()
    finally:
        for number in actions:
            signal.signal(number, signal.SIG_DFL)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Stream a microphone or a file to a live speech server. Sentences are printed when they are "
        f"final, and below them what is being said: in a pipe, its new words every {NEWS_S:g} s, after three dots."
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--mic", action="store_true", help="send the microphone")
    source.add_argument("--file", type=Path, help="send a wav, flac, ogg, mp3, ... file of any rate")
    source.add_argument("--list-devices", action="store_true", help="list the microphones")
    parser.add_argument("--server", default=Options.server, help="its address (default: %(default)s)")
    parser.add_argument("--language", help="what is spoken, a name or code (default: the server's)")
    parser.add_argument("--hotwords", help="words to expect, separated by commas")
    parser.add_argument("--pace", type=float, default=1.0, help="of a file; 1: speech, 0: as fast as it goes")
    parser.add_argument("--json", action="store_true", help="print the server's messages, one a line")
    parser.add_argument("--token", default=os.environ.get(TOKEN), help=f"that it wants; rather set {TOKEN}")
    parser.add_argument("--device", type=int, help="number of the microphone in --list-devices")
    given = vars(parser.parse_args(arguments))
    list_devices, _ = given.pop("list_devices"), given.pop("mic")
    given["server"] = "ws://" * ("://" not in given["server"]) + given["server"]
    options = Options(**given)
    if not 0 <= options.pace <= 1000:
        parser.error(f"argument --pace: {options.pace:g} is not a number from 0 to 1000")
    if urlsplit(options.server).scheme not in ("ws", "wss"):
        parser.error(f"argument --server: {options.server} is no address like ws://localhost:10095")
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # it is a real file here
    try:
        if list_devices:
            print(need("sounddevice").query_devices())
        else:
            asyncio.run(transcribe(options, Display(sys.stdout, sys.stderr, options.json)))
    except ClientError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Follow a live session and keep its subtitles in files that are whole at every moment.

    client_subtitles.py studio --file talk.srt
    client_subtitles.py studio --file talk.vtt --speakers 0:Ann,1:Bob
    client_subtitles.py studio --line now.txt      for a text source of OBS: what is being said now

"studio" is what the speaker's client called its session (ws://HOST:10095/?session=studio), or the session's id. The
server sends messages of protocol 2 at ws://HOST:10095/sessions/studio, and wants none:

    {"type": "started", ...}         a session begins, or this is where it stands
    {"type": "partial", ...}         what is being said: "stable" and "unstable" text of a segment
    {"type": "sentence", ...}        "text" that stays, with "start_ms" and "end_ms"
    {"type": "speakers", ...}        sentences that were somebody else's

A file is written beside its place and then put there, at most once a second, so that a reader never finds half of it.
If another session begins under the same name, or the speaker sends START again, its subtitles go to talk-2.srt, and so
on: what is written stays. A server that is not there, or has no such session yet, is asked again and again; what is
waited for is said once.

Exit status: 0 the session has ended, or Ctrl-C; 1 the files cannot be written; 2 wrong arguments, not let in, or a
certificate that is not accepted. Needs websockets>=15, nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import ssl
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

try:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
except ImportError as error:
    if __name__ != "__main__":
        raise
    print(
        f"{error.name} is missing; use the server's Python, .venv/bin/python, or run: "
        f"{sys.executable} -m pip install 'websockets>=15'",
        file=sys.stderr,
    )
    sys.exit(2)

TOKEN = "REALTIME_SERVER_TOKEN"  # the environment variable; arguments can be read in the list of processes
THERE_S = 2.0  # between two looks for a session that is not there
SLOWEST_S = 15.0  # between two looks for a server that does not answer
WRITE_S = 1.0  # between two versions of a file
LINE_S = 0.1  # between two of the current line
LETTERS = 2.5  # that an ideograph is as wide as
SHORTEST_MS = 1000  # a cue is shown so long, if the next one can wait
KINDS = (".srt", ".vtt")
SHOWN = 200  # letters of what a server says
NO_SESSION = "there is no session"  # as the server says it
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
JOINERS = "\u200c\u200d"  # of Persian and Indic letters, and of emoji


class ClientError(Exception):
    """One sentence for the user, and the exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Options:
    session: str
    files: tuple[Path, ...] = ()
    line: Path | None = None
    server: str = "ws://localhost:10095"
    speakers: Mapping[str, str] | None = None  # None: they are not named
    width: int = 42  # letters of a line of a file, and of the current line
    forever: bool = False  # wait for the next session of this name
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Sentence:
    id: int
    channel: int
    start_ms: int
    end_ms: int
    text: str
    speaker: int | None = None


@dataclass(frozen=True)
class Cue:
    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    name: str


class Transcript:
    """What was said since the last START, and what is being said."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.sentences: dict[int, Sentence] = {}
        self.channels = 1
        self.number = 0  # of sessions before this one
        self._open: dict[tuple[int, int], str] = {}

    def take(self, message: dict[str, Any], *, first: bool) -> bool:
        """Take a message, the first of a connection or a later one; whether sentences changed."""
        kind = message.get("type")
        place = (message.get("channel", 0), message.get("segment", 0))
        if kind == "started":
            self._start(message, again=first)
        elif kind == "partial":
            self._open[place] = clean(message["stable"] + message["unstable"])
        elif kind == "no_sentence":
            self._open.pop(place, None)
        elif kind == "sentence":
            self._open.pop(place, None)
            keys = ("id", "channel", "start_ms", "end_ms", "text", "speaker")
            return self._lock(Sentence(**{key: message[key] for key in keys}))
        elif kind == "speakers":
            for change in message["changes"]:
                if known := self.sentences.get(change["id"]):
                    self.sentences[known.id] = replace(known, speaker=change["to"])
            return True
        return False

    @property
    def line(self) -> str:
        """What is being said, else what was said last."""
        last = list(self.sentences.values())[-1:]
        spoken = " ".join(text for text in self._open.values() if text)
        return spoken or (clean(last[0].text) if last else "")

    def _start(self, message: dict[str, Any], *, again: bool) -> None:
        self._open.clear()
        self.channels = message["settings"]["channels"]
        if not again or self.session != message["session"]:
            self._begin()
        self.session = message["session"]

    def _begin(self) -> None:
        self.number += bool(self.sentences)
        self.sentences.clear()

    def _lock(self, sentence: Sentence) -> bool:
        known = self.sentences.get(sentence.id)
        # Of a START that we did not see: what is locked never gets another time or text.
        if known and (known.start_ms, known.text) != (sentence.start_ms, sentence.text):
            self._begin()
        self.sentences[sentence.id] = sentence
        return known != sentence


# --- files ------------------------------------------------------------------------------------------------


def cues(transcript: Transcript, speakers: Mapping[str, str] | None, letters: int) -> list[Cue]:
    """Cues in order of time, of no more than two lines each."""
    found = [
        Cue(start, end, lines, name_of(sentence, transcript.channels, speakers))
        for sentence in transcript.sentences.values()
        for start, end, lines in cut(sentence, letters)
    ]
    found.sort(key=lambda cue: cue.start_ms)
    following = [*(cue.start_ms for cue in found[1:]), sys.maxsize]
    return [
        replace(cue, end_ms=max(cue.end_ms, min(cue.start_ms + SHORTEST_MS, after)))
        for cue, after in zip(found, following, strict=False)
    ]


def name_of(sentence: Sentence, channels: int, speakers: Mapping[str, str] | None) -> str:
    """The speaker's name; "" if it is not known or not wanted."""
    if speakers is None:
        return ""
    channel, speaker = sentence.channel, sentence.speaker
    if channels == 1:
        return "" if speaker is None else speakers.get(str(speaker), f"Speaker {speaker + 1}")
    given = speakers.get(f"{channel}.{speaker}") or speakers.get(str(channel))
    return given or f"Channel {channel + 1}" + ("" if speaker is None else f", Speaker {speaker + 1}")


def cut(sentence: Sentence, letters: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Two lines of a sentence at a time, with their share of its time."""
    rows = list(fill(clean(sentence.text), letters))
    start, end = max(0, sentence.start_ms), max(sentence.start_ms + 1, sentence.end_ms)
    whole, before = sum(map(width, rows)) or 1, 0.0
    for at in range(0, len(rows), 2):
        pair = tuple(rows[at : at + 2])
        after = before + sum(map(width, pair))
        times = [start + round((end - start) * part / whole) for part in (before, after)]
        yield times[0], max(times[1], times[0] + 1), pair
        before = after


def fill(text: str, room: float) -> Iterator[str]:
    """Cut into pieces of at most that width: at spaces, between ideographs, and only if it must be elsewhere."""
    while width(text) > room:
        end = 1
        while width(text[: end + 1]) <= room:
            end += 1
        places = [at for at in range(end, 0, -1) if may_break(text[at - 1], text[at])]
        at = places[0] if places else end
        yield text[:at].strip()
        text = text[at:].strip()
    if text:
        yield text


def may_break(before: str, after: str) -> bool:
    if " " in (before, after):
        return True
    closes = unicodedata.category(after) in ("Pe", "Pf", "Po", "Mn", "Mc")
    opens = unicodedata.category(before) in ("Ps", "Pi")
    return "W" in (wide(before), wide(after)) and not closes and not opens


def wide(letter: str) -> str:
    return "W" if unicodedata.east_asian_width(letter) in "WF" else ""


def width(text: str) -> float:
    return sum(LETTERS if wide(c) else 0 if unicodedata.combining(c) else 1 for c in text)


def clean(text: str) -> str:
    """One line, without what could steer a terminal or a player."""
    kept = (
        c for c in text if c in JOINERS or c.isspace() or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    )
    return " ".join("".join(kept).split())


def write_srt(found: list[Cue]) -> str:
    blocks = []
    for number, cue in enumerate(found, 1):
        name = f"{cue.name}: " if cue.name else ""
        text = (name + "\n".join(cue.lines)).replace("-->", "→")
        blocks.append(f"{number}\n{clock(cue.start_ms, ',')} --> {clock(cue.end_ms, ',')}\n{text}\n")
    return "\n".join(blocks)


def write_vtt(found: list[Cue]) -> str:
    def escape(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    blocks = ["WEBVTT\n"]
    for cue in found:
        voice = f"<v {escape(cue.name)}>" if cue.name else ""
        times = f"{clock(cue.start_ms, '.')} --> {clock(cue.end_ms, '.')}"
        blocks.append(f"{times}\n{voice}{escape(chr(10).join(cue.lines))}\n")
    return "\n".join(blocks)


def clock(ms: int, point: str) -> str:
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"


def put(path: Path, text: str) -> None:
    """Replace a file in one step. Raises ClientError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)
    except PermissionError:
        if (
            os.name != "nt" or not path.exists()
        ):  # there a reader holds it: the next version comes in a second
            raise ClientError(f"cannot write {path}: permission denied", 1) from None
    except OSError as error:
        raise ClientError(f"cannot write {path}: {error.strerror}", 1) from None


class Files:
    """Writes the files, when something has changed."""

    def __init__(self, options: Options, transcript: Transcript) -> None:
        self._options, self._transcript = options, transcript
        self._written: dict[Path, str] = {}

    def write(self) -> None:
        """Write the subtitles. Raises ClientError."""
        found = cues(self._transcript, self._options.speakers, self._options.width)
        for path in self._options.files:
            number = self._transcript.number
            place = path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path
            write = write_vtt if path.suffix.lower() == ".vtt" else write_srt
            self._put(place, write(found))

    def write_line(self) -> None:
        """Write what is being said: the last two lines of it. Raises ClientError."""
        if self._options.line:
            last = list(fill(self._transcript.line, self._options.width))[-2:]
            self._put(self._options.line, "\n".join(last))

    def _put(self, path: Path, text: str) -> None:
        if self._written.get(path) != text:
            put(path, text)
            self._written[path] = text


def words_of(body: bytes | bytearray) -> str:
    """Why a server refuses, in its own words."""
    text = body.decode("utf-8", "replace")
    with suppress(ValueError, LookupError, TypeError):
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    return clean(text)[:SHOWN] or "no words"


# --- the session ------------------------------------------------------------------------------------------


class Follower:
    """Listens to the session, over as many connections as it takes."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.transcript = Transcript()
        self._files = Files(options, self.transcript)
        self._changed = False
        self._ended: str | None = None  # id of the session that is over
        self._said = ""
        self._wait_s = THERE_S
        self._was_there = False  # whether a connection was ever made

    async def run(self) -> None:
        """Follow until the session has ended. Raises ClientError."""
        self._files.write()
        self._files.write_line()
        writing = asyncio.create_task(self._write())
        following = asyncio.create_task(self._follow())
        try:
            await asyncio.wait((writing, following), return_when=asyncio.FIRST_COMPLETED)
            for task in (writing, following):
                if task.done():
                    task.result()
        finally:
            for task in (writing, following):
                task.cancel()
            await asyncio.gather(writing, following, return_exceptions=True)
            self._files.write()
            self._files.write_line()

    async def _write(self) -> None:
        clock, written_s = asyncio.get_running_loop().time, 0.0
        while True:
            await asyncio.sleep(LINE_S)
            self._files.write_line()
            if self._changed and clock() - written_s >= WRITE_S:
                self._changed, written_s = False, clock()
                self._files.write()

    async def _follow(self) -> None:
        while True:
            try:
                ended = await self._listen()
            except InvalidStatus as refused:
                ended = False
                self._refused(refused)
            except (OSError, WebSocketException) as error:
                ended = False
                self._unreachable(error)
            if ended and not self._options.forever:
                return
            await asyncio.sleep(self._wait_s)

    async def _listen(self) -> bool:
        """Listen over one connection; whether it ended with the session."""
        options = self._options
        settings: dict[str, Any] = {"max_size": None, "compression": None, "close_timeout": 2}
        if urlsplit(options.server).hostname in ("localhost", "127.0.0.1", "::1"):
            settings["proxy"] = None
        if options.token:
            settings["additional_headers"] = {"Authorization": f"Bearer {options.token}"}
        address = f"{options.server.rstrip('/')}/sessions/{quote(options.session)}"
        history = "?history=0" if self._ended else ""  # what has ended is written already
        async with connect(address + history, **settings) as socket:
            self._wait_s, self._was_there, first = THERE_S, True, True
            try:
                async for text in socket:
                    message = json.loads(text)
                    if first and history:
                        if message["session"] != self._ended:
                            self._ended = None  # another: come again, for all of it
                        return False
                    if first:
                        self._say(f"following {options.session}")
                    self._changed |= self.transcript.take(message, first=first)
                    first = False
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise ClientError(f"the server speaks another protocol ({error!r})", 2) from None
            except ConnectionClosed as closed:
                self._say(f"the connection was lost ({closed.rcvd.code if closed.rcvd else 1006})")
                return False
        if socket.close_code != 1000:
            return False
        self._ended = self.transcript.session
        self._say("the session has ended")
        return True

    def _refused(self, refused: InvalidStatus) -> None:
        status = refused.response.status_code
        if status in (400, 401, 403):
            words = {
                400: "it cannot read the session's name",
                401: f"it wants a token; set {TOKEN}, or give --token",
                403: "the token is not good for viewing",
            }
            if status == 401 and self._options.token:
                words[401] = "it does not accept this token"
            raise ClientError(f"{self._options.server} refuses: {words[status]}", 2) from None
        told = words_of(refused.response.body or b"")
        if status == 404 and NO_SESSION in told:
            server, name = self._options.server.rstrip("/"), self._options.session
            self._say(
                f"waiting for {name}: nobody speaks under this name yet, or it is over; "
                f"the speaker's client connects to {server}/?session={name}"
            )
            self._wait_s = THERE_S
            return
        waits = {
            404: f"{self._options.server} has no sessions to follow (HTTP status 404): is it the address of a "
            "realtime-server? Asking again",
            503: "the server is full, waiting",
        }
        self._say(waits.get(status, f"the server answers with HTTP status {status} ({told}), waiting"))
        self._wait_s = SLOWEST_S

    def _unreachable(self, error: OSError | WebSocketException) -> None:
        """Say why there is no connection. Raises ClientError if there never was one, and waiting would not help."""
        server = self._options.server
        why = str(error) or "no answer"
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"the certificate of {server} is not accepted: {error.verify_message}"
            if not self._was_there:
                raise ClientError(
                    f"{why}; if you signed it yourself, set SSL_CERT_FILE to its file", 2
                ) from None
            self._say(f"{why}; waiting for another")
        elif server.startswith("wss:") and isinstance(error, ssl.SSLError | ConnectionResetError):
            self._say(
                f"no server at {server}: the TLS handshake failed; without TLS the address starts with ws://"
            )
        elif server.startswith("ws:") and isinstance(error, WebSocketException):
            self._say(f"no server at {server}: {why}; is it wss://?")
        else:
            self._say(f"no server at {server}: {why}")
        self._wait_s = min(self._wait_s * 1.5, SLOWEST_S)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(clean(text), file=sys.stderr, flush=True)


# --- the command line -------------------------------------------------------------------------------------


def read_speakers(text: str) -> dict[str, str] | None:
    if text in ("on", "off"):
        return {} if text == "on" else None
    found = [re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,4})?):(.{1,40})", part) for part in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError("must be on, off or names like 0:Ann,1:Bob")
    return {pair[1]: clean(pair[2]) for pair in found if pair}


def read_arguments(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        description="Follow a live session and keep its subtitles in files: talk.srt or talk.vtt grows with every "
        "sentence, and is whole at every moment. The speaker's client names the session: "
        "ws://HOST:10095/?session=NAME."
    )
    add = parser.add_argument
    add("session", help="name or id of the session")
    add(
        "--file",
        type=Path,
        action="append",
        default=[],
        help="a .srt or .vtt file; may be given several times",
    )
    add("--line", type=Path, help="a text file that holds what is being said, for a text source of OBS")
    add("--server", default=Options.server, help="its address (default: %(default)s)")
    add(
        "--speakers",
        type=read_speakers,
        default="off",
        metavar="on|off|NAMES",
        help="name speakers; 0:Ann,1:Bob gives names; of several channels 0:Agent is one, 0.1:Ann a voice of one",
    )
    add("--width", type=int, default=Options.width, help="letters of a line (default: %(default)s)")
    add("--forever", action="store_true", help="wait for the next session of this name when one has ended")
    add("--token", default=os.environ.get(TOKEN), help=f"that the server wants; rather set {TOKEN}")
    given = vars(parser.parse_args(arguments))
    files = tuple(given.pop("file"))
    given["server"] = "ws://" * ("://" not in given["server"]) + given["server"]
    if not is_server(given["server"]):
        parser.error(f"argument --server: {given['server']} is no address like ws://localhost:10095")
    if not files and not given["line"]:
        parser.error("there is nothing to write: give --file talk.srt, or --line now.txt")
    for path in files:
        if path.suffix.lower() not in KINDS:
            parser.error(f"argument --file: {path} must end in .srt or .vtt")
    if not NAME.fullmatch(given["session"]):
        parser.error("argument session: a name has 1 to 64 of the letters a-z and A-Z, digits, - and _")
    if not 10 <= given["width"] <= 200:
        parser.error(f"argument --width: {given['width']} is not a number from 10 to 200")
    return Options(files=files, **given)


def is_server(address: str) -> bool:
    """Whether it is a server's address and nothing more: with a path behind it we would come as a speaker."""
    try:
        scheme, place, path, query, fragment = urlsplit(address)
        host, port = urlsplit(address).hostname or "", urlsplit(address).port
        more = path.strip("/") or query or fragment
        return scheme in ("ws", "wss") and bool(place and host.encode("idna")) and port != 0 and not more
    except ValueError:  # of a port or a host that cannot be
        return False


async def follow(options: Options) -> None:
    """Follow until the end, Ctrl-C or SIGTERM. Raises ClientError."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(Follower(options).run())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(task.cancel))
    with suppress(asyncio.CancelledError):
        await task


def main(arguments: list[str] | None = None) -> int:
    options = read_arguments(arguments)
    try:
        asyncio.run(follow(options))
    except ClientError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""clients/client_python.py against scripted servers on loopback; no microphone, no recognizer, no waiting.

At the end it meets the real server, for what depends on both.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import tracemalloc
import wave
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from realtime_server.demo import load_client
from tests.live_server import LiveServer

client = load_client()
PATH = Path(client.__file__)
SECONDS = 5.0  # for what takes milliseconds unless it hangs

STARTED = {"event": "started"}
STOPPED = {"event": "stopped"}


# --- the scripted server ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Close:
    """Close the connection; code None drops it without a close frame."""

    code: int | None
    reason: str = ""


AUDIO = object()  # a step that waits for a binary frame
Answer = dict[str, Any] | str | Close | asyncio.Event
Step = tuple[object, Sequence[Answer]]


@dataclass
class ScriptedServer:
    """Plays (expected, answers): a text frame that has to be the next one, or AUDIO; what it heard is kept."""

    steps: Sequence[Step]
    address: str = ""
    commands: list[str] = field(default_factory=list)
    audio: bytes = b""
    close_code: int | None = None  # of the client, if it closed first
    heard_audio: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            for expected, answers in self.steps:
                await self._hear(connection, expected)
                for answer in answers:
                    await self._say(connection, answer)
            async for frame in connection:
                self._keep(frame)
        self.close_code = connection.close_code

    async def _hear(self, connection: ServerConnection, expected: object) -> None:
        while True:
            frame = await connection.recv()
            self._keep(frame)
            if expected is AUDIO and isinstance(frame, bytes):
                return
            if isinstance(frame, str):
                assert frame == expected
                return

    def _keep(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            self.audio += frame
            self.heard_audio.set()
        else:
            self.commands.append(frame)
            if frame == "STOP":
                self.stopped.set()

    async def _say(self, connection: ServerConnection, answer: Answer) -> None:
        match answer:
            case asyncio.Event():
                await answer.wait()
            case Close(code=None):
                connection.transport.abort()
            case Close(code=int(code), reason=reason):
                await connection.close(code, reason)
            case str():
                await connection.send(answer)
            case dict():
                await connection.send(json.dumps(answer))


@asynccontextmanager
async def serving(*steps: Step) -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer(steps)
    async with serve(scripted.handle, "127.0.0.1", 0) as server:
        scripted.address = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        yield scripted


def sentence(text: str, start: int, end: int, **speaker: int | None) -> dict[str, Any]:
    return {"text": text, "start": start, "end": end} | speaker


def result(*sentences: dict[str, Any], partial: str = "", final: bool = False, **more: Any) -> dict[str, Any]:
    whole = {"sentences": sentences, "partial": partial, "is_final": final}
    return whole | {"duration_ms": 0, "partial_start_ms": 0} | more


# --- the client's surroundings ----------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal that shows what a real one would: carriage return, erase to the end of the line, newline."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        lines, column = [""], 0
        for piece in re.findall(r"\r|\n|\x1b\[K|[^\r\n\x1b]+", self.getvalue()):
            shown = lines[-1]
            match piece:
                case "\r":
                    column = 0
                case "\n":
                    lines, column = [*lines, ""], 0
                case "\x1b[K":
                    lines[-1] = shown[:column]
                case _:
                    lines[-1] = shown[:column] + piece + shown[column + len(piece) :]
                    column += len(piece)
        return lines


def write_wav(path: Path, seconds: float = 0.3, rate: int = 16_000, channels: int = 1) -> Path:
    samples = (8000 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(np.repeat(samples, channels).tobytes())
    return path


@dataclass
class Run:
    """One client, its output streams, and its audio."""

    server: str
    audio: Any
    out: io.StringIO
    file: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    err: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        options = client.Options(server=self.server, file=self.file, **self.options)
        display = client.Display(self.out, self.err, options.json)
        self.client = client.Client(options, self.audio, display)

    async def finish(self) -> list[Any]:
        return await asyncio.wait_for(self.client.run(), SECONDS)

    async def fail(self) -> Any:
        with pytest.raises(client.ClientError) as caught:
            await self.finish()
        return caught.value


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_wav(tmp_path / "tone.wav")


@pytest.fixture
def start(recording: Path) -> Callable[..., Run]:
    """Make a client that sends 0.3 s of a file as fast as it goes."""

    def make(server: ScriptedServer | str, out: io.StringIO | None = None, **options: Any) -> Run:
        address = server if isinstance(server, str) else server.address
        audio = client.FileAudio(recording, 0)
        return Run(address, audio, out or io.StringIO(), recording, options)

    return make


class EndlessAudio:
    """Frames until it is stopped."""

    heard_ms = 0.0

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def frames(self) -> AsyncIterator[bytes]:
        yield bytes(client.FRAME_BYTES)
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


# --- the protocol -----------------------------------------------------------------------------------------

FINAL = result(sentence("hello", 300, 1260), final=True)
SESSION: tuple[Step, ...] = (("START", [STARTED]), ("STOP", [FINAL, STOPPED]))


async def test_commands_wait_for_their_acknowledgements_and_audio_for_all_of_them(start: Any) -> None:
    steps = (
        ("START", [STARTED]),
        ("LANGUAGE:English", [{"event": "language_set", "language": "English"}]),
        ("HOTWORDS:Manette,Lorry", [{"event": "hotwords_set", "hotwords": ["Manette", "Lorry"]}]),
        (AUDIO, []),
        ("STOP", [FINAL, STOPPED]),
    )
    async with serving(*steps) as server:
        sentences = await start(server, language="English", hotwords="Manette,Lorry").finish()
    assert [s.text for s in sentences] == ["hello"]
    assert server.commands == ["START", "LANGUAGE:English", "HOTWORDS:Manette,Lorry", "STOP"]
    assert len(server.audio) == 2 * 4800


async def test_nothing_is_set_unless_asked_for(start: Any) -> None:
    async with serving(*SESSION) as server:
        await start(server).finish()
    assert server.commands == ["START", "STOP"]


async def test_a_refused_language_ends_it_before_any_audio(start: Any) -> None:
    refusal = {"event": "error", "error": "unknown language: Klingon"}
    async with serving(("START", [STARTED]), ("LANGUAGE:Klingon", [refusal])) as server:
        run = start(server, language="Klingon")
        failure = await run.fail()
    assert failure.exit_code == 2
    assert str(failure) == "the server does not accept LANGUAGE:Klingon: unknown language: Klingon"
    assert run.err.getvalue() == ""  # it is told once
    assert server.audio == b""
    assert server.close_code == 1000


async def test_what_the_server_gives_as_its_reason_cannot_steer_the_terminal(start: Any) -> None:
    refusal = {"event": "error", "error": "unknown\x1b[2J"}
    async with serving(("START", [refusal])) as server:
        assert str(await start(server).fail()).endswith("START: unknown[2J")


async def test_a_session_without_speech_says_so_and_is_a_success(start: Any) -> None:
    async with serving(("START", [STARTED]), ("STOP", [result(final=True), STOPPED])) as server:
        run = start(server)
        assert await run.finish() == []
    assert (run.out.getvalue(), run.err.getvalue()) == ("", "no speech was heard\n")


async def test_the_final_may_take_long(start: Any) -> None:
    decoded = asyncio.Event()
    async with serving(("START", [STARTED]), ("STOP", [decoded, FINAL, STOPPED])) as server:
        run = start(server)
        running = asyncio.create_task(run.finish())
        await asyncio.wait_for(server.stopped.wait(), SECONDS)
        await asyncio.sleep(0.02)
        assert not running.done()
        decoded.set()
        await running
    assert run.out.getvalue() == "[0:00.3-0:01.2] hello\n"


async def test_an_error_of_one_segment_is_shown_and_the_session_goes_on(start: Any) -> None:
    error = {"event": "error", "error": "a segment could not be \x1b[2Jrecognised"}
    async with serving(("START", [STARTED]), (AUDIO, [error]), ("STOP", [FINAL, STOPPED])) as server:
        run = start(server)
        await run.finish()
    assert run.err.getvalue() == "the server says: a segment could not be [2Jrecognised\n"
    assert "hello" in run.out.getvalue()


async def test_a_list_of_many_sentences_passes_in_one_message(start: Any) -> None:
    many = [sentence(f"{n} " + "word " * 200, 1000 * n, 1000 * n + 900) for n in range(1200)]
    final = result(*many, final=True)
    assert len(json.dumps(final)) > 2**20
    async with serving(("START", [STARTED]), ("STOP", [final, STOPPED])) as server:
        run = start(server)
        assert len(await run.finish()) == 1200
    assert run.out.getvalue().count("\n") == 1200


async def test_json_prints_every_message_as_a_line_and_nothing_else(start: Any) -> None:
    partial = result(partial="你好 \x1b[31m", duration_ms=100)
    async with serving(("START", [STARTED]), (AUDIO, [partial]), ("STOP", [FINAL, STOPPED])) as server:
        run = start(server, json=True)
        await run.finish()
    lines = run.out.getvalue().splitlines()
    assert [json.loads(line).get("event") for line in lines] == ["started", None, None, "stopped"]
    assert "你好" in lines[1]
    assert "\x1b" not in run.out.getvalue()
    assert run.err.getvalue() == ""


# --- connections that fail --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("close", "words"),
    [
        (Close(1000), "the server closed the connection"),
        (Close(1000, "bye"), "the server closed the connection (bye)"),
        (Close(1008, "limit"), "the server cut the session short (limit)"),
        (Close(1009), "the server found a message too big"),
        (Close(1011, "internal error"), "the server failed"),
        (Close(1012, "the server stops"), "the server is shutting down"),
        (Close(1013), "the server is overloaded"),
        (Close(3456, "\x1b[2J"), "the connection was closed with code 3456 ([2J)"),
        (Close(None), "the connection was lost"),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
async def test_a_lost_session_keeps_what_was_heard(
    start: Any, close: Close, words: str, terminal: bool
) -> None:
    heard = result(sentence("it was the best", 0, 2000), partial="of times")
    async with serving(("START", [STARTED]), (AUDIO, [heard, close])) as server:
        run = start(server, Terminal() if terminal else io.StringIO())
        failure = await run.fail()
    assert str(failure) == words
    assert failure.exit_code == 1
    shown = run.out.screen if isinstance(run.out, Terminal) else run.out.getvalue().split("\n")
    assert shown[0] == "[0:00.0-0:02.0] it was the best"
    assert shown[-2:] == ["[unconfirmed] of times", ""]


async def test_a_final_that_nobody_asked_for_is_shown_but_is_no_success(recording: Path) -> None:
    early = [result(sentence("hello", 0, 900), final=True), Close(1012, "the server stops")]
    async with serving(("START", [STARTED]), (AUDIO, early)) as server:
        run = Run(server.address, EndlessAudio(), io.StringIO())
        failure = await run.fail()
    assert "shutting down" in str(failure)
    assert run.out.getvalue() == "[0:00.0-0:00.9] hello\n"


LIMIT = {"event": "error", "error": "the session reached its limit of 8 s of audio"}


@pytest.mark.parametrize(
    ("ending", "words", "notes"),
    [
        ([Close(1000)], "the server closed the connection", ""),
        (
            [LIMIT, Close(1008, "limit")],
            "the server cut the session short (limit)",
            f"the server says: {LIMIT['error']}\n",
        ),
    ],
)
async def test_after_stop_too_a_final_without_stopped_is_of_a_session_cut_short(
    start: Any, ending: Sequence[Answer], words: str, notes: str
) -> None:
    async with serving(("START", [STARTED]), ("STOP", [FINAL, *ending])) as server:
        run = start(server)
        failure = await run.fail()
    assert (str(failure), failure.exit_code) == (words, 1)
    assert (run.out.getvalue(), run.err.getvalue()) == ("[0:00.3-0:01.2] hello\n", notes)


async def test_an_end_without_a_final_is_no_success(start: Any) -> None:
    async with serving(("START", [STARTED]), ("STOP", [STOPPED])) as server:
        assert "without a final text" in str(await start(server).fail())


@pytest.mark.parametrize(
    "message",
    ["hello", "[]", '{"sentences": 1}', '{"sentences": [{}], "is_final": false}', '{"sentences": []}',
     '{"sentences": [{"text": "a", "start": null, "end": 1}], "partial": "", "is_final": false}'],
)  # fmt: skip
async def test_another_protocol_is_told(start: Any, message: str) -> None:
    async with serving(("START", [STARTED]), (AUDIO, [message])) as server:
        failure = await start(server).fail()
    assert "another protocol" in str(failure)
    assert server.close_code == 1000


async def test_no_server_is_one_sentence_that_says_how_to_start_one(start: Any) -> None:
    with socket.socket() as taken:  # bound, not listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        failure = await start(f"ws://127.0.0.1:{taken.getsockname()[1]}").fail()
    assert failure.exit_code == 1
    assert "Connection refused" in str(failure)
    assert "start it with: make run, or realtime-server serve" in str(failure)
    assert "Errno" not in str(failure)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "no server at ws://it: Name or service not known"),
        (OSError(113, "Connect call failed ('10.1.1.1', 1)"), "No route to host; start it with"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ..."), "Connection refused; start it"),
        (TimeoutError("timed out during opening handshake"), "ws://it: timed out during opening handshake"),
        (OSError(), "no answer"),
    ],
)
async def test_why_there_is_no_connection_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(client, "connect", connect)  # a name that nobody knows is a matter of the network
    with pytest.raises(client.ClientError) as caught:
        await client.open_socket("ws://it")
    assert words in str(caught.value)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_tls_to_a_server_that_has_none_is_told(start: Any, answer: bytes) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        failure = await start(f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}").fail()
    assert "the TLS handshake failed; without TLS the address starts with ws://" in str(failure)


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    """TLS of a server whose certificate nobody vouches for."""
    if not shutil.which("openssl"):
        pytest.skip("openssl, which makes the certificate, is not on this machine")
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command = ["openssl", *made, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


async def test_a_certificate_that_is_not_trusted_is_told(start: Any, self_signed: ssl.SSLContext) -> None:
    async with serve(ScriptedServer(SESSION).handle, "127.0.0.1", 0, ssl=self_signed) as server:
        failure = await start(f"wss://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}").fail()
    assert re.search(r"the certificate of wss://.* is not accepted: self.signed certificate", str(failure))
    assert "set SSL_CERT_FILE to its file" in str(failure)


async def test_no_tls_to_a_server_that_has_it_is_asked_about(start: Any, self_signed: ssl.SSLContext) -> None:
    async with serve(ScriptedServer(SESSION).handle, "127.0.0.1", 0, ssl=self_signed) as server:
        failure = await start(f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}").fail()
    assert str(failure).endswith("is it wss://?")


@pytest.mark.parametrize(
    ("name", "package"),
    [("client_python", "numpy"), ("client_subtitles", "websockets"), ("client_call_tap", "numpy")],
)
def test_a_python_without_the_packages_is_told_what_to_run(name: str, package: str) -> None:
    """-S leaves out installed packages."""
    bare = [sys.executable, "-I", "-S", str(PATH.with_name(f"{name}.py")), "--help"]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{package} is missing; use the server's Python, .venv/bin/python, or run: ")


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "wants a token"), (403, "not allowed"), (429, "too many sessions"), (503, "full"), (404, "404")],
)
async def test_refusals_are_told_in_words(start: Any, status: int, words: str) -> None:
    async def never(connection: ServerConnection) -> None:
        raise AssertionError

    def refuse(connection: ServerConnection, request: Any) -> Any:
        return connection.respond(HTTPStatus(status), "no\n")

    async with serve(never, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        failure = await start(f"ws://127.0.0.1:{port}").fail()
    assert words in str(failure)


async def test_a_server_that_wants_a_token_gets_it_in_the_header(start: Any) -> None:
    def check(connection: ServerConnection, request: Any) -> Any:
        let_in = (
            request.headers.get("Authorization") == "Bearer secret-token" and "secret" not in request.path
        )
        return None if let_in else connection.respond(HTTPStatus.UNAUTHORIZED, "no\n")

    scripted = ScriptedServer(SESSION)
    async with serve(scripted.handle, "127.0.0.1", 0, process_request=check) as server:
        address = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        failure = await start(address, token="wrong-token").fail()
        assert str(failure).endswith("refuses: it does not accept this token")
        await start(address, token="secret-token").client.run()
    assert "secret" not in repr(client.Options(token="secret-token"))


async def test_what_is_no_websocket_server_is_told(start: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        failure = await start(f"ws://127.0.0.1:{port}").fail()
    assert "not a live recognition server" in str(failure)


async def test_cancelling_from_outside_stays_a_cancellation() -> None:
    async with serving(("START", [STARTED])) as server:
        running = asyncio.create_task(Run(server.address, EndlessAudio(), io.StringIO()).client.run())
        await asyncio.wait_for(server.heard_audio.wait(), SECONDS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


# --- Ctrl-C -----------------------------------------------------------------------------------------------


async def test_ctrl_c_stops_the_audio_and_waits_for_the_final() -> None:
    async with serving(("START", [STARTED]), (AUDIO, []), ("STOP", [FINAL, STOPPED])) as server:
        run = Run(server.address, EndlessAudio(), io.StringIO())
        running = asyncio.create_task(run.finish())
        await asyncio.wait_for(server.heard_audio.wait(), SECONDS)
        run.client.interrupt()
        assert [s.text for s in await running] == ["hello"]
    assert run.err.getvalue() == "waiting for the final text; Ctrl-C quits without it\n"


@pytest.mark.parametrize("first", ["interrupt", "stop"])
async def test_a_second_ctrl_c_quits(first: str) -> None:
    never = asyncio.Event()
    heard = result(partial="of times")
    async with serving(("START", [STARTED]), (AUDIO, [heard]), ("STOP", [never])) as server:
        run = Run(server.address, EndlessAudio(), io.StringIO())
        running = asyncio.create_task(run.fail())
        await asyncio.wait_for(server.heard_audio.wait(), SECONDS)
        getattr(run.client, first)()
        run.client.stop()  # a second SIGTERM changes nothing
        await asyncio.wait_for(server.stopped.wait(), SECONDS)
        never.set()
        run.client.interrupt()
        failure = await running
    assert failure.exit_code == 1
    assert "may be incomplete" in str(failure)
    assert run.out.getvalue().endswith("[unconfirmed] of times\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_command_ends_in_the_final(tmp_path: Path, number: signal.Signals) -> None:
    file = write_wav(tmp_path / "long.wav", seconds=600)
    async with serving(("START", [STARTED]), (AUDIO, []), ("STOP", [FINAL, STOPPED])) as server:
        command = [sys.executable, str(PATH), "--server", server.address, "--file", str(file)]
        process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
        await asyncio.wait_for(server.heard_audio.wait(), 30)
        process.send_signal(number)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, out) == (0, b"[0:00.3-0:01.2] hello\n")
    assert err == b"waiting for the final text; Ctrl-C quits without it\n"
    assert len(server.audio) < 32_000 * 60


async def test_the_command_whose_reader_has_gone_says_so(recording: Path) -> None:
    async with serving(*SESSION) as server:
        command = [sys.executable, str(PATH), "--server", server.address, "--file", str(recording)]
        process = await asyncio.create_subprocess_exec("sh", "-c", '"$@" | true', "sh", *command, stderr=-1)
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert err == b"nobody reads the output any more\n"


# --- the display ------------------------------------------------------------------------------------------


def show(display: Any, *sentences: Any, partial: str = "", final: bool = False) -> None:
    display.result([client.Sentence(*s) for s in sentences], partial, final)


ONE = ((0, 2000), "one", None)
TWO = ((2000, 3000), "two", None)


def test_a_terminal_shows_locked_sentences_above_one_moving_line() -> None:
    out = Terminal()
    display = client.Display(out, io.StringIO())
    show(display, partial="on")
    show(display, partial="one and more")
    assert out.screen == ["one and more"]
    show(display, ONE, partial="tw")
    assert out.screen == ["[0:00.0-0:02.0] one", "tw"]
    show(display, ONE, TWO)
    assert out.screen == ["[0:00.0-0:02.0] one", "[0:02.0-0:03.0] two", ""]
    before = out.getvalue()
    show(display, ONE, TWO, final=True)
    display.finish()
    assert out.getvalue() == before


def lines_in_a_pipe(*shown: tuple[float, str]) -> list[str]:
    """Show partials, each after so many seconds; return what a pipe gets."""
    out, clock = io.StringIO(), FakeClock()
    display = client.Display(out, io.StringIO(), clock=clock)
    for after_s, partial in shown:
        clock.now += after_s
        show(display, partial=partial)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        ([(0, "it"), (1, "it was"), (1, "it was the"), (3, "it was the best")], ["... it", "... was the best"]),
        ([(0, "it was the bets"), (5, "it was the best of times")], ["... it was the bets", "... best of times"]),
        ([(0, "it was the best"), (5, "it was the best"), (9, "it was")], ["... it was the best"]),
        ([(0, "of times"), (5, "of times, it was")], ["... of times", "... times, it was"]),
        ([(0, "今天天气"), (5, "今天天氣很好")], ["... 今天天气", "... 氣很好"]),
        ([(0, ""), (5, "")], []),
    ],
)  # fmt: skip
def test_a_pipe_gets_the_new_words_every_few_seconds(
    shown: Sequence[tuple[float, str]], lines: Sequence[str]
) -> None:
    assert lines_in_a_pipe(*shown) == lines


def test_a_pipe_gets_no_words_soon_after_a_sentence() -> None:
    out, clock = io.StringIO(), FakeClock()
    display = client.Display(out, io.StringIO(), clock=clock)
    show(display, partial="one")
    clock.now += 4
    show(display, ONE, partial="tw")
    clock.now += 4
    show(display, ONE, partial="two and")
    clock.now += 1
    show(display, ONE, partial="two and more")
    show(display, ONE, TWO, final=True)
    assert out.getvalue().splitlines() == [
        "... one", "[0:00.0-0:02.0] one", "... two and more", "[0:02.0-0:03.0] two"
    ]  # fmt: skip


def test_a_pipe_gets_a_text_about_once_however_often_it_changes() -> None:
    words = [f"word{n}" for n in range(100)]
    lines = lines_in_a_pipe(*((0.4, " ".join(words[: n + 1])) for n in range(100)))
    assert " ".join(line.removeprefix("... ") for line in lines) == " ".join(
        words[: 1 + 13 * (len(lines) - 1)]
    )
    assert len(lines) == 8


def test_the_moving_line_is_erased_after_it_is_written_so_that_nothing_flickers() -> None:
    out = Terminal()
    display = client.Display(out, io.StringIO())
    show(display, partial="a")
    show(display, partial="b")
    assert out.getvalue() == "\ra\x1b[K\rb\x1b[K"


def test_notes_appear_above_the_moving_line() -> None:
    both = Terminal()
    display = client.Display(both, both)
    show(display, partial="on")
    display.note("careful")
    show(display, partial="one")
    assert both.screen == ["careful", "one"]


def test_a_list_that_starts_again_is_printed_again() -> None:
    out = io.StringIO()
    display = client.Display(out, io.StringIO())
    show(display, ONE)
    show(display, TWO)
    show(display)
    show(display, ((4000, 5000), "three", None))
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ["one", "two", "three"]


def test_speakers_are_shown_and_their_revision_is_told_once_at_the_end() -> None:
    out, err = io.StringIO(), io.StringIO()
    display = client.Display(out, err)
    show(display, ((0, 1000), "yes", None), ((1000, 3_725_600), "no", 0))
    assert out.getvalue() == "[0:00.0-0:01.0] yes\n[0:01.0-62:05.6] Speaker 1: no\n"
    show(display, ((0, 1000), "yes", 1), ((1000, 3_725_600), "no", 0), final=True)
    assert err.getvalue().splitlines()[1:] == ["[0:00.0-0:01.0] Speaker 2: yes"]


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("one two", 7, "one two"),
        ("one two", 4, " two"),
        ("当然可以", 8, "当然可以"),
        ("当然可以", 7, "然可以"),
        ("当然 ok", 5, "然 ok"),
        ("cafe\u0301s", 3, "fe\u0301s"),
        ("\U0001f600\U0001f600", 3, "\U0001f600"),
        ("one", 0, ""),
        ("", 5, ""),
    ],
)
def test_the_end_of_a_long_partial_is_shown_in_terminal_columns(text: str, columns: int, shown: str) -> None:
    assert client.end_that_fits(text, columns) == shown


def test_a_long_partial_stays_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    show(client.Display(out, io.StringIO()), partial="可以" * 50)
    assert out.screen == ["以可以可以可以可以"]


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("a\x1b[2Jb", "a[2Jb"),
        ("a\rb\x07\x9b31m\x7f", "ab31m"),
        ("one\ntwo", "one two"),
        ("\u202eevil\u2066", "evil"),
        ("\ud800x", "x"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("当然可以。", "当然可以。"),
    ],
)
def test_text_from_the_server_cannot_steer_the_terminal(raw: str, safe: str) -> None:
    assert client.printable(raw) == safe
    out = Terminal()
    show(client.Display(out, io.StringIO()), ((0, 100), raw, None), partial=raw)
    assert out.screen == [f"[0:00.0-0:00.1] {safe}", safe]


# --- files ------------------------------------------------------------------------------------------------


class FakeClock:
    """Time that passes only while somebody sleeps, and then longer than asked."""

    def __init__(self, oversleep: float = 0.0) -> None:
        self.now, self._oversleep = 100.0, oversleep

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self._oversleep


async def times_of(audio: Any, clock: FakeClock) -> list[float]:
    return [clock.now - 100 async for _ in audio.frames()]


async def test_frames_come_at_the_pace_of_speech_without_drift(tmp_path: Path) -> None:
    file = write_wav(tmp_path / "tone.wav", seconds=20.05)
    clock = FakeClock(oversleep=0.003)
    times = await times_of(client.FileAudio(file, 1.0, clock, clock.sleep), clock)
    due = [min(0.1 * (n + 1), 20.05) for n in range(201)]
    assert all(-1e-6 < time - wanted < 0.004 for time, wanted in zip(times, due, strict=True))


@pytest.mark.parametrize(("pace", "seconds"), [(0, 0.0), (2, 0.5), (0.5, 2.0)])
async def test_other_paces(tmp_path: Path, pace: float, seconds: float) -> None:
    clock = FakeClock()
    audio = client.FileAudio(write_wav(tmp_path / "tone.wav", seconds=1), pace, clock, clock.sleep)
    assert (await times_of(audio, clock))[-1] == pytest.approx(seconds)


async def test_a_late_frame_is_followed_by_the_next_ones_on_time(tmp_path: Path) -> None:
    clock = FakeClock()
    audio = client.FileAudio(write_wav(tmp_path / "tone.wav", seconds=1), 1.0, clock, clock.sleep)
    times = []
    async for _ in audio.frames():
        times.append(clock.now - 100)
        clock.now += 0.35 if len(times) == 1 else 0  # the network was stuck
    assert times == pytest.approx([0.1, 0.45, 0.45, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


async def test_a_file_does_not_run_away_from_the_results(tmp_path: Path) -> None:
    clock = FakeClock()
    audio = client.FileAudio(write_wav(tmp_path / "long.wav", seconds=125), 0, clock, clock.sleep)
    times = []
    async for _ in audio.frames():
        times.append(clock.now - 100)
        if len(times) == 1220:
            audio.heard_ms = 100_000
    assert times[1199] == 0
    assert times[1219] == pytest.approx(20 * client.HOLD_S)  # a frame a second
    assert times[-1] == times[1219]


async def test_a_server_that_does_not_tell_its_progress_is_not_waited_for(start: Any) -> None:
    untold = {"sentences": [], "partial": "", "is_final": False}
    async with serving(("START", [STARTED]), (AUDIO, [untold]), ("STOP", [FINAL, STOPPED])) as server:
        run = start(server)
        await run.finish()
    assert run.audio.heard_ms in (0, float("inf"))


async def test_the_results_tell_the_file_how_far_the_server_is(start: Any) -> None:
    final = result(final=True, duration_ms=300)
    async with serving(("START", [STARTED]), ("STOP", [final, STOPPED])) as server:
        run = start(server)
        await run.finish()
    assert run.audio.heard_ms == 300


async def test_stopping_ends_a_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    audio = client.FileAudio(write_wav(tmp_path / "tone.wav"), 0.001, clock, clock.sleep)

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        audio.stop()

    audio._sleep = sleep
    assert len(await times_of(audio, clock)) == 1
    assert clock.now == pytest.approx(100.1)


def samples_of(path: Path) -> np.ndarray:
    frames = list(client.open_audio(path))
    assert {len(frame) for frame in frames[:-1]} <= {client.FRAME_BYTES}
    return np.frombuffer(b"".join(frames), "<i2")


def loudest_hz(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * 16_000 / len(samples))


@pytest.mark.parametrize(
    ("name", "rate", "channels", "subtype"),
    [
        ("a.wav", 16_000, 1, "PCM_16"),
        ("a.wav", 16_000, 2, "PCM_16"),
        ("a.wav", 8_000, 2, "PCM_16"),
        ("a.wav", 44_100, 1, "PCM_16"),
        ("a.wav", 16_000, 1, "PCM_24"),
        ("a.wav", 48_000, 6, "FLOAT"),
        ("a.wav", 8_000, 1, "ULAW"),
        ("a.flac", 22_050, 1, "PCM_16"),
        ("a.ogg", 48_000, 2, "VORBIS"),
        ("a.mp3", 44_100, 2, "MPEG_LAYER_III"),
    ],
)
def test_any_container_rate_and_channel_count(
    tmp_path: Path, name: str, rate: int, channels: int, subtype: str
) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(2.5 * rate)) / rate)
    quieter = tone[:, None] * (1.0, *[0.5] * (channels - 1))
    soundfile.write(tmp_path / name, quieter, rate, subtype=subtype)
    samples = samples_of(tmp_path / name)
    assert abs(len(samples) - 40_000) < (2400 if name == "a.mp3" else 2)
    assert loudest_hz(samples) == pytest.approx(440, abs=1)
    assert np.abs(samples[8000:32_000]).max() / 32768 == pytest.approx(
        0.5 * (1 + 0.5 * (channels - 1)) / channels, rel=0.05
    )


def test_16_bit_samples_arrive_unchanged(tmp_path: Path) -> None:
    samples = np.random.default_rng(1).integers(-32768, 32768, 5000).astype(np.int16)
    for name in ("a.wav", "a.flac"):
        soundfile.write(tmp_path / name, samples, 16_000)
        np.testing.assert_array_equal(samples_of(tmp_path / name), samples)


def test_a_resampled_file_has_no_seams(tmp_path: Path) -> None:
    noise = np.random.default_rng(2).normal(0, 0.1, 44_100 * 4).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", noise, 44_100, subtype="FLOAT")
    whole = soxr.resample(noise, 44_100, 16_000) * 32768
    np.testing.assert_allclose(samples_of(tmp_path / "a.wav"), whole, atol=1)


def test_loud_and_broken_floats_are_clipped(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([2.0, -2.0, np.nan], np.float32), 16_000, subtype="FLOAT")
    assert samples_of(tmp_path / "a.wav").tolist() == [32767, -32768, 0]


@pytest.mark.parametrize("rate", [16_000, 8_000])
def test_a_long_file_is_never_held_whole(tmp_path: Path, rate: int) -> None:
    file = write_wav(tmp_path / "long.wav", seconds=300, rate=rate)
    tracemalloc.start()
    try:
        count = sum(len(frame) // 2 for frame in client.open_audio(file))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert abs(count - 300 * 16_000) < 2
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"this is a text\n" * 100, "as audio"),
        ("no samples", "holds no audio"),
    ],
)
def test_useless_files_are_one_sentence(
    tmp_path: Path, content: bytes | str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "speech.wav"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        write_wav(file, seconds=0)
    assert client.main(["--file", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert str(file) in err
    assert err.count("\n") == 1


def test_a_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert client.main(["--file", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


def test_a_wav_cut_inside_a_sample_is_read_to_there(tmp_path: Path) -> None:
    file = write_wav(tmp_path / "a.wav", seconds=1, channels=2)
    file.write_bytes(file.read_bytes()[: 44 + 4 * 8000 + 3])
    assert len(samples_of(file)) == 8000


class DamagedAudio:
    """A file that turns out to be damaged after a frame."""

    heard_ms = 0.0

    async def frames(self) -> AsyncIterator[bytes]:
        yield bytes(client.FRAME_BYTES)
        raise client.ClientError("cannot read speech.flac as audio", 2)

    def stop(self) -> None:
        raise AssertionError


async def test_of_a_damaged_file_the_good_part_is_recognized_and_the_status_tells() -> None:
    async with serving(*SESSION) as server:
        run = Run(server.address, DamagedAudio(), io.StringIO())
        failure = await run.fail()
    assert failure.exit_code == 2
    assert run.out.getvalue() == "[0:00.3-0:01.2] hello\n"


# --- the microphone ---------------------------------------------------------------------------------------


class FakeStream:
    """What sounddevice.RawInputStream does: calls back on a thread of its own."""

    def __init__(self, on_block: Callable[..., None], on_end: Callable[[], None]) -> None:
        self.on_block, self.on_end, self.open = on_block, on_end, False

    def __enter__(self) -> FakeStream:
        self.open = True
        return self

    def __exit__(self, *error: object) -> None:
        self.open = False
        self._call(self.on_end)

    def deliver(self, *blocks: bytes, status: object = None) -> None:
        self._call(lambda: [self.on_block(memoryview(b), len(b) // 2, None, status) for b in blocks])

    def unplug(self) -> None:
        self._call(self.on_end)

    @staticmethod
    def _call(what: Callable[[], object]) -> None:
        thread = threading.Thread(target=what)
        thread.start()
        thread.join()


def microphone() -> tuple[Any, FakeStream, list[str]]:
    streams: list[FakeStream] = []
    notes: list[str] = []

    def open_stream(on_block: Callable[..., None], on_end: Callable[[], None]) -> FakeStream:
        streams.append(FakeStream(on_block, on_end))
        return streams[0]

    audio = client.MicAudio(open_stream, notes.append)
    return audio, streams[0], notes


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - of a plain object
            await asyncio.sleep(0.005)


async def test_a_microphone_block_wakes_a_client_whose_socket_is_quiet() -> None:
    audio, stream, notes = microphone()
    heard = result(partial="hel")
    async with serving(("START", [STARTED]), (AUDIO, [heard]), ("STOP", [FINAL, STOPPED])) as server:
        out, shown = io.StringIO(), asyncio.Event()
        loop = asyncio.get_running_loop()

        class Watched(client.Display):  # type: ignore[misc, name-defined]
            def result(self, *arguments: Any) -> None:
                super().result(*arguments)
                shown.set()

        options = client.Options(server=server.address)
        running = asyncio.create_task(client.Client(options, audio, Watched(out, io.StringIO())).run())
        await until(lambda: stream.open)
        # From another thread, while this loop has nothing else to wake up for.
        await loop.run_in_executor(None, stream.deliver, bytes(client.FRAME_BYTES))
        await asyncio.wait_for(shown.wait(), 1.0)
        assert out.getvalue() == "... hel\n"
        audio.stop()
        await asyncio.wait_for(running, SECONDS)
    assert out.getvalue().endswith("hello\n")
    assert not stream.open
    assert notes == ["listening; Ctrl-C ends the recording"]


async def test_the_block_being_filled_at_ctrl_c_is_sent() -> None:
    audio, stream, _ = microphone()
    async with serving(*SESSION) as server:
        run = Run(server.address, audio, io.StringIO())
        running = asyncio.create_task(run.finish())
        await until(lambda: stream.open)
        stream.deliver(b"\1" * client.FRAME_BYTES)
        run.client.interrupt()
        stream.deliver(b"\2" * client.FRAME_BYTES)
        await running
    assert server.audio == b"\1" * client.FRAME_BYTES + b"\2" * client.FRAME_BYTES


async def test_a_microphone_that_is_unplugged_ends_the_session_with_its_final() -> None:
    audio, stream, _ = microphone()
    async with serving(*SESSION) as server:
        run = Run(server.address, audio, io.StringIO())
        running = asyncio.create_task(run.finish())
        await until(lambda: stream.open)
        stream.unplug()
        assert len(await running) == 1


async def test_dropped_microphone_audio_is_bounded_counted_and_told() -> None:
    audio, stream, notes = microphone()
    blocks = [n.to_bytes(2, "little") for n in range(client.MIC_QUEUE_BLOCKS + 25)]
    stream.deliver(*blocks)
    await until(lambda: notes)
    assert notes == ["the network or this computer does not keep up: microphone audio is being dropped"]
    audio.stop()
    got = [block async for block in audio.frames()]
    assert got == blocks[: client.MIC_QUEUE_BLOCKS]
    assert notes[-1] == "dropped 25 blocks of microphone audio, 0.1 s each"


async def test_audio_that_the_driver_lost_is_told() -> None:
    audio, stream, notes = microphone()
    stream.deliver(b"\0\0", status="input overflow")
    audio.stop()
    assert [block async for block in audio.frames()] == [b"\0\0"]
    assert notes[-1].startswith("dropped 1 block")


DRIVER = """
class PortAudioError(Exception): pass
asked = []
def query_devices(): return "0 a microphone"
class RawInputStream:
    def __init__(self, **given):
        asked.append(given)
        if given["device"] == 7: raise PortAudioError("Invalid device")
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install a module called sounddevice."""

    def install(source: str) -> None:
        (tmp_path / "sounddevice.py").write_text(source)

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    yield install
    sys.modules.pop("sounddevice", None)


async def test_the_microphone_is_opened_as_the_wire_wants_it(driver: Any) -> None:
    driver(DRIVER)
    client.open_microphone(3, print)
    given = client.need("sounddevice").asked[0]
    assert callable(given.pop("callback"))
    assert callable(given.pop("finished_callback"))
    assert given == {"samplerate": 16_000, "blocksize": 1600, "device": 3, "channels": 1, "dtype": "int16"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (DRIVER, "cannot open the microphone (Invalid device)"),
        ("raise ImportError", f"run: {sys.executable} -m pip install sounddevice (on Debian and Ubuntu: "),
        ("raise ImportError", "apt install libportaudio2"),
        ("raise OSError('PortAudio library not found')", "apt install libportaudio2"),
    ],
)
def test_a_microphone_that_cannot_be_used(
    driver: Any, source: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    driver(source)
    assert client.main(["--mic", "--device", "7"]) == 2
    assert words in capsys.readouterr().err


def test_microphones_are_listed(driver: Any, capsys: pytest.CaptureFixture[str]) -> None:
    driver(DRIVER)
    assert client.main(["--list-devices"]) == 0
    assert capsys.readouterr().out == "0 a microphone\n"


# --- the command line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "one of the arguments"),
        (["--mic", "--file", "a.wav"], "not allowed with argument"),
        (["--file", "a.wav", "--pace", "-1"], "argument --pace: -1 is not a number from 0 to 1000\n"),
        (["--file", "a.wav", "--pace", "nan"], "argument --pace: nan is not a number from 0 to 1000\n"),
        (["--file", "a.wav", "--pace", "fast"], "argument --pace: invalid float value: 'fast'\n"),
        (
            ["--file", "a.wav", "--server", "http://localhost:10095"],
            "argument --server: http://localhost:10095 is no address like ws://localhost:10095\n",
        ),
        (["--file", "a.wav", "--unknown"], "--unknown"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        client.main(arguments)
    assert ended.value.code == 2
    assert "error: " in (err := capsys.readouterr().err)
    assert words in err


def test_a_bare_host_and_port_are_an_address(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert client.main(["--file", str(recording), "--server", address]) == 1
    assert f"no server at ws://{address}: " in capsys.readouterr().err


def test_help_says_what_a_pipe_gets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        client.main(["--help"])
    assert "in a pipe, its new words every 5 s" in " ".join(capsys.readouterr().out.split())


async def test_the_whole_command(recording: Path) -> None:
    heard = result(partial="hel")
    async with serving(("START", [STARTED]), (AUDIO, [heard]), ("STOP", [FINAL, STOPPED])) as server:
        command = [sys.executable, str(PATH), "--server", server.address, "--file", str(recording)]
        process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err) == (0, b"")
    assert out.decode().splitlines() == ["... hel", "[0:00.3-0:01.2] hello"]


# --- the real server --------------------------------------------------------------------------------------


def test_the_real_server(tmp_path: Path) -> None:
    """A limit that is reached while STOP waits, a language nobody speaks, TLS: each is told, none is a success."""
    file = write_wav(tmp_path / "tone.wav", seconds=3)
    flags = ("--engine", "fake", "--vad", "level", "--max-session-seconds", "2", "--fake-decode-ms", "300")
    with LiveServer(*flags) as server:

        def run(*more: str) -> tuple[int, str, list[str]]:
            command = [
                sys.executable,
                str(PATH),
                "--file",
                str(file),
                "--pace",
                "0",
                "--server",
                server.url,
                *more,
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            return done.returncode, done.stdout, done.stderr.splitlines()

        code, out, err = run()
        assert code == 1
        assert out.endswith("one two three four\n")
        assert err == [
            "the server says: the session reached its limit of 2 s of audio",
            "the server cut the session short (limit)",
        ]
        code, out, err = run("--language", "klingon")
        assert (code, out) == (2, "")
        assert len(err) == 1
        assert "unknown language 'klingon'" in err[0]
        code, out, err = run("--server", server.url.replace("ws:", "wss:"))
        assert (code, out, len(err)) == (1, "", 1)
        assert "the TLS handshake failed" in err[0]
    server.stop()
    codes = [line.rpartition(" ")[2].strip() for line in server.log.splitlines() if "close code" in line]
    assert codes == ["1008", "1000"]

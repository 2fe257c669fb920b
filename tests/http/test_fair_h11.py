"""Connections: bodies in tiny chunks, heads that do not come, clients that end their side."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from realtime_server.doors.tls import ServerTls
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.http.fair_h11 import LOOK_S, PIECE, FairH11
from tests.certificates import make_certificate, trusting
from tests.http.harness import LIVE, Files, serving
from tests.http.process import TALK_WAV, TEXT
from tests.realtime.harness import eventually

HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
HEADERS = {"Content-Type": "multipart/form-data; boundary=x"}
BODY = HEAD + TALK_WAV + b"\r\n--x--\r\n"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what h11 is given at once."""
    sizes: list[int] = []
    take = H11Protocol.data_received

    def noting(self: H11Protocol, data: bytes) -> None:
        sizes.append(len(data))
        take(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", noting)
    return sizes


@pytest.mark.parametrize("size", [50, 10_000, 100_000])
async def test_chunks_are_taken_in_pieces(size: int, seen: list[int]) -> None:
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(chunk), chunk)
        for chunk in (BODY[start : start + size] for start in range(0, len(BODY), size))
    )
    head = f"POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    async with serving() as files:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        for _ in range(2):  # the connection is kept
            writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert TEXT.encode() in await reader.readuntil(b"}\n")
        writer.close()
    assert max(seen) <= PIECE
    assert sum(seen) > 2 * len(chunks)


async def test_a_body_with_a_length_is_taken_as_it_comes(seen: list[int]) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield BODY[:1000]
        await asyncio.sleep(0.02)
        yield BODY[1000:]

    async with serving() as files:
        headers = {**HEADERS, "Content-Length": str(len(BODY))}
        answer = await files.http.post("/asr", content=body(), headers=headers)
    assert answer.json()["text"] == TEXT
    assert max(seen) > PIECE


async def test_one_that_leaves_in_its_middle(caplog: pytest.LogCaptureFixture) -> None:
    head = f"POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    async with serving() as files:
        _, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        begin = b"%x\r\n%s\r\n" % (len(HEAD), HEAD)
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + begin + b"1\r\nx\r\n" * 20_000)
        await asyncio.sleep(0.02)
        writer.transport.abort()
    assert not caplog.records


# --- half a head ------------------------------------------------------------------------------------------


@asynccontextmanager
async def speaking(files: Files) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize(
    "head", [b"G", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"POST /asr HTTP/1.1\r\nHo"]
)
async def test_half_a_head_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairH11, "head_s", 0.05)
    async with serving() as files, speaking(files) as (reader, writer):
        writer.write(head)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()
    assert b"the head of the request did not come within 0.05 s" in answer


async def test_a_head_that_trickles_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairH11, "head_s", 0.1)
    async with serving() as files, speaking(files) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\n")
        answered = asyncio.create_task(reader.readuntil(b"}}"))
        while not answered.done():
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.01)
        assert (await answered).startswith(b"HTTP/1.1 408 ")


async def test_who_asks_for_nothing_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairH11, "head_s", 0.05)
    async with serving() as files, speaking(files) as (reader, _):
        assert await reader.read() == b""


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"no HTTP\r\n\r\n"])
async def test_who_does_not_answer_the_goodbye_of_tls_is_cut_off(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(FairH11, "head_s", 0.05)
    certificate = make_certificate(tmp_path)
    live = replace(LIVE, tls=ServerTls(certificate).context)
    async with serving(live=live, verify=trusting(certificate)) as files:
        address = "127.0.0.1", int(files.url.rpartition(":")[2])

        def connect_and_sit() -> ssl.SSLSocket:
            client = trusting(certificate).wrap_socket(
                socket.create_connection(address), server_hostname="localhost"
            )
            client.sendall(sent)
            return client

        connections = files.server._server.server_state.connections
        with await asyncio.to_thread(connect_and_sit):
            await eventually(lambda: connections)
            await eventually(lambda: not connections)  # the event loop alone would wait for half a minute


async def test_who_says_goodbye_of_tls_before_the_answer_is_no_news(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    live = replace(LIVE, tls=ServerTls(certificate).context)
    async with serving(live=live, verify=trusting(certificate)) as files:
        address = "127.0.0.1", int(files.url.rpartition(":")[2])

        def ask_and_leave() -> None:
            client = trusting(certificate).wrap_socket(
                socket.create_connection(address), server_hostname="localhost"
            )
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with suppress(OSError):  # the server's own goodbye may come first
                client.unwrap()
            client.close()

        for _ in range(5):
            await asyncio.to_thread(ask_and_leave)
        await eventually(lambda: not files.server._server.server_state.connections)
    assert not caplog.records


async def test_every_head_of_a_connection_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairH11, "head_s", 0.2)
    async with serving(FakeEngine(decode_s=0.3)) as files, speaking(files) as (reader, writer):
        head = f"POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
        for _ in range(2):  # each takes longer than a head may
            writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert TEXT.encode() in await reader.readuntil(b"}\n")
        writer.write(b"GET /hea")
        assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 408 ")


async def test_what_is_no_http(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as files, speaking(files) as (reader, writer):
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"type": "invalid_request_error"' in answer
    assert not caplog.records


@pytest.mark.parametrize("path", ["GET /health", "POST /asr", "GET /nowhere"])
async def test_a_body_that_is_no_body(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whether it is noticed before the application begins, or after it has answered."""
    head = f"{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    async with serving() as files:
        async with speaking(files) as (reader, writer):
            writer.write(f"{head}ZZZ\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        async with speaking(files) as (reader, writer):
            writer.write(f"{head}1\r\n-\r\n".encode())
            answer = b"" if path == "POST /asr" else await reader.readuntil(b"\r\n\r\n")
            writer.write(b"ZZZ\r\n")
            answer += await reader.read()
            assert answer.count(b"HTTP/1.1 ") == 1
        await eventually(lambda: files.service.running == 0)
    assert not caplog.records


# --- a client that sends no more --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [b"false", b"true"])
async def test_who_ends_his_side_gets_his_answer(stream: bytes) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="stream"\r\n\r\n%s\r\n%s' % (stream, BODY)
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    async with serving(FakeEngine(decode_s=2 * LOOK_S)) as files, speaking(files) as (reader, writer):
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.write_eof()
        answer = await reader.read()
    first, _, rest = answer.partition(b"\r\n\r\n")
    assert first == b"HTTP/1.1 100 "
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert b"eight nine ten eleven" in rest


async def test_who_ends_his_side_in_the_middle_of_a_request_is_not_waited_for() -> None:
    async with serving() as files, speaking(files) as (reader, writer):
        writer.write(b"POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123")
        writer.write_eof()
        assert b" 200 " not in await reader.read()
        await eventually(lambda: files.service.running == 0)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_who_has_left_altogether_takes_his_work_with_him(version: str) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with serving(engine) as files:
        async with speaking(files) as (_, writer):
            head = (
                f"POST /asr HTTP/{version}\r\nHost: localhost\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
            )
            writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
            await eventually(lambda: engine.running == 2)
        await eventually(lambda: engine.running == 0 and files.service.running == 0)

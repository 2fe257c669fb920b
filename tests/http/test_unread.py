"""Bodies that still come after the answer: read to a limit, then the connection is closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from realtime_server.http import unread
from realtime_server.http.unread import UnreadLimits
from tests.http.harness import Files, serving

HEAD = "multipart/form-data; boundary=x"
MIB = bytes(1 << 20)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller ones."""
    small = UnreadLimits(dropped_bytes=8 << 20, within_s=0.5, silent_s=0.2, ending_s=0.1)
    monkeypatch.setattr(unread, "UnreadLimits", lambda: small)


async def connect(files: Files, path: str, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEAD}\r\nContent-Length: {length}\r\n\r\n"
    )
    writer.write(head.encode())
    return reader, writer


@pytest.mark.parametrize(("path", "status"), [("/asr", b"413"), ("/nothing", b"404")])
async def test_an_endless_body_is_cut_off(path: str, status: bytes) -> None:
    sent = 0
    async with serving() as files:
        reader, writer = await connect(files, path, 10**12)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"connection: close" in head.lower()
        with suppress(ConnectionError):
            while sent < 100:
                writer.write(MIB)
                await writer.drain()
                sent += 1
        writer.close()
    assert 8 <= sent < 32  # buffers of the system among them


async def test_a_body_below_the_limit_is_read_to_its_end() -> None:
    async with serving() as files:
        reader, writer = await connect(files, "/nothing", 4 << 20)
        for _ in range(4):
            writer.write(MIB)
            await writer.drain()
        answer = await reader.read()  # ends without an error
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert answer.endswith(b"}")
        writer.close()


@pytest.mark.parametrize("pause_s", [0.01, 10.0])
async def test_a_body_that_trickles_or_stops_is_cut_off(pause_s: float) -> None:
    async with serving() as files:
        reader, writer = await connect(files, "/nothing", 1000)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        ended = asyncio.create_task(reader.read())
        async with asyncio.timeout(2.0):
            while not ended.done():
                writer.write(b"x")
                await asyncio.wait({ended}, timeout=pause_s)
        assert isinstance(ended.exception(), ConnectionError | None)
        writer.close()


@pytest.mark.parametrize("early", [False, True])
async def test_the_end_of_the_server_does_not_wait_for_it(
    early: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unread, "UnreadLimits", lambda: UnreadLimits(ending_s=0.1))
    async with serving() as files:
        reader, writer = await connect(files, "/nothing", 1000)
        files.service.draining = early
        await reader.readuntil(b"\r\n\r\n")
        await files.stop()
        writer.close()
    assert not caplog.records


async def test_what_has_no_body_keeps_its_connection() -> None:
    async with serving() as files:
        answers = [
            await files.http.get("/nothing"),
            await files.http.post("/nothing"),
            await files.post(spk="x"),
        ]
    assert [answer.status_code for answer in answers] == [404, 404, 400]
    assert not any("connection" in answer.headers for answer in answers)

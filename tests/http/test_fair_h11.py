"""Bodies in tiny chunks, taken in turns with everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from realtime_server.http.fair_h11 import PIECE
from tests.http.harness import serving
from tests.http.process import TALK_WAV, TEXT

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
    head = f"POST /asr HTTP/1.1\r\nHost: x\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
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
    head = f"POST /asr HTTP/1.1\r\nHost: x\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    async with serving() as files:
        _, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        begin = b"%x\r\n%s\r\n" % (len(HEAD), HEAD)
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + begin + b"1\r\nx\r\n" * 20_000)
        await asyncio.sleep(0.02)
        writer.transport.abort()
    assert not caplog.records

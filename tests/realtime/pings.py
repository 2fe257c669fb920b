"""A WebSocket client on a bare socket, which pings and reads nothing."""

from __future__ import annotations

import asyncio
import ssl

HEAD = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PINGS = (b"\x89\xfd\0\0\0\0" + b"p" * 125) * 500  # 65 kB, whose answers are almost as long


async def dial(
    port: int, path: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and have the handshake accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(HEAD.format(path=path).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return reader, writer


async def flood(port: int, path: str, most: int, tls: ssl.SSLContext | None = None) -> int:
    """Ping until the server hangs up; return how many bytes it took, at most `most`."""
    _, writer = await dial(port, path, tls)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
    sent = 0
    try:
        while sent < most:
            writer.write(PINGS)
            await writer.drain()
            sent += len(PINGS)
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return sent


async def ping_and_read(port: int, path: str, rounds: int) -> int:
    """Ping, and take the answers; return how many bytes came."""
    reader, writer = await dial(port, path)
    answered = len(PINGS) // 131 * 127 * rounds
    writer.write(PINGS * rounds)
    got = len(await reader.readexactly(answered))
    writer.transport.abort()
    return got

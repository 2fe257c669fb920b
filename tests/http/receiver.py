"""A webhook's receiver on loopback, which answers as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any


class Receiver:
    """Keeps what is POSTed to it: `tries` all of it, `taken` what it answered 2xx.

    statuses: its first answers; then 200.  hold: while it is clear, nothing is answered.
    """

    def __init__(self, statuses: Iterable[int] = ()) -> None:
        self._statuses = list(statuses)
        self.hold = asyncio.Event()
        self.hold.set()
        self.tries: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.taken: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.tries.append((headers, body))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.hold.wait()
        self.at_once -= 1
        status = self._statuses.pop(0) if self._statuses else 200
        if status < 300:
            self.taken.append(body)
        where = f"Location: {self.url}elsewhere\r\n" if 300 <= status < 400 else ""
        writer.write(
            f"HTTP/1.1 {status} Told\r\n{where}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    """A receiver on a free port."""
    receiver = Receiver(statuses)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/calls?key=secret-of-the-url"
    async with server:
        yield receiver
        receiver.hold.set()

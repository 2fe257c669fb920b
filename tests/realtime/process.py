"""The server as a process of its own, started as a user starts it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.protocol import State

from tests.realtime.harness import Client

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0  # for a Python to start on a busy machine
FLAGS = ("serve", "--engine", "fake", "--vad", "level", "--port", "0")
COMMAND = ("-m", "realtime_server", *FLAGS)


@dataclass
class Process:
    """A running server; `log` is what it has written to standard error."""

    process: asyncio.subprocess.Process
    port: int = 0
    log: list[str] = field(default_factory=list)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def exit_code(self, within_s: float) -> int:
        """Wait for the end, reading the log."""
        async with asyncio.timeout(within_s):
            await self._read_log("\0")
            return await self.process.wait()

    async def until_logged(self, text: str, within_s: float = START_S) -> str:
        """Read the log up to a line with this text."""
        async with asyncio.timeout(within_s):
            line = await self._read_log(text)
        assert text in line, "".join(self.log)
        return line

    async def _read_log(self, text: str) -> str:
        assert self.process.stderr
        line = ""
        while text not in line and (line := (await self.process.stderr.readline()).decode()):
            self.log.append(line)
        return line

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        connection = await connect(f"ws://127.0.0.1:{self.port}", **{"compression": None, **options})
        try:
            yield Client(connection)
        finally:
            if connection.state is not State.CLOSED:
                await connection.close()


@asynccontextmanager
async def served(
    *flags: str, module: str = "realtime_server", start_s: float = START_S, **environment: str
) -> AsyncIterator[Process]:
    """Start a server on a free port; it is killed if it still runs at the end.

    module: what is run with these flags.  start_s: how long it may take to be ready.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *FLAGS, *flags, cwd=ROOT, env=os.environ | environment,
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    server = Process(process)
    try:
        ready = await server.until_logged("ready: ", start_s)
        found = re.search(r"https?://127\.0\.0\.1:(\d+)/", ready)
        assert found, ready
        server.port = int(found[1])
        yield server
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()

"""Transcripts of calls as files of JSON lines: one for each call, written as the messages come.

While a call runs its file ends in `.part`; it is renamed when all is in it. A file that cannot be written costs the
call nothing but the file, and is told of once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from realtime_server.http.threads import in_thread

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000  # lines; only a disk that hangs makes them wait
PART = ".part"
Write = Callable[[BinaryIO, bytes], object]


def write(file: BinaryIO, data: bytes) -> None:
    """Write all of it, so that readers see whole lines."""
    file.write(data)
    file.flush()


class CallFile:
    """One call's file in a folder; `name` is safe there. Files of one call name do not collide: `id` is in it, too."""

    def __init__(self, folder: Path, name: str, id: str, write: Write = write) -> None:
        self.path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}-{id}.jsonl"
        self._part = self.path.with_name(self.path.name + PART)
        self._write = write
        self._file: BinaryIO | None = None
        self._lines: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._finished = self._failed = False

    def put(self, message: Mapping[str, Any]) -> None:
        """Append a message, soon."""
        if len(self._lines) >= MOST_WAITING:
            self._fail("the disk does not take it")
        if not self._failed:
            self._lines.append(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            self._news.set()

    def finish(self) -> None:
        """No more will come."""
        self._finished = True
        self._news.set()

    async def run(self) -> None:
        """Write until all is written after `finish`."""
        try:
            while not self._finished or self._lines:
                await self._news.wait()
                self._news.clear()
                data = b"".join(self._lines)
                self._lines.clear()
                await in_thread("call file", partial(self._append, data))
            await in_thread("call file", self._close)
        except OSError as error:
            self._fail(error.strerror or str(error))
            await in_thread("call file", self._abandon)
        except asyncio.CancelledError:
            logger.error("the server ended before the disk had taken the transcript %s", self._part.name)
            # A write that hangs holds the file's lock: whoever closes it may hang, too.
            threading.Thread(target=self._abandon, name="call file", daemon=True).start()
            raise

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._part.open("xb")
        self._write(self._file, data)

    def _close(self) -> None:
        if self._file:
            self._file.close()
            if not self._failed:
                self._part.rename(self.path)

    def _abandon(self) -> None:
        if self._file:
            with suppress(OSError):  # it tries once more what failed
                self._file.close()

    def _fail(self, why: str) -> None:
        if not self._failed:
            logger.error("the transcript %s is not written any more: %s", self._part.name, why)
        self._failed = True
        self._lines.clear()

"""Readers of a session: any number of WebSockets, of any port, that are sent its messages and send nothing.

Each reads the session's event log at its own pace, in protocol 2, whatever protocol the speaker uses. One that falls so
far behind that the log has moved on is sent away, to come again; one that takes nothing at all is dropped. Neither is
noticed by the session, nor by anybody else: what is told of the past is written a few sentences at a time, for one
viewer after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from realtime_server.core.messages import Event
from realtime_server.core.wire_v2 import WireV2
from realtime_server.errors import BusyError, NoSessionError
from realtime_server.realtime.addresses import ToView
from realtime_server.realtime.archive import Archive, Kept
from realtime_server.realtime.event_log import EventReader, ReaderTooSlowError
from realtime_server.realtime.options import ServerOptions

logger = logging.getLogger(__name__)

GATHER_S = 0.1  # what is told within this time goes out together: partials fold, and many viewers cost less
AT_ONCE = 64  # events of the past that are written in one step of the event loop: about a millisecond
NEWS_AT_ONCE = 256  # of those that are new, most of which are partials that fold


class Viewing:
    """One viewer's place in a session: `take` returns what it is to be sent next, until it is `over`.

    sentences: how many of those that were locked before are told at first, None for all.  turn: of the viewers that
    are told the past.  leave: called once, by close.
    """

    def __init__(
        self, kept: Kept, sentences: int | None = None, *, turn: asyncio.Lock | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._kept, self._sentences, self._leave = kept, sentences, leave
        self._turn = turn or asyncio.Lock()
        self._wire = WireV2(kept.id)
        self._past: Iterator[Event] | None = None  # once it is all told: none
        self._reader: EventReader | None = None

    async def take(self) -> list[str]:
        """Wait for news and return some of them as messages, which may be none. Raises ReaderTooSlowError."""
        if self._reader is None:
            self._reader = self._kept.log.add_reader(latest=True)
            self._past = self._kept.record.catch_up(self._sentences)
        if self._past is None:
            return self._wire.encode(await self._reader.take(NEWS_AT_ONCE))
        async with self._turn:
            await asyncio.sleep(0)
            return self._wire.encode(self._take_past(self._past))

    @property
    def session(self) -> str:
        """The session's id."""
        return self._kept.id

    @property
    def over(self) -> bool:
        """Whether everything was told and nothing will follow."""
        told = self._reader is not None and self._past is None and not self._reader.behind
        return told and self._kept.log.closed

    @property
    def late(self) -> bool:
        """Whether so much waits for the viewer that the next of it is to be taken at once."""
        return self._past is not None or (self._reader is not None and self._reader.behind >= NEWS_AT_ONCE)

    def close(self) -> None:
        """Read no more."""
        if self._reader:
            self._reader.close()
        leave, self._leave = self._leave, None
        if leave:
            leave()

    def _take_past(self, past: Iterator[Event]) -> list[Event]:
        events = list(islice(past, AT_ONCE))
        if len(events) < AT_ONCE:
            self._past = None
        return events


class Gallery:
    """Lets viewers in to the sessions of an archive, on all ports together so many at once."""

    def __init__(self, archive: Archive, options: ServerOptions) -> None:
        self._archive, self._options = archive, options
        self._count, self._turn = 0, asyncio.Lock()

    def __len__(self) -> int:
        return self._count

    def find(self, name: str) -> Kept:
        """The session of this name or id. Raises NoSessionError."""
        kept = self._archive.find(name)
        if kept is None:
            raise NoSessionError(
                f"there is no session '{name}'; it may come, or be over: try again in 2 seconds"
            )
        return kept

    def tell(self, name: str) -> dict[str, object]:
        """What somebody may know who waits for a session: its id, and whether it runs. Raises NoSessionError."""
        kept = self.find(name)
        return {"session": kept.id, "running": not kept.log.closed}

    def open(self, wanted: ToView) -> Viewing:
        """Let a viewer in, who must `close` what he gets. Raises NoSessionError and BusyError."""
        kept = self.find(wanted.name)
        most = self._options.max_viewers
        if self._count >= most:
            raise BusyError(f"the server has {most} viewers already")
        self._count += 1
        return Viewing(kept, wanted.history, turn=self._turn, leave=self._leave)

    async def show(self, viewing: Viewing, socket: ViewerSocket) -> None:
        """Serve a viewer until the session has ended or he has left, and close what he got."""
        await ViewerConnection(socket, viewing, self._options).run()

    def _leave(self) -> None:
        self._count -= 1


class ViewerSocket(Protocol):
    """A WebSocket of whatever library; its methods raise `gone` once the other side has left."""

    @property
    def gone(self) -> type[Exception]:
        """What they raise."""

    async def send(self, message: str) -> None:
        """Send a message; wait while the other side does not read."""

    async def receive(self) -> None:
        """Wait for any message."""

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye."""

    def abort(self) -> None:
        """Cut the connection."""


class ViewerConnection:
    """Carries a Viewing over a connection; `run` returns when either has ended."""

    def __init__(self, socket: ViewerSocket, viewing: Viewing, options: ServerOptions) -> None:
        self._socket, self._viewing, self._options = socket, viewing, options

    async def run(self) -> None:
        """Send until the session has ended or the viewer is gone; a frame from it ends the connection."""
        listening = asyncio.create_task(self._socket.receive())
        sending = asyncio.create_task(self._send())
        try:
            await asyncio.wait((listening, sending), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
                return
            await _end(sending)
            if listening.exception() is None:
                await self._close(1008, "viewers send nothing")
        except Exception:
            logger.exception("a viewer of session %s: internal error", self._viewing.session)
            await self._close(1011, "internal error")
        finally:
            await _end(listening, sending)
            self._viewing.close()

    async def _send(self) -> None:
        socket, viewing = self._socket, self._viewing
        try:
            while not viewing.over:
                for message in await viewing.take():
                    async with asyncio.timeout(self._options.send_timeout_s):
                        await socket.send(message)
                if not viewing.late:
                    await asyncio.sleep(GATHER_S)
        except ReaderTooSlowError as error:
            logger.info("a viewer of session %s fell behind: %s", viewing.session, error)
            await self._close(1013, "you fell too far behind; connect again to be told where things are")
            return
        except TimeoutError:
            logger.info("a viewer does not read its messages")
            socket.abort()
            return
        except socket.gone:
            return
        await self._close(1000, "the session has ended")

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(self._options.close_s):
                await self._socket.close(code, reason)
        except TimeoutError:
            self._socket.abort()
        except self._socket.gone:
            return


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class LiveSocket:
    """A connection of the live port; see ViewerSocket."""

    gone = ConnectionClosed

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def send(self, message: str) -> None:
        """Send a message; wait while the other side does not read."""
        await self._connection.send(message)

    async def receive(self) -> None:
        """Wait for any message."""
        await self._connection.recv()

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye."""
        await self._connection.close(code, reason)

    def abort(self) -> None:
        """Cut the connection."""
        self._connection.transport.abort()

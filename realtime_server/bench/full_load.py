"""The time in which all clients speak: what they saw in it, and what it cost the server and themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from realtime_server.bench import swarm
from realtime_server.bench.accounting import Heard
from realtime_server.bench.machine import Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """Counts so far. server: of its process and those it started, None if they are not known; front: of it alone."""

    at_s: float
    client_cpu_s: float
    server: Usage | None
    messages: int  # received by all clients
    bytes: int
    front: Usage | None = None

    @classmethod
    def now(cls, logs: Sequence[swarm.Log], pid: int | None) -> Moment:
        """Look at everything."""
        server = front = None
        with suppress(OSError):  # it has ended
            server, front = (None, None) if pid is None else (Usage.of_all(pid), Usage.of(pid))
        messages, size = sum(log.messages for log in logs), sum(log.bytes for log in logs)
        return cls(time.monotonic(), time.process_time(), server, messages, size, front)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients saw, and the moments between which all of them spoke. pace: of all clients."""

    logs: Sequence[swarm.Log]
    began: Moment
    ended: Moment
    pace: float = 1.0

    @property
    def seconds(self) -> float:
        """For how long all clients spoke."""
        return self.ended.at_s - self.began.at_s

    @property
    def client_cores(self) -> float:
        """Cores' worth of CPU that this process used meanwhile, out of the one that its event loop can use."""
        return (self.ended.client_cpu_s - self.began.client_cpu_s) / self.seconds

    @property
    def server(self) -> tuple[Usage, Usage] | None:
        """The server at both moments."""
        before, after = self.began.server, self.ended.server
        return (before, after) if before and after else None

    @property
    def front_cores(self) -> float | None:
        """Cores' worth of CPU that the process with the server's event loop used meanwhile."""
        before, after = self.began.front, self.ended.front
        return after.cores_since(before) if before and after else None

    def under_load(self, find: Callable[[Heard], Sequence[tuple[float, T]]]) -> list[T]:
        """Values from (time in the take, value) pairs of all takes whose time fell into the full load."""
        found = []
        for log in self.logs:
            for heard, began_s in zip(log.takes, log.began_s, strict=True):
                times = ((began_s + at / 1000 / (self.pace or 1), value) for at, value in find(heard))
                found += [value for at_s, value in times if self.began.at_s <= at_s <= self.ended.at_s]
        return found


def starts(clients: int, stagger_s: float) -> list[float]:
    """When each client begins, in uneven steps: packets of 100 ms are to fall on different moments of the 100 ms."""
    return [stagger_s * (n + n * 0.618 % 1) / clients for n in range(clients)]


async def run(clients: Sequence[swarm.Client], pid: int | None, pace: float = 1.0) -> Outcome:
    """Let all clients speak. The load is full from the last one's beginning to the first one's end."""
    logs = [client.log for client in clients]
    running = asyncio.create_task(swarm.run(clients))
    await asyncio.sleep(max(client.delay_s for client in clients))
    began = Moment.now(logs, pid)
    ends = [asyncio.create_task(client.spoken.wait()) for client in clients]
    await asyncio.wait((running, *ends), return_when=asyncio.FIRST_COMPLETED)
    ended = Moment.now(logs, pid)
    for end in ends:
        end.cancel()
    await running
    return Outcome(logs, began, ended, pace)

"""The clients of a load, spread over processes of their own: one event loop does not hold hundreds."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from realtime_server.bench import full_load, speech, swarm
from realtime_server.bench.load import takes_of
from realtime_server.bench.options import Load
from realtime_server.bench.speech import Recording

FULL_SCALE = 32768  # of the samples in a file
FIRST_S, AHEAD_S = (
    5.0,
    1.0,
)  # until the first client begins, in the first step and in later ones: takes are packed
DIFFERENT = 64  # streams at most; a recording has as many as spells of speech
GRACE_S = 2 * swarm.PATIENCE_S  # for the clients of a step to end, after their audio


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does: clients number `first`, `first + every` and so on, of a step's."""

    url: str
    load: Load
    clients: int
    first: int
    every: int
    begin_s: float  # by time.monotonic, which all processes share


@dataclass(frozen=True, slots=True)
class Told:
    """What one process saw. cores: of CPU that it used while its clients spoke."""

    logs: Sequence[swarm.Log]
    cores: float


def save_speech(path: Path) -> None:
    """Write the fetched demo recording as 16-bit samples, for a machine that has none."""
    samples = speech.reading().samples
    np.savez_compressed(
        path, samples=np.rint(samples * FULL_SCALE).clip(-FULL_SCALE, FULL_SCALE - 1).astype("<i2")
    )


def takes_for(load: Load, recording: Path, clients: int) -> list[list[swarm.Take]]:
    """What each of so many clients says."""
    different = _takes(load, recording)
    return [different[n % len(different)] for n in range(clients)]


@cache
def _takes(load: Load, recording: Path) -> list[list[swarm.Take]]:
    return takes_of(load, read_speech(recording), DIFFERENT)


@cache
def read_speech(path: Path) -> Recording:
    """The recording of save_speech(), which the clients say."""
    with np.load(path) as file:
        samples = file["samples"].astype(np.float32) / FULL_SCALE
    return Recording(samples, speech.find_speech(samples))


class Crowd:
    """Processes that wait for shares. Use it in a `with` block: they end with it, whatever they do."""

    def __init__(self, processes: int, recording: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._workers, self._ahead_s = [], FIRST_S
        for _ in range(processes):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs, recording), daemon=True)
            worker.start()
            theirs.close()
            self._workers.append((worker, ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker, connection in self._workers:
            worker.kill()
            worker.join()
            connection.close()

    def begin(self, url: str, load: Load, clients: int) -> float:
        """Let so many clients speak; return when the first begins."""
        begin_s, every = time.monotonic() + self._ahead_s, len(self._workers)
        self._ahead_s = AHEAD_S
        for first, (_, connection) in enumerate(self._workers):
            connection.send(Share(url, load, clients, first, every, begin_s))
        return begin_s

    def end(self, load: Load, begin_s: float) -> list[Told]:
        """What they saw, by process. Raises TimeoutError, and whatever a process met instead."""
        until_s = begin_s + load.seconds + load.stagger_s + GRACE_S
        found = []
        for _, connection in self._workers:
            if not connection.poll(max(0.0, until_s - time.monotonic())):
                raise TimeoutError("a process with clients gives no answer")
            told = connection.recv()
            if isinstance(told, Exception):
                raise told
            found.append(told)
        return found


def _work(connection: Connection, recording: Path) -> None:
    """A process's life."""
    while True:
        share: Share = connection.recv()
        try:
            connection.send(_speak(share, takes_for(share.load, recording, share.clients)))
        except Exception as error:  # whatever it is, the benchmark must hear of it
            connection.send(RuntimeError(repr(error)))


def _speak(share: Share, takes: Sequence[Sequence[swarm.Take]]) -> Told:
    import uvloop

    starts = full_load.starts(share.clients, share.load.stagger_s)
    numbers = range(share.first, share.clients, share.every)

    async def run() -> Told:
        now_s, cpu_s = time.monotonic(), time.process_time()
        clients = [
            swarm.Client(share.url, takes[n], delay_s=max(0.0, share.begin_s - now_s) + starts[n])
            for n in numbers
        ]
        speaking = asyncio.create_task(swarm.run(clients))
        for client in clients:
            spoken = asyncio.create_task(client.spoken.wait())
            await asyncio.wait((spoken, speaking), return_when=asyncio.FIRST_COMPLETED)
        used_s, took_s = time.process_time() - cpu_s, time.monotonic() - share.begin_s
        return Told(await speaking, used_s / max(1.0, took_s))

    return uvloop.run(run())

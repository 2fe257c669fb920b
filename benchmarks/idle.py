"""Many sessions in which nobody speaks: what the server spends on them.

The clients connect, and that is all; then they send START, and no audio. They answer the server's pings, as the
WebSocket library of any client does. Each state is watched for a while, and the server's process is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

import uvloop

from realtime_server.bench import machine, swarm
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Usage, Watch
from realtime_server.bench.serving import served
from realtime_server.errors import ConfigurationError

AT_ONCE = 50  # handshakes
MEMORY_MB = 1074  # 1 GiB
CPU = 5  # percent of a core
PATIENCE_S = 60.0  # for all handshakes, and for all answers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--sessions", type=int, default=1000, help="at the same time (default: %(default)s)")
    add("--seconds", type=float, default=40.0, help="of watching each state (default: %(default)g)")
    add("--vad", default="fsmn", choices=("fsmn", "level"), help="of the server (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Report:
    """Measure a server of its own."""
    if arguments.sessions < 1 or arguments.seconds <= 0:
        raise ConfigurationError("at least one of --sessions is needed, and some --seconds")
    flags = ("--engine", "fake", "--vad", arguments.vad, "--max-sessions", str(arguments.sessions))
    watch = Watch()
    report = Report("idle", f"{arguments.sessions} sessions in which nobody speaks, VAD {arguments.vad}")
    with served(flags) as server:
        uvloop.run(_watch(report, arguments, server.url, server.pid))
        report.notes += server.troubles()
    report.conditions = watch.conditions()
    return report


async def _watch(report: Report, arguments: argparse.Namespace, url: str, pid: int) -> None:
    report.add("memory without sessions", machine.rss_mb(pid), "MB")
    peers = await _connect(url, arguments.sessions)
    await _add_state(report, "connected", peers, arguments.seconds, pid)
    for peer in peers:
        peer.say("START")
    async with asyncio.timeout(PATIENCE_S):
        answers = [await peer.answers.get() for peer in peers]
    report.add(
        "sessions that began", sum(each.get("event") == "started" for each in answers), at_least=len(peers)
    )
    await _add_state(report, "begun", peers, arguments.seconds, pid)
    await asyncio.gather(*(peer.close() for peer in peers))


async def _connect(url: str, count: int) -> list[swarm.Peer]:
    """Raises ClientError if one is refused."""
    loop, place = asyncio.get_running_loop(), swarm.read_url(url)
    peers: list[swarm.Peer] = []

    async def connect() -> swarm.Peer:
        _, peer = await loop.create_connection(lambda: swarm.Peer(swarm.Log()), place.host, place.port)
        peer.connect(place)
        await peer.opened
        return peer

    async with asyncio.timeout(PATIENCE_S):
        while len(peers) < count:
            peers += await asyncio.gather(*(connect() for _ in range(min(AT_ONCE, count - len(peers)))))
    return peers


async def _add_state(
    report: Report, state: str, peers: Sequence[swarm.Peer], seconds: float, pid: int
) -> None:
    before = Usage.of(pid)
    await asyncio.sleep(seconds)
    after = Usage.of(pid)
    lost = sum(peer.is_closed for peer in peers)
    report.add(f"{state}: server CPU, of a core", 100 * after.cores_since(before), "%", at_most=CPU)
    report.add(f"{state}: server memory", after.rss_mb, "MB", at_most=MEMORY_MB)
    report.add(f"{state}: connections lost", lost, at_most=0)

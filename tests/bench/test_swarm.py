"""Clients against a server that does what it is told, and the frames they send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from realtime_server.bench import swarm
from realtime_server.bench.speech import Recording
from realtime_server.errors import ConfigurationError
from tests.audio import tone

PACE = 20.0  # times the speed of speech
TAKE = swarm.take(Recording(tone(0.25), ((0, 250),)))
FINAL = '{"sentences":[],"partial":"","partial_start_ms":0,"duration_ms":250,"is_final":true}'

Script = Callable[[ServerConnection], object]


@asynccontextmanager
async def server(handle: Script) -> AsyncIterator[str]:
    """A server on a free port."""
    async with serve(handle, "127.0.0.1", 0, compression=None) as running:
        yield f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}"


async def obey(connection: ServerConnection) -> None:
    """What the live service does, without recognition."""
    async for frame in connection:
        if frame == "START":
            await connection.send('{"event":"started"}')
        elif frame == "STOP":
            await connection.send(FINAL)
            await connection.send('{"event":"stopped"}')


async def speak(url: str, takes: int = 1, pace: float = PACE) -> swarm.Log:
    (log,) = await swarm.run([swarm.Client(url, [TAKE] * takes, pace=pace)])
    return log


async def test_a_server_that_wants_a_token_gets_it() -> None:
    def check(connection: ServerConnection, request: Request) -> Response | None:
        told = request.headers.get("Authorization")
        return None if told == "Bearer secret" else connection.respond(HTTPStatus.UNAUTHORIZED, "no")

    async with serve(obey, "127.0.0.1", 0, process_request=check) as running:
        url = f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}"
        clients = [swarm.Client(url, [TAKE], pace=PACE, token=token) for token in ("secret", None)]
        let_in, refused = await swarm.run(clients)
    assert (let_in.errors, len(let_in.takes)) == ([], 1)
    assert "refused with 401" in refused.errors[0]


def test_frames_are_100_ms_of_pcm_and_the_last_is_filled_up() -> None:
    samples = tone(0.25)
    frames = swarm.pack(samples)
    pcm = b"".join(frame[8:] for frame in frames)
    keys = [np.frombuffer(frame[4:8], np.uint8) for frame in frames]
    assert [len(frame) for frame in frames] == [8 + 3200] * 3
    plain = np.concatenate([
        np.frombuffer(pcm[n * 3200 : (n + 1) * 3200], np.uint8) ^ np.tile(key, 800) for n, key in enumerate(keys)
    ])  # fmt: skip
    heard = plain.view("<i2") / 32768
    assert np.allclose(heard[: len(samples)], samples, atol=1 / 32768)
    assert not heard[len(samples) :].any()


async def test_takes_follow_each_other_and_are_read_afterwards() -> None:
    async with server(obey) as url:
        log = await speak(url, takes=2)
    assert log.errors == []
    assert [heard.results[-1].final for heard in log.takes] == [True, True]
    assert [len(heard.late_ms) for heard in log.takes] == [3, 3]
    assert all(heard.stop_ms >= 300 for heard in log.takes)  # in ms of the take, whatever the pace
    assert log.messages == 6
    assert log.pings == len(log.pings_ms)


async def test_an_error_of_the_server_is_noted_and_the_take_goes_on() -> None:
    async def complain(connection: ServerConnection) -> None:
        await connection.send('{"event":"error","error":"too loud"}')
        await obey(connection)

    async with server(complain) as url:
        log = await speak(url)
    assert log.errors == ["too loud"]
    assert log.takes[0].results[-1].final


async def test_a_lost_connection_is_an_error() -> None:
    async def leave(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(1012, "the server stops")

    async with server(leave) as url:
        log = await speak(url)
    assert log.errors == ["the connection was closed with 1012 the server stops", "no answer 'started'"]


async def test_a_refusal_is_an_error() -> None:
    async with serve(obey, "127.0.0.1", 0, process_request=lambda c, r: c.respond(503, "full\n")) as running:
        log = await speak(f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}")
    assert len(log.errors) == 1
    assert "503" in log.errors[0]


async def test_no_server_is_an_error() -> None:
    async with server(obey) as url:
        pass
    log = await speak(url)
    assert len(log.errors) == 1


async def test_without_a_pace_nothing_is_late_and_times_are_of_the_wall() -> None:
    async with server(obey) as url:
        log = await speak(url, takes=2, pace=0)
    assert log.errors == []
    assert [heard.late_ms for heard in log.takes] == [[], []]
    assert all(0 < heard.results[-1].at_ms < 250 for heard in log.takes)


async def test_without_a_pace_no_more_is_sent_than_the_server_reads() -> None:
    started, reading = asyncio.Event(), asyncio.Event()

    async def dawdle(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send('{"event":"started"}')
        started.set()
        await reading.wait()
        await obey(connection)

    long = swarm.Take(TAKE.frames * 1000, TAKE.spells)  # 10 MB
    async with server(dawdle) as url:
        client = swarm.Client(url, [long], pace=0)
        running = asyncio.create_task(swarm.run([client]))
        await started.wait()
        await asyncio.sleep(0.05)
        assert not client.log.takes[0].stop_ms  # it waits
        reading.set()
        (log,) = await running
    assert log.errors == []
    assert log.takes[0].results[-1].final


async def test_what_is_not_protocol_1_is_an_error() -> None:
    async def obey_otherwise(connection: ServerConnection) -> None:
        async for frame in connection:
            if frame == "START":
                await connection.send('{"event":"started"}')
            elif frame == "STOP":
                await connection.send('{"sentences":[],"text":"a"}')
                await connection.send('{"event":"stopped"}')

    async with server(obey_otherwise) as url:
        log = await speak(url)
    assert log.errors == ["a result that is not protocol 1: KeyError('duration_ms')"]


@pytest.mark.parametrize("url", ["localhost:10095", "http://localhost:10095", "ws://", "ws://localhost:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address of a server"):
        swarm.Client(url, [TAKE])

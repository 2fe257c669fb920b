"""Recordings and live sessions on one engine: neither hinders the other, and both are told when it dies."""

from __future__ import annotations

import asyncio
import re
import signal

import httpx2
import numpy as np

from tests.audio import pcm16, tone
from tests.http.process import TALK, TALK_WAV, upload, wav
from tests.realtime.harness import texts
from tests.realtime.process import Process, served

PATIENCE_S = 60.0
ONE_MINUTE = wav(np.tile(TALK, 8))


def address(server: Process) -> str:
    found = re.search(r"recordings are taken at (http://[^/]+)/", "".join(server.log))
    assert found
    return found[1]


async def running(client: httpx2.AsyncClient) -> int:
    return int((await client.get("/health")).json()["files"])


async def test_who_speaks_does_not_wait_for_recordings() -> None:
    flags = ("--http-port", "0", "--fake-decode-ms", "50", "--fake-slots", "2", "--endpointing", "client")
    async with (
        served(*flags) as server,
        httpx2.AsyncClient(base_url=address(server), timeout=PATIENCE_S) as client,
        server.client() as live,
    ):
        posts = [client.post("/asr", files=upload(ONE_MINUTE)) for _ in range(4)]
        work = [asyncio.create_task(post) for post in posts]
        while await running(client) < len(work):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        took_s = []
        while not all(task.done() for task in work):
            begun_s = loop.time()
            assert texts(await live.transcribe(tone(1.0))) == ["one two"]
            took_s.append(loop.time() - begun_s)
        answers = await asyncio.gather(*work)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert len({answer.json()["text"] for answer in answers}) == 1
    assert len(took_s) > 3
    assert sorted(took_s)[len(took_s) // 2] < 0.5


async def test_an_engine_that_dies_ends_both() -> None:
    flags = ("--engine", "mortal", "--http-port", "0", "--fake-decode-ms", "100000")
    async with (
        served(*flags, module="tests.realtime.mortal") as server,
        httpx2.AsyncClient(base_url=address(server), timeout=PATIENCE_S) as client,
        server.client() as live,
    ):
        work = asyncio.create_task(client.post("/asr", files=upload(TALK_WAV)))
        await live.say("START", pcm16(tone(1.0)))
        while not await running(client):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        server.signal(signal.SIGUSR1)
        answer = await work
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine")
        assert await live.closed() == 1012
        assert await server.exit_code(PATIENCE_S) == 1

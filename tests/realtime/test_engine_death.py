"""The engine dies and will not come back: everybody is told, then the process ends. Here, then as a real process."""

from __future__ import annotations

import asyncio
import signal

import pytest
from websockets.exceptions import InvalidStatus

from realtime_server.engines.fake import FakeEngine
from realtime_server.realtime.server import DIED
from tests.audio import pcm16, tone
from tests.realtime.harness import PATIENCE_S, Client, Service, serving, texts
from tests.realtime.process import Process, served
from tests.realtime.test_http import ask

MORTAL = "tests.realtime.mortal"
REFUSAL = f"{DIED} and the server is stopping; connect to another or try again later"
LOST = "could not be recognised: the fake engine has died or is closed"


async def speak(client: Client) -> None:
    """Some speech, all of which is in the partial when this returns."""
    await client.say("START", pcm16(tone(0.6)))
    await client.until(lambda message: message.get("partial"))


async def refusal(service: Service | Process) -> str:
    """The words with which a newcomer is turned away."""
    with pytest.raises(InvalidStatus) as refused:
        async with service.client():
            pass
    assert refused.value.response.status_code == 503
    return refused.value.response.body.decode().strip()


async def left(client: Client) -> tuple[list[str], list[str]]:
    """Sentences and errors of a client whose session the server ends because its engine has died."""
    assert await client.closed() == 1012
    finals = [message for message in client.messages if message.get("is_final")]
    assert len(finals) == 1
    return texts(finals[0]), [message["error"] for message in client.messages if "error" in message]


# --- in this process --------------------------------------------------------------------------------------


async def test_nobody_is_let_in_again_and_all_are_told_why() -> None:
    """Though no job has failed: what the server remembers of its jobs, and forgets, plays no part."""
    engine = FakeEngine()
    async with serving(engine) as service:
        assert (await ask(service, "/ready")).status == 200
        engine.die()
        for _ in range(2):
            ready = await ask(service, "/ready")
            assert (ready.status, ready.json["ready"], ready.json["reason"]) == (503, False, REFUSAL)
            assert await refusal(service) == REFUSAL
        assert b'refused_total{reason="died"} 2.0' in (await ask(service, "/metrics")).body
        assert (await ask(service, "/health")).status == 200


async def test_the_server_notices_though_nobody_asks() -> None:
    engine = FakeEngine()
    async with serving(engine) as service:
        waiting = asyncio.create_task(service.server.wait_died())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        engine.die()
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_sessions_get_what_is_known_and_an_error_for_what_is_lost() -> None:
    engine = FakeEngine()
    async with (
        serving(engine) as service,
        service.client() as recovered,
        service.client() as cut,
        service.client() as deaf,
        service.client() as idle,
    ):
        await speak(recovered)
        await speak(cut)
        engine.die()
        await cut.say(pcm16(tone(0.4)))
        await deaf.say("START", pcm16(tone(1.0)), "LANGUAGE:en")
        await deaf.event("language_set")
        await service.server.wait_died()
        await service.server.stop()
        assert await left(recovered) == (["one"], [])
        assert await left(cut) == (["one"], [f"the audio from 0.0 to 1.0 s {LOST}"])
        assert await left(deaf) == ([], [f"the audio from 0.0 to 1.0 s {LOST}"])
        assert await idle.closed() == 1012
        assert idle.messages == []


# --- as a process -----------------------------------------------------------------------------------------


async def test_the_process_ends_with_exit_code_1_and_one_line_that_says_so() -> None:
    async with served("--engine", "mortal", module=MORTAL) as server:
        service = Service(None, server.port)  # type: ignore[arg-type]
        async with server.client() as one, server.client() as two, server.client() as reluctant:
            await asyncio.gather(speak(one), speak(two))
            # It does not answer the close, and so keeps the server from ending while this looks on.
            reluctant.connection.transport.pause_reading()
            server.signal(signal.SIGUSR1)
            await two.say(pcm16(tone(0.4)))
            await server.until_logged("ending the sessions")
            ready = await ask(service, "/ready")
            assert (ready.status, ready.json["reason"]) == (503, REFUSAL)
            assert await refusal(server) == REFUSAL
            assert await left(one) == (["one"], [])
            assert await left(two) == (["one"], [f"the audio from 0.0 to 1.0 s {LOST}"])
            reluctant.abort()
            assert await server.exit_code(PATIENCE_S) == 1
    log = "".join(server.log)
    assert log.count(f"ERROR {DIED}: ending the sessions, then this process\n") == 1
    assert log.count("ERROR") == 1
    assert server.log[-1] == f"realtime-server: {DIED}; only a new process helps\n"
    assert "Traceback" not in log


async def test_with_nobody_there_it_ends_at_once() -> None:
    async with served("--engine", "mortal", module=MORTAL) as server:
        server.signal(signal.SIGUSR1)
        assert await server.exit_code(PATIENCE_S) == 1


async def test_a_server_that_is_already_stopping_keeps_its_exit_code() -> None:
    """Its engine may get the same signal and be the first to end."""
    async with served("--engine", "mortal", "--fake-decode-ms", "1e8", module=MORTAL) as server:
        async with server.client() as client:
            await client.say("START", pcm16(tone(1.0)), "LANGUAGE:en")
            await client.event("language_set")
            server.signal()
            await server.until_logged("stopping")
            server.signal(signal.SIGUSR1)
            sentences, (error,) = await left(client)
            assert sentences == []
            assert error.endswith(LOST)
        assert await server.exit_code(PATIENCE_S) == 0
    assert "ERROR" not in "".join(server.log)

"""The server stops: finals first, in bounded time, with words for everybody. In this process, then as a real one."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from realtime_server.core.settings import SessionSettings
from realtime_server.engines.fake import FakeEngine, FakeScorer, Fault
from realtime_server.errors import ConfigurationError
from realtime_server.realtime.server import RealtimeServer, ServerOptions
from tests.audio import pcm16, tone
from tests.realtime.harness import PATIENCE_S, Client, Service, eventually, serving, texts
from tests.realtime.process import COMMAND, START_S, Process, served
from tests.realtime.test_http import ask

EXIT_S = 30.0  # for a process to end that has nothing to wait for, on a busy machine


async def speak(client: Client, seconds: float = 1.0) -> None:
    await client.say("START", pcm16(tone(seconds)))
    await client.until(lambda message: message.get("partial"))


async def stopped(client: Client) -> list[str]:
    """Texts of the final with which a server that stops takes leave."""
    assert await client.closed() == 1012
    assert client.messages[-1]["is_final"] is True
    return texts(client.messages[-1])


# --- in this process --------------------------------------------------------------------------------------


async def test_everybody_gets_a_final_with_the_last_words() -> None:
    async with (
        serving(FakeEngine(decode_s=0.02)) as service,
        service.client() as one,
        service.client() as two,
        service.client() as idle,
    ):
        await speak(one)
        await speak(two, 1.5)
        stopping = asyncio.create_task(service.server.stop())
        assert await stopped(one) == ["one two"]
        assert await stopped(two) == ["one two three"]
        assert await idle.closed() == 1012
        assert idle.messages == []
        assert idle.connection.close_reason == "the server stops"
        await stopping


async def test_a_final_that_is_awaited_and_what_was_said_after_it_come_too() -> None:
    """STOP is pending, and the next session has begun to speak."""
    async with serving(FakeEngine(decode_s=0.1)) as service, service.client() as client:
        await client.say("START", pcm16(tone(1.0)), "STOP", "START", pcm16(tone(0.5)))
        await client.event("started")
        await asyncio.sleep(0.02)
        stopping = asyncio.create_task(service.server.stop())
        assert texts(await client.final()) == ["one two"]
        assert (await client.receive())["event"] == "stopped"
        assert (await client.receive())["event"] == "started"
        assert await stopped(client) == ["one"]
        await stopping


async def test_meanwhile_newcomers_are_refused_and_told_why() -> None:
    async with serving(FakeEngine(decode_s=0.2)) as service, service.client() as client:
        await client.say("START", pcm16(tone(1.0)))
        await asyncio.sleep(0.02)
        stopping = asyncio.create_task(service.server.stop())
        await eventually(lambda: service.server.hub.draining)
        ready = await ask(service, "/ready")
        assert (ready.status, ready.json["ready"]) == (503, False)
        assert "the server is stopping" in str(ready.json["reason"])
        assert (await ask(service, "/health")).status == 200
        with pytest.raises(InvalidStatus) as refused:
            async with service.client():
                pass
        assert refused.value.response.status_code == 503
        assert refused.value.response.body.startswith(b"the server is stopping")
        assert await stopped(client) == ["one two"]
        await stopping


@pytest.mark.parametrize("what", ["engine", "scorer"])
async def test_what_never_answers_is_an_error_after_the_time_for_shutting_down(what: str) -> None:
    engine, scorer = FakeEngine(), FakeScorer()
    options = ServerOptions(shutdown_s=0.1, close_s=0.5)
    async with serving(engine, scorer, options=options) as service, service.client() as client:
        await speak(client)
        (engine if what == "engine" else scorer).faults.inject(Fault(error=None))
        await client.say(pcm16(tone(0.5)))
        await asyncio.wait_for(service.server.stop(), PATIENCE_S)
        assert await client.closed() == 1012
        final = next(message for message in client.messages if message.get("is_final"))
        assert texts(final)[0].startswith("one")
        if what == "engine":
            assert any("could not be recognised" in message.get("error", "") for message in client.messages)


async def test_clients_that_do_not_answer_the_close_are_not_waited_for() -> None:
    options = ServerOptions(shutdown_s=PATIENCE_S, close_s=0.1)
    async with serving(options=options) as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await eventually(lambda: service.sessions == 1)
        await asyncio.wait_for(service.server.stop(), PATIENCE_S / 2)
        assert service.sessions == 0
        writer.transport.abort()


async def test_connections_that_never_became_sessions_are_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as those that browsers open in reserve."""
    caplog.set_level(logging.INFO)
    async with serving() as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        await asyncio.sleep(0.02)
        started_s = time.monotonic()
        await service.server.stop()
        assert time.monotonic() - started_s < 5.0  # the library gives a handshake ten
        assert "connections without a session are still open" in caplog.text
        writer.transport.abort()


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", None), ("192.0.2.1", 0)])
async def test_an_address_that_cannot_be_had(host: str, port: int | None, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = ServerOptions(host=host, port=taken.getsockname()[1] if port is None else port)
        server = RealtimeServer(
            FakeEngine(), FakeScorer(), SessionSettings(), options, page=page, description={}
        )
        with pytest.raises(
            ConfigurationError, match=r"^cannot listen on .*; choose another --port or --host$"
        ):
            await server.start()


# --- as a process -----------------------------------------------------------------------------------------


async def log_of(server: Process, code: int = 0) -> str:
    assert await server.exit_code(EXIT_S) == code
    return "".join(server.log)


async def test_sigterm_while_people_speak() -> None:
    async with served("--fake-decode-ms", "300", "--shutdown-seconds", "20") as server:
        async with server.client() as one, server.client() as two, server.client() as idle:
            await asyncio.gather(speak(one), speak(two))
            server.signal()
            await server.until_logged("finals: 3")
            service = Service(None, server.port)  # type: ignore[arg-type]
            assert (await ask(service, "/ready")).status == 503
            with pytest.raises(InvalidStatus):
                async with server.client():
                    pass
            assert await stopped(one) == ["one two"]
            assert await stopped(two) == ["one two"]
            assert await idle.closed() == 1012
        log = await log_of(server)
    assert len(re.findall(r"session \w+ ended: .*, close code 1012\n", log)) == 3
    assert "Traceback" not in log
    assert "one two" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    flags = ("--fake-decode-ms", "1e8", "--shutdown-seconds", "1000")
    async with served(*flags) as server, server.client() as client:
        await client.say("START", pcm16(tone(1.0)), "LANGUAGE:en")
        await client.event("language_set")
        server.signal()
        await server.until_logged("stopping")
        server.signal(number)
        assert "Traceback" not in await log_of(server, 128 + number)


# The command, with an engine more: one whose thread hangs, so that its close does, and that dies of SIGUSR1.
STUCK = """
import asyncio, signal, sys, threading
from realtime_server import cli, ending
from realtime_server.engines.batching import Batcher
from realtime_server.engines.fake import FakeEngine
from realtime_server.engines.loading import ENGINES

class Stuck(FakeEngine):
    async def warmup(self):
        self.batcher = Batcher(lambda items, edge: threading.Event().wait(), len, window_s=0.0)
        self.task = asyncio.create_task(self.batcher.submit("x"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.die)
    async def aclose(self):
        await self.batcher.aclose()

ENGINES["stuck"] = lambda options: Stuck()
ending.CLOSE_S = 0.3
sys.exit(cli.main())
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGUSR1, 1)])
async def test_it_ends_though_a_thread_hangs_with_the_code_that_it_owes(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    async with served("--engine", "stuck", module="stuck", PYTHONPATH=str(tmp_path)) as server:
        server.signal(number)
        log = await log_of(server, code)
    assert "WARNING ending without waiting any longer, after 0.3 s, for: recognizer" in log
    assert ("the recognizer has died; only a new process helps" in server.log[-1]) == (code == 1)


async def test_sigterm_with_an_engine_that_never_answers() -> None:
    async with (
        served("--fake-decode-ms", "1e8", "--shutdown-seconds", "0.5") as server,
        server.client() as client,
    ):
        await client.say("START", pcm16(tone(1.0)), "LANGUAGE:en")
        await client.event("language_set")
        server.signal()
        assert await client.closed() == 1012
        *_, final, error = client.messages
        assert "could not be recognised: the server stops" in error["error"]
        assert final["is_final"] is True
        log = await log_of(server)
    assert "1 sessions had not finished after 0.5 s" in log
    assert "Traceback" not in log


async def test_a_port_in_use_is_one_sentence_and_exit_code_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *COMMAND[:-1],
            port,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(START_S):
            _, errors = await process.communicate()
    assert process.returncode == 2
    lines = [line for line in errors.decode().splitlines() if " INFO " not in line]
    assert lines == [
        f"realtime-server: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port or --host"
    ]

"""What the operator reads: one line per connection, counts and close code, and nobody's words."""

from __future__ import annotations

import logging
import re

import pytest

from realtime_server.engines.fake import FakeEngine, Fault
from tests.audio import pcm16, speech_pattern, tone
from tests.realtime.harness import Client, Service, eventually, serving
from tests.realtime.process import served
from tests.realtime.test_http import ask, raw

LINE = re.compile(
    r"session [0-9a-f]{12} ended: audio [\d.]+ s, speech [\d.]+ s, sessions \d+, segments \d+, sentences \d+, "
    r"partials \d+, shown \d+, "
    r"folded \d+, cancelled \d+, recovered \d+, truncated \d+, failed \d+, decode_failures \d+, errors \d+, "
    r"close code \d+"
)


def lines(caplog: pytest.LogCaptureFixture, least: int = logging.INFO) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= least]


async def leave(service: Service, client: Client, how: str) -> int:
    """End a connection; return the close code that the log should have."""
    if how == "close":
        await client.connection.close()
        return 1000
    if how == "close with a code":
        await client.connection.close(4321, "bye")
        return 4321
    if how == "vanish":
        client.abort()
        return 1006
    await service.server.stop()
    return 1012


@pytest.mark.parametrize("how", ["close", "close with a code", "vanish", "stop the server"])
async def test_one_line_per_connection(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as service:
        async with service.client() as client:
            await client.transcribe(speech_pattern([(1.0, 1.0), (0.5, 0.0)]))
            await client.transcribe(tone(0.5))
            await client.say("COMMIT", "STOP")
            await client.event("error")
            await client.event("stopped")
            code = await leave(service, client, how)
            await eventually(lambda: service.sessions == 0)
        (line,) = (line for line in lines(caplog) if " ended: " in line)
    assert LINE.fullmatch(line)
    assert ": audio 3.0 s, speech 2.4 s, sessions 2, segments 3, sentences 3, " in line
    assert line.endswith(f", failed 0, decode_failures 0, errors 1, close code {code}")


async def test_nobodys_words_appear_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "realtime_server")
    engine = FakeEngine()
    async with serving(engine) as service, service.client() as client:
        await client.say(
            "HOTWORDS:secret-hotword", "LANGUAGE:secret-language", "secret-command", "{secret-json}"
        )
        await client.say("POSTPROCESS_HOTWORDS:one=>secret-replacement,a=>b=>secret-mistake")
        await client.transcribe(tone(1.0))
        engine.faults.inject(Fault())
        await client.transcribe(tone(1.0))
    shown = "\n".join(lines(caplog))
    assert "could not be recognised" in shown
    assert not re.search("secret|one|two", shown)
    assert "one two" in "\n".join(lines(caplog, logging.DEBUG))


async def test_connections_that_are_no_sessions_leave_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as service:
        await ask(service, "/")
        await ask(service, "/health")
        await raw(service, "garbage\r\n\r\n")
    assert [line for line in lines(caplog) if "session " in line] == []


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_the_level_of_the_command_line(level: str) -> None:
    async with served("--log-level", level) as server:
        async with server.client() as client:
            await client.say("START", pcm16(tone(1.0)), "STOP")
            await client.event("stopped")
        await server.until_logged(" ended: ")
        server.signal()
        assert await server.exit_code(30.0) == 0
    log = "".join(server.log)
    assert len(LINE.findall(log)) == 1
    assert ("one two" in log) is (level == "debug")
    assert "Traceback" not in log

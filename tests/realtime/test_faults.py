"""Clients that vanish, do not read, or send too much; engines and scorers that fail, behind a real socket."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from contextlib import suppress
from dataclasses import replace

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from realtime_server.core.settings import Limits
from realtime_server.engines.fake import FakeEngine, FakeScorer, Fault
from realtime_server.errors import EngineError
from realtime_server.realtime.connection import UNREAD
from realtime_server.realtime.server import ServerOptions
from realtime_server.realtime.session import Clocks
from tests.audio import pcm16, speech_pattern, tone
from tests.realtime.harness import (
    FIXED,
    PATIENCE_S,
    SENTENCE,
    Client,
    WatchedScorer,
    eventually,
    serving,
    texts,
)
from tests.realtime.test_http import ask

MIB = 2**20
QUICK = Clocks(deadline_s=1.0, deadline_factor=0.0)


def log_line(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    """The counts of the only session that ended, and its close code."""
    (line,) = [r.getMessage() for r in caplog.records if " ended: " in r.getMessage()]
    counts = {name: int(n) for name, n in re.findall(r", (\w+) (\d+)", line)}
    return counts | {"close code": int(line.rsplit("close code ", 1)[1])}


# --- clients ----------------------------------------------------------------------------------------------


async def test_a_client_that_vanishes_in_mid_sentence(caplog: pytest.LogCaptureFixture) -> None:
    """The tail is decoded, and nothing is left: no session, no state of the scorer, no job, no task (`serving`)."""
    caplog.set_level(logging.INFO)
    engine, scorer = FakeEngine(), WatchedScorer()
    async with serving(engine, scorer) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(tone(1.31))
            await client.until(lambda message: message.get("partial"))
            client.abort()
        await eventually(lambda: service.sessions == 0)
        assert (scorer.streams, engine.running, engine.waiting) == (0, 0, 0)
    (final,) = [job for job in engine.jobs if job.kind == "final"]
    assert (final.start, final.end) == (0, 1310 * 16)
    assert log_line(caplog)["sentences"] == 1
    assert log_line(caplog)["close code"] == 1006


async def test_a_client_that_vanishes_while_nothing_answers() -> None:
    engine, scorer = FakeEngine(), WatchedScorer()
    engine.faults.inject(Fault(error=None))
    async with serving(engine, scorer, clocks=QUICK) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(tone(1.0))
            await eventually(lambda: engine.running)
            client.abort()
        await eventually(lambda: service.sessions == 0)
        assert (scorer.streams, engine.running, engine.waiting) == (0, 0, 0)


async def test_a_client_that_closes_without_stop_is_heard_to_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(FakeEngine(decode_s=0.05)) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(SENTENCE)
            await client.hear(tone(0.5))
        await eventually(lambda: service.sessions == 0)
    assert log_line(caplog)["sentences"] == 2
    assert log_line(caplog)["close code"] == 1000


async def deaf_client(service_port: int) -> Client:
    """A client with small buffers, whose library stops reading when its user does."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", service_port))

    return Client(
        await connect(
            f"ws://127.0.0.1:{service_port}",
            sock=sock,
            compression=None,
            ping_interval=None,
            close_timeout=0.1,
        )
    )


async def test_a_client_that_does_not_read_is_dropped_and_costs_little(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its commands, each with a long answer, are read only as far as the answers can be sent."""
    caplog.set_level(logging.INFO)
    command = "HOTWORDS:" + ",".join(f"{n:09}" for n in range(1000))
    async with serving(options=ServerOptions(send_timeout_s=1.0)) as service:
        client = await deaf_client(service.port)
        await eventually(lambda: service.sessions == 1)
        (deaf,) = service.server.hub.sessions.values()
        flooding = asyncio.create_task(client.say(*[command] * 10_000))
        async with service.client() as other:
            assert texts(await other.transcribe(tone(1.0))) == ["one two"]
            unread = 0
            while "does not read its messages" not in caplog.text:
                unread = max(unread, deaf.unread)
                await asyncio.sleep(0.005)
            assert 0 < unread <= UNREAD + 1
            with pytest.raises(ConnectionClosed):
                await flooding
            await eventually(lambda: service.sessions == 1)
            assert texts(await other.transcribe(tone(0.5))) == ["one"]


async def test_a_client_that_sends_everything_first_and_answers_no_ping_meanwhile() -> None:
    """Its audio is a sign of life; the same client, silent, is gone."""
    options = ServerOptions(ping_s=0.1, ping_timeout_s=1.0)
    async with serving(options=options) as service:
        client = await deaf_client(service.port)
        client.connection.transport.pause_reading()
        await client.say("START")
        for _ in range(20):
            await client.say(pcm16(tone(0.1)))
            await asyncio.sleep(0.1)
        client.connection.transport.resume_reading()
        await client.say("STOP")
        assert texts(await client.final()) == ["one two three four"]
        client.connection.transport.pause_reading()
        await eventually(lambda: service.sessions == 0)
        client.abort()


async def test_a_client_that_hangs_up_while_much_is_on_its_way_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its half of the TCP connection ends, without a close frame; it still reads what was sent."""
    async with serving(FakeEngine(decode_s=0.02)) as service:
        client = await deaf_client(service.port)
        client.connection.transport.pause_reading()
        command = "HOTWORDS:" + ",".join(f"{n:09}" for n in range(1000))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):  # its buffers, and then the server's, fill with answers
                await client.say("START", pcm16(SENTENCE), *[command] * 1000)
        client.connection.transport.write_eof()
        client.connection.transport.resume_reading()
        await client.closed()
        await eventually(lambda: service.sessions == 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(("send_timeout_s", "ping_s"), [(1.0, 20.0), (60.0, 0.2)])
async def test_a_client_that_hangs_up_and_never_takes_what_was_sent(
    send_timeout_s: float, ping_s: float
) -> None:
    """Its half of the TCP connection is closed, the other half is stuck: whichever clock is the first frees it."""
    settings = replace(FIXED, limits=Limits(hotword_characters=60_000))
    much = ["HOTWORDS:" + "好" * 60_000] * (UNREAD - 2)  # 10 MB of answers, more than sockets hold
    options = ServerOptions(send_timeout_s=send_timeout_s, ping_s=ping_s, close_s=0.2)
    engine = FakeEngine()
    async with serving(engine, settings=settings, options=options) as service:
        client = await deaf_client(service.port)
        client.connection.transport.pause_reading()
        await client.say("START", pcm16(tone(1.0)), *much)
        client.connection.transport.write_eof()
        await eventually(lambda: service.sessions == 0)
        client.abort()
    assert [(job.start, job.end) for job in engine.jobs if job.kind == "final"] == [(0, 16_000)]


async def test_a_message_that_is_too_big(caplog: pytest.LogCaptureFixture) -> None:
    """Close 1009, what came before is decoded, and the server lives."""
    caplog.set_level(logging.INFO)
    engine = FakeEngine()
    async with serving(engine) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(tone(1.0))
            await client.say(bytes(11 * MIB))
            assert await client.closed() == 1009
        await eventually(lambda: service.sessions == 0)
        assert [(job.start, job.end) for job in engine.jobs if job.kind == "final"] == [(0, 16_000)]
        async with service.client() as client:
            await client.say("START", bytes(10 * MIB), "STOP")
            assert (await client.final())["duration_ms"] == 10 * MIB // 32
    assert "close code 1009" in caplog.text
    assert "sentences 1" in caplog.text


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x82\x00\x00\x00\x00\xff\xfe", 1007),  # a text frame that is not UTF-8
        (b"\xf1\x80\x00\x00\x00\x00", 1002),  # reserved bits
        (b"\x01\x01a", 1002),  # not masked
    ],
)
async def test_broken_frames_close_the_connection_and_lose_nothing(data: bytes, code: int) -> None:
    engine = FakeEngine()
    async with serving(engine) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(tone(1.0))
            client.connection.transport.write(data)
            assert await client.closed() == code
        await eventually(lambda: service.sessions == 0)
    assert [(job.start, job.end) for job in engine.jobs if job.kind == "final"] == [(0, 16_000)]


async def test_fragmented_messages_are_put_together() -> None:
    data = pcm16(tone(1.0))
    async with serving() as service, service.client() as client:
        await client.connection.send(["STA", "RT"])
        await client.connection.send([data[:7], data[7:1000], data[1000:]])
        await client.say("STOP")
        assert texts(await client.final()) == ["one two"]


# --- engines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("never", [False, True])
async def test_the_engine_dies_under_twenty_sessions(never: bool) -> None:
    """R18: each is told within the deadline, /ready says so, and once it works again everything goes on."""
    engine = FakeEngine(decode_s=0.002)
    async with serving(engine, clocks=QUICK) as service:

        async def speak(client: Client) -> tuple[list[str], list[str]]:
            await client.say("START")
            await client.hear(SENTENCE)
            await client.sentences(1)
            healthy.release()
            await broken.wait()
            await client.hear(SENTENCE)
            await client.event("error")
            told.release()
            await repaired.wait()
            await client.hear(SENTENCE)
            await client.say("STOP")
            final = await client.final()
            errors = [message["error"] for message in client.messages if "error" in message]
            return texts(final), errors

        healthy, told = asyncio.Semaphore(0), asyncio.Semaphore(0)
        broken, repaired = asyncio.Event(), asyncio.Event()

        async def one() -> tuple[list[str], list[str]]:
            async with service.client() as client:
                return await speak(client)

        sessions = [asyncio.create_task(one()) for _ in range(20)]
        async with asyncio.timeout(PATIENCE_S):
            for _ in sessions:
                await healthy.acquire()
            assert (await ask(service, "/ready")).status == 200
            engine.faults.inject(Fault(error=None) if never else Fault())
            broken.set()
            for _ in sessions:
                await told.acquire()
            assert (await ask(service, "/ready")).status == 503
            engine.faults.clear()
            repaired.set()
            results = await asyncio.gather(*sessions)
        assert (await ask(service, "/ready")).status == 200
    for sentences, (error,) in results:
        assert error.startswith("the audio from 1.")
        assert (sentences[0], sentences[-1]) == ("one two", "nine ten")


# --- scorers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("never", [False, True])
async def test_a_scorer_that_fails_closes_with_the_final_and_an_error(never: bool) -> None:
    scorer = FakeScorer()
    async with serving(scorer=scorer, clocks=QUICK) as service, service.client() as other:
        async with service.client() as client:
            await client.say("START")
            await client.hear(speech_pattern([(1.0, 1.0), (0.5, 0.0)]))
            await client.sentences(1)
            scorer.faults.inject(Fault(error=None, nth=1) if never else Fault(nth=1))
            await client.hear(tone(0.5))
            assert await client.closed() == 1011
            *_, final, error = client.messages
            assert final["is_final"] is True
            assert texts(final)[0] == "one two"
            assert error["error"].startswith("voice activity detection failed")
        assert texts(await other.transcribe(tone(0.5))) == ["one"]


async def test_a_reason_that_is_too_long_for_a_close_frame_is_shortened() -> None:
    """Whatever language an engine's errors are in."""
    scorer = FakeScorer()
    scorer.faults.inject(Fault(error=RuntimeError("坏" * 200)))
    async with serving(scorer=scorer) as service, service.client() as client:
        await client.say("START", pcm16(tone(1.0)))
        assert await client.closed() == 1011
        assert "坏" not in str(client.messages[:-1])


async def test_a_fault_of_our_own_closes_with_1011_and_harms_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Nonsense(FakeScorer):
        async def score(self, job: object) -> object:  # type: ignore[override]
            return (
                "nonsense"
                if getattr(job, "first", False) and len(service.server.hub.sessions) > 1
                else await good.score(job)
            )  # type: ignore[arg-type]

    good = FakeScorer()
    async with serving(scorer=Nonsense()) as service, service.client() as other:
        async with service.client() as client:
            await client.say("START", pcm16(tone(1.0)))
            assert await client.closed() == 1011
        await eventually(lambda: service.sessions == 1)
        assert texts(await other.transcribe(tone(0.5))) == ["one"]
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


async def test_an_error_of_the_engine_is_told_whatever_is_in_it() -> None:
    """Half a surrogate pair, which has no UTF-8, and words in any script."""
    engine = FakeEngine()
    async with serving(engine) as service, service.client() as client:
        engine.faults.inject(Fault(error=EngineError("坏了: \ud800.wav")))
        await client.transcribe(tone(1.0))
        (error,) = (message["error"] for message in client.messages if "error" in message)
        assert error.endswith("坏了: ?.wav")


async def test_a_fault_while_freeing_is_logged_and_the_slot_is_free(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(FakeScorer):
        def forget(self, session: str) -> None:
            raise RuntimeError("a bug")

    caplog.set_level(logging.INFO)
    async with serving(scorer=Sticky(), options=ServerOptions(max_sessions=1)) as service:
        for _ in range(2):
            async with service.client() as client:
                assert texts(await client.transcribe(tone(0.5))) == ["one"]
            await eventually(lambda: service.sessions == 0)
    messages = [record.getMessage() for record in caplog.records]
    assert sum(message.endswith(": internal error") for message in messages) == 2
    assert sum(message.endswith("errors 0, close code 1000") for message in messages) == 2

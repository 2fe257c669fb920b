"""Viewers over real sockets: who sees what, and that nobody is delayed by them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from realtime_server.core import messages as m
from realtime_server.realtime.event_log import KEPT_EVENTS
from realtime_server.realtime.server import ServerOptions
from tests.realtime.harness import PATIENCE_S, SENTENCE, Client, Service, eventually, serving
from tests.realtime.test_http import ask


def kinds(client: Client) -> list[str]:
    return [message["type"] for message in client.messages]


async def sentence_of(viewer: Client) -> dict[str, Any]:
    return await viewer.until(lambda message: message["type"] == "sentence")


async def end_of(viewer: Client) -> int | None:
    """Read until the connection is closed; return its code."""
    with pytest.raises(ConnectionClosed):
        await viewer.until(lambda message: False)
    return viewer.connection.close_code


def the_session(service: Service) -> str:
    return next(iter(service.server.hub.sessions))


async def test_a_viewer_sees_a_session_of_protocol_1_by_its_name() -> None:
    async with serving() as service, service.client("?session=studio") as speaker:
        await speaker.say("START")
        await speaker.event("started")
        async with service.client("sessions/studio") as viewer, service.client("sessions/studio") as other:
            await speaker.hear(SENTENCE)
            seen = await sentence_of(viewer)
            assert seen["text"] == "one two"
            assert seen["session"] == the_session(service)
            assert await sentence_of(other) == seen
            await speaker.say("STOP")
            await viewer.until(lambda message: message["type"] == "stopped")


async def test_a_late_viewer_by_id_is_told_what_was_said() -> None:
    async with serving() as service, service.client() as speaker:
        await speaker.say("START")
        await speaker.hear(SENTENCE)
        await speaker.hear(SENTENCE)
        await speaker.sentences(2)
        path = f"sessions/{the_session(service)}"
        async with service.client(path) as viewer, service.client(f"{path}?history=1") as short:
            assert (await sentence_of(viewer))["id"] == 0
            assert (await sentence_of(viewer))["id"] == 1
            assert (await sentence_of(short))["id"] == 1


async def test_a_viewer_is_told_the_end_and_may_come_after_it() -> None:
    async with serving() as service:
        async with service.client("?session=studio") as speaker:
            await speaker.say("START")
            await speaker.event("started")
            async with service.client("sessions/studio") as viewer:
                await speaker.hear(SENTENCE)
                await speaker.connection.close()
                assert await end_of(viewer) == 1000
                assert kinds(viewer)[-1] == "final"
        await eventually(lambda: not service.sessions, "the session does not end")
        async with service.client("sessions/studio") as late:
            assert await end_of(late) == 1000
            assert kinds(late) == ["started", "sentence", "final"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("sessions/nobody", 404),
        ("sessions/", 400),
        ("sessions/a%20b", 400),
        ("sessions/studio?history=many", 400),
        ("sessions/studio?history=-1", 400),
        ("?session=", 400),
        ("?session=a/b", 400),
    ],
)
async def test_an_address_that_cannot_be_is_refused_at_the_handshake(path: str, status: int) -> None:
    async with serving() as service, service.client("?session=studio"):
        with pytest.raises(InvalidStatus) as refused:
            async with service.client(path):
                pass
        assert refused.value.response.status_code == status
        assert refused.value.response.body


async def test_viewers_are_bounded_and_give_their_places_back() -> None:
    options = ServerOptions(max_viewers=2, shutdown_s=PATIENCE_S)
    async with serving(options=options) as service, service.client("?session=a"):
        async with service.client("sessions/a"), service.client("sessions/a"):
            with pytest.raises(InvalidStatus) as refused:
                async with service.client("sessions/a"):
                    pass
            assert refused.value.response.status_code == 503
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with service.client("sessions/a"):
                        return
                except InvalidStatus:
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("frame", ["STOP", b"\0\0"])
async def test_a_viewer_that_says_something_is_sent_away_and_the_session_goes_on(frame: str | bytes) -> None:
    async with serving() as service, service.client("?session=a") as speaker:
        await speaker.say("START")
        async with service.client("sessions/a") as viewer:
            await viewer.say(frame)
            assert await end_of(viewer) == 1008
        await speaker.hear(SENTENCE)
        assert await speaker.sentences(1) == ["one two"]


async def test_viewers_are_no_sessions() -> None:
    options = ServerOptions(max_sessions=1, shutdown_s=PATIENCE_S)
    async with (
        serving(options=options) as service,
        service.client("?session=a") as speaker,
        AsyncExitStack() as stack,
    ):
        for _ in range(5):
            await stack.enter_async_context(service.client("sessions/a"))
        assert service.sessions == 1
        await speaker.say("START", "STOP")
        await speaker.event("stopped")


async def test_a_viewer_that_fell_behind_is_sent_away_and_may_come_again() -> None:
    options = ServerOptions(shutdown_s=PATIENCE_S)
    async with serving(options=options) as service, service.client("?session=a") as speaker:
        await speaker.say("START")
        await speaker.hear(SENTENCE)
        async with service.client("sessions/a") as viewer:
            await sentence_of(viewer)
            log = service.server.gallery.find("a").log
            log.append(
                [m.SegmentOpened(upto=0, channel=0, segment=n, start=0) for n in range(KEPT_EVENTS + 1)]
            )
            assert await end_of(viewer) == 1013
            assert viewer.connection.close_reason
            assert kinds(viewer).count("started") == 1
        async with service.client("sessions/a") as again:
            assert (await sentence_of(again))["text"] == "one two"


async def test_viewers_that_do_not_read_delay_nobody() -> None:
    options = ServerOptions(send_timeout_s=0.2, shutdown_s=PATIENCE_S)
    # What the speaker is told is not read, so there must be room for it, or its close would take ten seconds.
    async with (
        serving(options=options) as service,
        service.client("?session=a", max_queue=None) as speaker,
    ):
        await speaker.say('START {"protocol": 2}')
        async with (
            service.client("sessions/a", max_queue=1) as stalled,
            service.client("sessions/a") as viewer,
        ):
            for _ in range(3):
                await speaker.hear(SENTENCE)
            seen = [(await sentence_of(viewer))["id"] for _ in range(3)]
            assert seen == [0, 1, 2]
            assert stalled.messages == []
            stalled.abort()  # its close would be one more thing that it does not read


async def test_the_newest_session_has_the_name() -> None:
    async with serving() as service, service.client("?session=a") as first:
        await first.say("START")
        await first.event("started")
        async with service.client("?session=a") as second:
            await second.say("START")
            await second.hear(SENTENCE)
            await second.sentences(1)
            async with service.client("sessions/a") as viewer:
                assert (await sentence_of(viewer))["text"] == "one two"


async def test_a_session_keeps_its_name_when_another_of_it_comes_and_goes() -> None:
    async with serving() as service, service.client("?session=a") as first:
        await first.say("START")
        await first.event("started")
        async with service.client("?session=a"):
            await eventually(lambda: service.sessions == 2, "the second does not come")
        await eventually(lambda: service.sessions == 1, "the second does not leave")
        told = await ask(service, "/sessions/a")
        assert (told.status, told.headers["cache-control"]) == (200, "no-store")


async def test_the_server_stops_while_viewers_watch() -> None:
    async with serving() as service, service.client("?session=a") as speaker:
        await speaker.say("START")
        await speaker.hear(SENTENCE)
        async with service.client("sessions/a") as viewer:
            await sentence_of(viewer)
            await service.server.stop()
            assert await end_of(viewer) in (1000, 1001)

"""Who may come in on the live port: every refusal at the handshake, what is open, TLS, and what the log says of it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from realtime_server.doors.crowds import SPARE
from realtime_server.doors.door import Door, DoorOptions
from realtime_server.doors.session_tokens import Wish
from realtime_server.doors.tls import ServerTls
from realtime_server.doors.tokens import Token
from realtime_server.realtime import fair_connection
from tests.audio import tone
from tests.certificates import make_certificate, trusting
from tests.doors.test_rates import Clock
from tests.live_server import LiveServer
from tests.realtime.harness import HANGS_S, PATIENCE_S, Service, eventually, serving, texts
from tests.realtime.test_http import ask, needs_methods, raw

LONG, VIEWER, ONE = "a-long-token-for-all", "a-long-token-for-viewers", "a-long-token-for-one"
TOKENS = (
    Token.of("all", LONG),
    Token.of("viewer", VIEWER, rights=frozenset({"view"})),
    Token.of("one", ONE, max_sessions=1),
)
OPTIONS = DoorOptions(tokens=TOKENS, origins=("https://listed.example",))
WRONG = "this-is-a-wrong-token"


def bearing(token: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {token}"}}


async def refusal(service: Service, path: str = "", **options: Any) -> Response:
    """The answer to a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refused:
        async with service.client(path, **options):
            pass
    return refused.value.response


def server_log(caplog: pytest.LogCaptureFixture) -> str:
    """What was logged by anybody but the tests' own clients."""
    records = (record for record in caplog.records if not record.name.startswith("websockets.client"))
    return "\n".join(map(str, map(logging.Formatter().format, records)))


def refused_total(service: Service, reason: str) -> float:
    return (
        service.server.metrics.registry.get_sample_value("realtime_server_refused_total", {"reason": reason})
        or 0
    )


@pytest.mark.parametrize("path", ["sessions/a", "metrics"])
async def test_without_tokens_a_name_that_was_pointed_here_reads_nothing(path: str) -> None:
    async with serving() as service, service.client("?session=a"):
        answer = await raw(service, f"GET /{path} HTTP/1.1\r\nHost: evil.example:10095\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert refused_total(service, "origin") == 1


@pytest.mark.parametrize(
    ("path", "options", "status", "reason"),
    [
        ("", {}, 401, "no_token"),
        ("?token=", {}, 401, "no_token"),
        (f"?token={WRONG}", {}, 401, "bad_token"),
        ("", bearing(WRONG), 401, "bad_token"),
        ("", bearing(VIEWER), 403, "right"),
        (f"?token={LONG}", {"origin": "https://elsewhere.example"}, 403, "origin"),
        (f"?token={LONG}", {"origin": "null"}, 403, "origin"),
    ],
)
async def test_who_is_refused(
    path: str, options: dict[str, Any], status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(door=Door(OPTIONS)) as service:
        for _ in range(3):
            response = await refusal(service, path, **options)
            assert response.status_code == status
            assert (response.headers.get("WWW-Authenticate", "").partition(" ")[0] == "Bearer") is (
                status == 401
            )
        assert refused_total(service, reason) == 3
        assert service.sessions == 0
    assert sum("refused 127.0.0.1" in message for message in caplog.messages) == 1
    assert not any(secret in server_log(caplog) for secret in (LONG, VIEWER, WRONG))


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("", bearing(LONG)),
        (f"any/path?x=1&token={LONG}", {}),
        (f"?token={LONG}", {"origin": "https://listed.example"}),
        (f"?token={LONG}", {"origin": "http://127.0.0.1:8899"}),
    ],
)
async def test_who_comes_in(path: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(door=Door(OPTIONS)) as service, service.client(path, **options) as client:
        assert texts(await client.transcribe(tone(0.5))) == ["one"]
    assert LONG not in server_log(caplog)


async def test_without_tokens_a_page_from_elsewhere_is_refused_and_a_program_is_not() -> None:
    async with serving() as service:
        assert (await refusal(service, origin="https://elsewhere.example")).status_code == 403
        for options in ({}, {"origin": "http://127.0.0.1:1"}, bearing("none")):
            async with service.client(**options):
                pass


async def test_too_many_handshakes_of_one_address() -> None:
    clock = Clock()
    async with serving(door=Door(DoorOptions(per_minute=2), clock=clock)) as service:
        for _ in range(2):
            async with service.client():
                pass
        response = await refusal(service)
        assert (response.status_code, response.headers["Retry-After"]) == (429, "30")
        assert (await ask(service, "/health")).status == 200
        clock.now_s += 30
        async with service.client():
            pass


def counting(options: DoorOptions) -> Door:
    """A door that counts connections from this machine, too."""
    return Door(options, free=lambda sender: False)


async def test_too_many_connections_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    door = counting(DoorOptions(tokens=TOKENS, connections=2))
    async with serving(door=door) as service, service.client(**bearing(LONG)) as client:
        _, idle = await asyncio.open_connection("127.0.0.1", service.port)
        await eventually(lambda: door._crowd._counts.total() == 2)
        response = await refusal(service, f"?token={LONG}")
        assert (response.status_code, response.headers["Retry-After"]) == (429, "5")
        assert json.loads(response.body or b"")["code"] == "connections"
        assert (await ask(service, "/health")).status == 429
        idle.transport.abort()
        await eventually(lambda: door._crowd._counts.total() == 1)
        async with service.client(**bearing(LONG)) as other:
            assert texts(await other.transcribe(tone(0.5))) == ["one"]
        assert texts(await client.transcribe(tone(0.5))) == ["one"]
        assert refused_total(service, "connections") == 2
    log = server_log(caplog)
    assert log.count("has 2 connections open already") == 1
    assert LONG not in log


async def test_one_too_many_that_says_nothing_is_soon_closed_and_many_more_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = counting(DoorOptions(connections=1))
    async with serving(door=door) as service, service.client() as client:
        await crowd_in(service.port, door, partial(monkeypatch.setattr, fair_connection, "TELLING_S"))
        assert refused_total(service, "connections") == 2 * SPARE + 1
        assert texts(await client.transcribe(tone(0.5))) == ["one"]


async def crowd_in(port: int, door: Door, tell_for: Callable[[float], None]) -> None:
    """Where there is one connection and no more may be: SPARE more are left open for a while, the rest is cut off."""
    counts = door._crowd._counts
    tell_for(HANGS_S)
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * SPARE)]
    await eventually(lambda: sum(reading.at_eof() for reading, _ in opened) == SPARE)
    assert counts.total() == 1 + SPARE
    for _, writing in opened:
        writing.close()
    await eventually(lambda: counts.total() == 1)
    tell_for(0.1)
    reading, writing = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(PATIENCE_S):
        assert await reading.read() == b""
    writing.close()
    await eventually(lambda: counts.total() == 1)


@needs_methods
async def test_one_too_many_that_asks_for_no_body_gets_none() -> None:
    async with serving(door=counting(DoorOptions(connections=1))) as service, service.client():
        get, head = await ask(service, "/health"), await ask(service, "/health", "HEAD")
        assert (get.status, head.status) == (429, 429)
        assert head.headers["content-length"] == str(len(get.body))
        assert head.body == b""


async def test_behind_a_proxy_each_address_has_its_own_connections() -> None:
    def forwarded(address: str) -> dict[str, Any]:
        return {"additional_headers": {"X-Forwarded-For": address}}

    door = Door(DoorOptions(connections=1, proxies=1))
    async with serving(door=door) as service, service.client(**forwarded("192.0.2.1")):
        assert (await refusal(service, **forwarded("192.0.2.1"))).status_code == 429
        async with service.client(**forwarded("192.0.2.2")):
            pass
        assert refused_total(service, "connections") == 1
    assert not len(door._crowd)


@pytest.mark.parametrize("upgrade", ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"])
async def test_behind_a_proxy_who_asks_and_is_gone_at_once_is_counted_no_more(upgrade: str) -> None:
    """In a process as users have it: only uvloop reads a request and the end behind it in one go."""
    asked = f"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n{upgrade}\r\n"
    flags = ("--engine", "fake", "--vad", "level", "--trust-proxy", "--max-connections-per-address", "3")
    with LiveServer(*flags) as server:
        place = ("127.0.0.1", int(server.url.rstrip("/").rpartition(":")[2]))
        for _ in range(20):
            with socket.create_connection(place) as plain:
                plain.sendall(asked.encode())
        request = urllib.request.Request(
            f"http://127.0.0.1:{place[1]}/health", headers={"X-Forwarded-For": "192.0.2.1"}
        )
        await eventually(lambda: answers(request))


def answers(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise
        return False


async def test_a_token_has_so_many_sessions_and_they_come_back() -> None:
    async with serving(door=Door(OPTIONS)) as service:
        async with service.client(**bearing(ONE)) as client:
            response = await refusal(service, **bearing(ONE))
            assert (response.status_code, response.headers["Retry-After"]) == (429, "5")
            async with service.client(**bearing(LONG)):
                pass
            client.abort()
            await eventually(lambda: service.sessions == 0)
        async with service.client(**bearing(ONE)):
            pass


async def test_a_connection_that_is_lost_before_its_session_begins_gives_its_place_back() -> None:
    handshake = (
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Authorization: Bearer {ONE}\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with serving(door=Door(OPTIONS)) as service:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(handshake.encode())
            writer.transport.abort()
        await eventually(lambda: service.sessions == 0)

        async def comes_in() -> bool:
            try:
                async with service.client(**bearing(ONE)):
                    return True
            except InvalidStatus:
                return False

        async with asyncio.timeout(20):
            while not await comes_in():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)


async def test_session_tokens_are_made_by_get_and_end() -> None:
    wall = Clock()
    async with serving(door=Door(OPTIONS, wall_clock=wall)) as service:
        header = f"Authorization: Bearer {LONG}\r\n"
        answer = await ask(service, "/tokens?ttl_s=60", headers=header)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
        assert answer.json["rights"] == ["transcribe"]
        async with service.client(f"?token={answer.json['token']}") as client:
            wall.now_s += 60
            response = await refusal(service, f"?token={answer.json['token']}")
            assert response.status_code == 401
            assert b"has expired" in (response.body or b"")
            assert texts(await client.transcribe(tone(0.5))) == ["one"]  # who is in stays in
        assert (await ask(service, "/tokens?ttl_s=0", headers=header)).status == 400
        for path in ("/tokens", f"/tokens?token={LONG}"):
            assert (await ask(service, path)).status == 401
    async with serving() as service:
        assert (await ask(service, "/tokens", headers=header)).status == 400


async def test_what_is_open() -> None:
    async with serving(door=Door(OPTIONS)) as service:
        for path in ("/", "/health", "/ready"):
            assert (await ask(service, path)).status == 200
        assert (await ask(service, "/health")).json["token_needed"] is True
        assert (await ask(service, "/metrics")).status == 401
        assert (await ask(service, "/metrics", headers=f"Authorization: Bearer {VIEWER}\r\n")).status == 403
        assert (await ask(service, "/metrics", headers=f"Authorization: Bearer {LONG}\r\n")).status == 200


async def test_readiness_tells_a_page_whether_it_would_be_let_in() -> None:
    """Of a handshake that is refused, a browser tells its page nothing."""
    door = Door(OPTIONS)
    bound = door.mint(TOKENS[0], Wish(session="mine")).value
    async with serving(door=door) as service:
        for query, headers, status in (
            (f"token={LONG}", "", 200),
            ("token=", "", 401),
            (f"token={WRONG}", "", 401),
            (f"token={LONG}", "Origin: https://elsewhere.example\r\n", 403),
            ("", "Origin: https://elsewhere.example\r\n", 200),
            (f"token={bound}&session=mine", "", 200),
            (f"token={bound}&session=yours", "", 403),
            (f"token={bound}", "", 403),
        ):
            answer = await ask(service, f"/ready?{query}", headers=headers)
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == "*"
            assert bool(answer.json.get("error")) is (status != 200)


async def test_tls_and_what_knocks_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files = make_certificate(tmp_path)
    async with serving(tls=ServerTls(files).context) as service:
        async with service.client(ssl=trusting(files)) as client:
            assert texts(await client.transcribe(tone(0.5))) == ["one"]
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        writer.close()
        async with service.client(ssl=trusting(files)):
            pass
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []

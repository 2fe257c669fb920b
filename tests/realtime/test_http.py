"""Plain HTTP on the WebSocket port, and handshakes of every shape."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request

from realtime_server import __version__
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.realtime.http_answers import page_policy
from realtime_server.realtime.server import ServerOptions
from realtime_server.resources import find_resource, read_page
from tests.audio import pcm16, tone
from tests.realtime.harness import PATIENCE_S, Client, Service, eventually, serving, texts

KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
needs_methods = pytest.mark.skipif(
    "method" not in Request.__annotations__, reason="this version of websockets answers GET only"
)
UPGRADE = f"Connection: Upgrade\r\nUpgrade: websocket\r\n{KEY}"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.body)
        return value


async def raw(service: Service, request: str | bytes) -> bytes:
    """Send bytes, return everything up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(request.encode() if isinstance(request, str) else request)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def ask(service: Service, path: str, method: str = "GET", headers: str = "") -> Answer:
    head, _, body = (
        await raw(service, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
    ).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return Answer(int(status.split()[1]), {name.lower(): value for name, value in pairs}, body)


@pytest.mark.parametrize("size", [0, 5, 300_000])
async def test_a_recording_that_is_sent_to_this_port_is_told_where_to_go(size: int) -> None:
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    async with serving() as service:
        answer = await raw(service, head.encode() + bytes(size))
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"on the port of --http-port" in answer
        assert (await ask(service, "/v1/models")).status == 404
        assert b"--http-port" in (await ask(service, "/v1/models")).body


async def test_the_page_may_run_nothing_but_its_own_script() -> None:
    async with serving() as service:
        policy = (await ask(service, "/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_policy_names_every_block() -> None:
    policy = page_policy("<style>a</style><script>one</script><script>two</script>")
    assert policy.count("sha256-") == 3
    assert "script-src 'none'" in page_policy("<p>no script</p>")


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_a_page_from_elsewhere_may_read_the_health_checks(path: str) -> None:
    async with serving() as service:
        assert (await ask(service, path)).headers["access-control-allow-origin"] == "*"


async def test_the_page() -> None:
    async with serving() as service:
        for path in ("/", "/?language=zh"):
            answer = await ask(service, path)
            assert answer.status == 200
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert answer.body.decode() == read_page(find_resource("static/client_mic.html"))
            assert b"mic/" not in answer.body.partition(b"<body")[2]


@pytest.mark.parametrize("path", ["/overlay", "/overlay.html?session=a"])
async def test_the_overlay(path: str) -> None:
    text = find_resource("static/overlay.html").read_text(encoding="utf-8")
    async with serving() as service:
        answer = await ask(service, path)
        assert (answer.status, answer.body) == (200, text.encode())
        assert answer.headers["content-security-policy"] == page_policy(text)


async def test_health() -> None:
    async with serving() as service:
        answer = await ask(service, "/health")
        assert answer.status == 200
        assert answer.json == {
            "status": "ok", "version": __version__, "engine": "fake", "sessions": 0, "max_sessions": 100,
            "token_needed": False,
        }  # fmt: skip
        async with service.client():
            assert (await ask(service, "/health?x")).json["sessions"] == 1


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/"])
async def test_it_is_answered_at_once_while_the_engine_decodes(path: str) -> None:
    """R14: four decodes on two slots. A busy machine may spoil some of the tries, an engine in the way all."""
    engine = FakeEngine(slots=2, decode_s=1.0)
    async with serving(engine) as service, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(service.client()) for _ in range(4)]
        for client in clients:
            await client.say("START", pcm16(tone(1.0)), "STOP")
        await eventually(lambda: engine.running + engine.waiting >= 3)
        took_s = []
        for _ in range(5):
            began_s = time.monotonic()
            assert (await ask(service, path)).status == 200
            took_s.append(time.monotonic() - began_s)
        assert min(took_s) < 0.1
        assert all([texts(await client.final()) == ["one two"] for client in clients])


async def test_an_answer_that_fails_is_a_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(description={"engine": object()}) as service:  # type: ignore[dict-item]
        assert (await ask(service, "/health")).status == 500
        assert (await ask(service, "/")).status == 200
    assert "could not answer /health" in caplog.text


async def test_ready_and_full() -> None:
    async with serving(options=ServerOptions(max_sessions=1)) as service:
        ready = await ask(service, "/ready")
        assert (ready.status, ready.json["ready"], ready.json["reason"]) == (200, True, None)
        async with service.client():
            full = await ask(service, "/ready")
            assert (full.status, full.json["ready"]) == (503, False)
            assert full.json["reason"] == "the server is full (1 sessions); try again later"
            assert (await ask(service, "/")).status == 200
            assert (await ask(service, "/health")).status == 200
        await eventually(lambda: service.sessions == 0)
        assert (await ask(service, "/ready")).status == 200


async def test_ready_while_the_recognizer_fails() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    async with serving(engine) as service, service.client() as client:
        for _ in range(2):
            await client.transcribe(tone(1.0))
        broken = await ask(service, "/ready")
        assert broken.status == 503
        assert "the recognizer failed" in str(broken.json["reason"])
        assert (await ask(service, "/health")).status == 200
        async with service.client() as other:  # it may still try
            engine.faults.clear()
            assert texts(await other.transcribe(tone(1.0))) == ["one two"]
        assert (await ask(service, "/ready")).status == 200


@pytest.mark.parametrize(
    "path", ["/nothing", "/health/", "/metrics/", "/../etc/passwd", "/ready.json", "//", "*"]
)
async def test_other_paths_are_not_found(path: str) -> None:
    async with serving() as service:
        assert (await ask(service, path)).status == 404


@needs_methods
async def test_head_is_get_without_the_body() -> None:
    async with serving() as service:
        for path in ("/", "/health", "/ready", "/nothing"):
            get, head = await ask(service, path), await ask(service, path, "HEAD")
            assert head.status == get.status
            assert head.headers["content-length"] == get.headers["content-length"]
            assert head.body == b""


@needs_methods
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
async def test_other_methods_are_refused(method: str) -> None:
    async with serving() as service:
        answer = await ask(service, "/", method, "Content-Length: 0\r\n")
        assert answer.status == 405
        assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "request_",
    [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /" + "a" * 10_000 + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n" + "X: y\r\n" * 1000 + "\r\n",
        "GET /é HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 100 + b"\r\n\r\n",  # TLS
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: keep-alive\r\n\r\n",
        "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        f"GET / HTTP/1.1\r\n{UPGRADE.replace('13', '8')}\r\n",
        f"POST / HTTP/1.1\r\n{UPGRADE}\r\n",
    ],
)  # fmt: skip
async def test_malformed_requests_harm_nobody(
    request_: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(options=ServerOptions(max_sessions=1)) as service:
        answer = await raw(service, request_)
        assert answer == b"" or int(answer.split()[1]) >= 400
        async with service.client() as client:
            assert texts(await client.transcribe(tone(0.5))) == ["one"]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("", {}),
        ("?token=x&y", {}),
        ("/[", {}),
        ("ws", {}),
        ("some/where?else=1", {}),
        ("health", {}),
        ("", {"Host": "192.0.2.7"}),
        ("", {"Origin": "http://127.0.0.1"}),
        ("", {"X-Forwarded-For": "10.0.0.1", "Cookie": "a=b"}),
    ],
)
async def test_a_websocket_is_opened_at_any_address(path: str, headers: dict[str, str]) -> None:
    async with serving() as service, service.client(path, additional_headers=headers) as client:
        assert texts(await client.transcribe(tone(0.5))) == ["one"]


@pytest.mark.parametrize("upgrade", ["WebSocket", "WEBSOCKET"])
async def test_the_upgrade_header_may_be_written_in_any_case(upgrade: str) -> None:
    async with serving() as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, upgrade\r\n"
            f"Upgrade: {upgrade}\r\n{KEY}\r\n".encode()
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_offers_compression_and_a_subprotocol_gets_neither() -> None:
    async with serving() as service, service.client(compression="deflate") as client:
        assert client.connection.protocol.extensions == []
        assert texts(await client.transcribe(tone(0.5))) == ["one"]
    async with serving() as service:
        answer = await open_and_leave(service, "Sec-WebSocket-Protocol: binary\r\n")
        assert b"101" in answer
        assert b"Protocol:" not in answer


async def open_and_leave(service: Service, headers: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}{headers}\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_refusal_has_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(options=ServerOptions(max_sessions=1)) as service, service.client() as first:
        with pytest.raises(InvalidStatus) as refused:
            async with service.client():
                pass
        response = refused.value.response
        assert response.status_code == 503
        assert response.body == b"the server is full (1 sessions); try again later\n"
        assert response.headers["Retry-After"] == "5"
        assert b'refused_total{reason="full"} 1.0' in (await ask(service, "/metrics")).body
        assert "refused a connection: the server is full" in caplog.text
        assert texts(await first.transcribe(tone(0.5))) == ["one"]


async def test_the_slot_is_free_again_when_a_client_has_left() -> None:
    async with serving(options=ServerOptions(max_sessions=1)) as service:
        for leave in (Client.abort, None, Client.abort):
            async with service.client() as client:
                assert texts(await client.transcribe(tone(0.5))) == ["one"]
                if leave:
                    leave(client)
            await eventually(lambda: service.sessions == 0)


@pytest.mark.parametrize("what", ["nothing", "garbage", "half a request", "bad key", "opened and lost"])
async def test_connections_that_come_to_nothing_take_no_slot(what: str) -> None:
    requests = {
        "nothing": b"",
        "garbage": b"\x00\x01\x02\xff\r\n\r\n",
        "half a request": b"GET / HTTP/1.1\r\nUpgrade: web",
        "bad key": f"GET / HTTP/1.1\r\n{UPGRADE.replace('AAAA', '!!')}\r\n".encode(),
        "opened and lost": f"GET / HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode(),
    }
    async with serving(options=ServerOptions(max_sessions=1, close_s=0.1)) as service:
        writers = []
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(requests[what])
            await writer.drain()
            writers.append(writer)
            if what == "opened and lost":
                writer.transport.abort()
        await asyncio.sleep(0.02)
        await eventually(lambda: service.sessions == 0)
        async with service.client() as client:  # the others may still hold their TCP connections
            assert texts(await client.transcribe(tone(0.5))) == ["one"]
        for writer in writers:
            writer.transport.abort()


async def test_a_burst_of_handshakes_cannot_pass_the_limit() -> None:
    async with serving(options=ServerOptions(max_sessions=3)) as service:
        opened = []

        async def come() -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
            opened.append(writer)
            return int((await reader.readline()).split()[1])

        statuses = await asyncio.gather(*(come() for _ in range(40)))
        assert sorted(statuses) == [101] * 3 + [503] * 37
        assert service.sessions == 3
        for writer in opened:
            writer.transport.abort()

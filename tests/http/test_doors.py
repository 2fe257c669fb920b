"""Who may come in on the HTTP port: refusals in OpenAI's form, session tokens, TLS, pages from elsewhere."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, PermissionDeniedError, RateLimitError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage, InvalidStatus

from realtime_server.doors.door import Door, DoorOptions
from realtime_server.doors.tls import ServerTls
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.http import fair_h11
from realtime_server.http.app import LiveService
from realtime_server.http.fair_websocket import FairWebSocket
from realtime_server.http.tokens_api import BODY_BYTES
from realtime_server.realtime.reception import Reception
from tests.audio import tone
from tests.certificates import make_certificate, trusting
from tests.doors.test_rates import Clock
from tests.http.harness import LIVE, Files, serving
from tests.http.process import TALK_WAV, TEXT
from tests.realtime.harness import eventually, texts
from tests.realtime.test_doors import LONG, ONE, OPTIONS, VIEWER, WRONG, counting, crowd_in, server_log

LISTED, ELSEWHERE = "https://listed.example", "https://elsewhere.example"


def behind(door: Door) -> LiveService:
    return replace(LIVE, reception=Reception(door, LIVE.metrics))


def guarded(options: DoorOptions = OPTIONS, **clocks: Clock) -> LiveService:
    return behind(Door(options, **clocks))


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def openai(files: Files, token: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{files.url}/v1", api_key=token, max_retries=0)


async def transcribe(client: AsyncOpenAI) -> str:
    async with client:
        created = await client.audio.transcriptions.create(model="whisper-1", file=("talk.wav", TALK_WAV))
    return created.text


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("POST", "/asr", {}, 401, "no_token"),
        ("POST", "/asr", bearing(WRONG), 401, "bad_token"),
        ("POST", f"/asr?token={WRONG}", {}, 401, "bad_token"),
        ("POST", "/asr", bearing(VIEWER), 403, "right"),
        ("POST", "/asr", {**bearing(LONG), "Origin": ELSEWHERE}, 403, "origin"),
        ("GET", "/v1/models", {}, 401, "no_token"),
        ("GET", "/metrics", {}, 401, "no_token"),
        ("GET", "/metrics", bearing(VIEWER), 403, "right"),
        ("GET", "/sessions/abc/transcript.txt", {}, 401, "no_token"),
        ("GET", "/anything/else", {}, 401, "no_token"),
        ("GET", "/ready?token=", {}, 401, "no_token"),
        ("POST", "/tokens", {}, 401, "no_token"),
        ("POST", f"/tokens?token={LONG}", {}, 401, "no_token"),
    ],
)
async def test_who_is_refused(
    method: str, path: str, headers: dict[str, str], status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # the test's own client
    async with serving(live=guarded()) as files:
        for _ in range(3):
            answer = await files.http.request(method, path, headers=headers, content=TALK_WAV)
            assert answer.status_code == status
            error = answer.json()["error"]
            assert (error["code"], error["type"], error["param"]) == (code, "invalid_request_error", None)
            assert answer.headers.get("www-authenticate", "").startswith("Bearer") is (status == 401)
        metrics = (await files.http.get("/metrics", headers=bearing(LONG))).text
    assert f'realtime_server_refused_total{{reason="{code}"}} 3.0' in metrics
    assert sum("refused 127.0.0.1" in message for message in caplog.messages) == 1
    assert not any(secret in server_log(caplog) for secret in (LONG, VIEWER, WRONG))


async def test_what_is_open() -> None:
    async with serving(live=guarded()) as files:
        for path in ("/", "/docs", "/openapi.json", "/health", "/ready"):
            assert (await files.http.get(path)).status_code in (200, 307), path
        assert (await files.http.get("/sessions/abc", headers=bearing(VIEWER))).status_code == 404
        assert (await files.http.get(f"/ready?token={LONG}")).status_code == 200


async def test_openais_client_has_the_token_for_its_key() -> None:
    async with serving(live=guarded()) as files:
        assert await transcribe(openai(files, LONG)) == TEXT
        with pytest.raises(AuthenticationError, match="not valid here") as refused:
            await transcribe(openai(files, WRONG))
        assert refused.value.code == "bad_token"
        with pytest.raises(PermissionDeniedError):
            await transcribe(openai(files, VIEWER))


async def test_too_many_requests_of_one_address() -> None:
    clock = Clock()
    async with serving(live=guarded(DoorOptions(per_minute=1), clock=clock)) as files:
        assert (await files.http.get("/v1/models")).status_code == 200
        answer = await files.http.get("/v1/models")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert (await files.http.get("/health")).status_code == 200
        clock.now_s += 60
        assert (await files.http.get("/v1/models")).status_code == 200


async def test_whom_a_proxy_names_is_believed_only_if_told_so() -> None:
    for proxies, status in ((0, 429), (1, 200)):
        async with serving(live=guarded(DoorOptions(per_minute=1, proxies=proxies), clock=Clock())) as files:
            forwarded = [
                {"X-Forwarded-For": f"6.6.6.6, 192.0.2.{n}", "X-Forwarded-Proto": "https"} for n in (1, 2)
            ]
            assert (await files.http.get("/v1/models", headers=forwarded[0])).status_code == 200
            assert (await files.http.get("/v1/models", headers=forwarded[1])).status_code == status
            page = await files.http.get("/", headers=forwarded[0])
            assert page.headers["location"].startswith("/?server=wss") is bool(proxies)


async def test_a_token_has_so_many_requests_at_once() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with serving(engine, live=guarded()) as files:
        files.http.headers.update(bearing(ONE))
        held = files.posting()
        await eventually(lambda: files.service.running == 1)
        with pytest.raises(RateLimitError, match="this token has 1 session already"):
            await transcribe(openai(files, ONE))
        with pytest.raises(InvalidStatus) as refused:
            async with files.websocket(additional_headers=bearing(ONE)):
                pass
        assert refused.value.response.status_code == 429
        assert (await files.http.get("/v1/models")).status_code == 200
        held.cancel()
        await eventually(lambda: files.service.running == 0)
        engine.faults.clear()
        assert await transcribe(openai(files, ONE)) == TEXT


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/ws", {}, 401),
        (f"/ws?token={WRONG}", {}, 401),
        ("/ws", {"additional_headers": bearing(VIEWER)}, 403),
        (f"/ws?token={LONG}", {"origin": ELSEWHERE}, 403),
        (f"/ws?token={LONG}", {"origin": LISTED}, None),
        (f"/ws?token={LONG}", {}, None),
        ("/ws", {"additional_headers": bearing(LONG)}, None),
    ],
)
async def test_websockets(path: str, options: dict[str, Any], status: int | None) -> None:
    async with serving(live=guarded()) as files:
        address = files.url.replace("http", "ws") + path
        if status is None:
            async with connect(address, **options) as connection:
                await connection.send("START")
                assert "started" in str(await connection.recv())
            return
        with pytest.raises(InvalidStatus) as refused:
            async with connect(address, **options):
                pass
        assert refused.value.response.status_code == status
        assert b'"error"' in (refused.value.response.body or b"")


async def test_session_tokens() -> None:
    wall = Clock()
    async with serving(live=guarded(wall_clock=wall)) as files:
        answer = await files.http.post("/tokens", json={"ttl_s": 60}, headers=bearing(LONG))
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        made = answer.json()
        assert (made["expires_at"], made["ttl_s"], made["rights"]) == (1060, 60, ["transcribe"])
        assert await transcribe(openai(files, made["token"])) == TEXT
        for path in ("/metrics", "/sessions/abc"):
            assert (await files.http.get(path, headers=bearing(made["token"]))).status_code == 403
        assert (await files.http.post("/tokens", headers=bearing(made["token"]))).status_code == 403
        wall.now_s += 60
        with pytest.raises(AuthenticationError, match="has expired"):
            await transcribe(openai(files, made["token"]))


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"", 200, None),
        (b'{"rights": ["view"], "session": "abc"}', 200, None),
        (b'{"ttl": 1}', 400, "ttl"),
        (b'{"ttl_s": 1e9}', 400, "ttl_s"),
        (b"[]", 400, None),
        (b"\xff", 400, None),
        (b"[" * BODY_BYTES, 400, None),
        (b" " * (BODY_BYTES + 1), 413, None),
    ],
)
async def test_what_may_be_asked_of_tokens(body: bytes, status: int, param: str | None) -> None:
    async with serving(live=guarded()) as files:
        answer = await files.http.post("/tokens", content=body, headers=bearing(LONG))
        assert answer.status_code == status
        assert answer.json().get("error", {}).get("param") == param


async def test_without_tokens_none_are_made() -> None:
    async with serving() as files:
        answer = await files.http.post("/tokens", headers=bearing(LONG))
        assert answer.status_code == 400
        assert "no tokens are needed" in answer.json()["error"]["message"]


async def test_a_page_of_a_listed_origin_may_ask_and_read_the_answer() -> None:
    async with serving(live=guarded()) as files:
        for origin, told in ((LISTED, LISTED), (ELSEWHERE, None)):
            preflight = await files.http.options(
                "/asr", headers={
                    "Origin": origin, "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization",
                },
            )  # fmt: skip
            assert preflight.status_code == (200 if told else 400)
            assert preflight.headers.get("access-control-allow-origin") == told
            for token, status in ((LONG, 200 if told else 403), (WRONG, 401 if told else 403)):
                answer = await files.http.get("/v1/models", headers={**bearing(token), "Origin": origin})
                assert answer.status_code == status
                assert answer.headers.get("access-control-allow-origin") == told


async def test_tls(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    live = replace(guarded(), tls=ServerTls(made).context)
    async with serving(live=live, verify=trusting(made)) as files:
        files.http.headers.update(bearing(LONG))
        assert files.url.startswith("https")
        assert (await files.post("/v1/audio/transcriptions")).json()["text"] == TEXT
        assert (await files.http.get("/")).headers["location"].startswith("/?server=wss")
        async with files.websocket(additional_headers=bearing(LONG), ssl=trusting(made)) as client:
            assert texts(await client.transcribe(tone(0.5))) == ["one"]
        _, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        writer.close()
        assert (await files.http.get("/health")).status_code == 200


# --- how many connections -----------------------------------------------------------------------------------


async def test_too_many_connections_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    live = behind(counting(DoorOptions(connections=2)))
    async with serving(live=live) as files:
        port = int(files.url.rpartition(":")[2])
        async with files.websocket() as watching:
            _, idle = await asyncio.open_connection("127.0.0.1", port)
            await eventually(lambda: live.reception.door._crowd._counts.total() == 2)
            for path in ("/health", "/v1/models"):
                answer = await files.http.get(path)
                assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
                assert answer.json()["error"]["code"] == "connections"
            with pytest.raises(InvalidStatus) as refused:
                async with files.websocket():
                    pass
            assert refused.value.response.status_code == 429
            idle.close()
            await eventually(lambda: live.reception.door._crowd._counts.total() == 1)
            assert (await files.http.get("/health")).status_code == 200
            assert watching.connection.close_code is None
        await files.http.aclose()
        await eventually(lambda: not len(live.reception.door._crowd))
    assert server_log(caplog).count("has 2 connections open already") == 1


async def test_one_too_many_that_says_nothing_is_soon_closed_and_many_more_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = behind(counting(DoorOptions(connections=1)))
    async with serving(live=live) as files, files.websocket() as client:
        port = int(files.url.rpartition(":")[2])
        await crowd_in(port, live.reception.door, partial(monkeypatch.setattr, fair_h11, "TELLING_S"))
        assert client.connection.close_code is None


async def test_a_websocket_that_fails_as_it_begins_is_no_longer_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: FairWebSocket, data: bytes) -> None:
        raise RuntimeError

    live = behind(counting(DoorOptions()))
    async with serving(live=live) as files:
        monkeypatch.setattr(FairWebSocket, "data_received", fail)
        with pytest.raises(InvalidMessage):
            async with files.websocket():
                pass
        await eventually(lambda: not len(live.reception.door._crowd))


async def test_behind_a_proxy_each_address_has_its_own_requests() -> None:
    live = guarded(DoorOptions(connections=1, proxies=1))
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    ann, bob = ({"X-Forwarded-For": address} for address in ("192.0.2.1", "192.0.2.2"))
    async with serving(engine, live=live) as files:
        running = asyncio.create_task(files.http.post("/asr", files={"file": TALK_WAV}, headers=ann))
        await eventually(lambda: files.service.running == 1)
        for path in ("/v1/models", "/health"):
            answer = await files.http.get(path, headers=ann)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "connections")
            assert (await files.http.get(path, headers=bob)).status_code == 200
        running.cancel()
        await eventually(lambda: not len(live.reception.door._crowd))

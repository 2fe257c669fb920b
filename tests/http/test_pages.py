"""What is read rather than asked for: health checks, the list of endpoints, the page."""

from __future__ import annotations

import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx2
import pytest

from realtime_server import __version__
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.http.options import HttpOptions
from realtime_server.realtime.http_answers import page_policy
from realtime_server.resources import find_resource, read_page
from tests.http.harness import LIVE, serving
from tests.http.process import FIVE_MINUTES, FilesServer
from tests.realtime.harness import eventually

MODELS = ("/v1/models", "/v1/models/{name}")
PAGES = ("/", "/docs", "/health", "/openapi.json", "/ready", "/v1/models")


async def test_health_and_readiness_are_those_of_the_live_service() -> None:
    reasons: list[str | None] = [None, "the server is full"]
    live = replace(LIVE, why_not_ready=reasons.pop)
    async with serving(live=live) as files:
        state = {"engine": "fake", "files": 0, "max_files": 32}
        health = await files.http.get("/health")
        assert (health.status_code, health.json()) == (200, {"status": "ok", **state})
        for status, reason in ((503, "the server is full"), (200, None)):
            ready = await files.http.get("/ready")
            assert (ready.status_code, ready.json()) == (
                status, {"ready": reason is None, "reason": reason, **state},
            )  # fmt: skip
        assert health.headers["access-control-allow-origin"] == "*"


def test_both_ports_tell_the_same(files: FilesServer) -> None:
    with files.http() as client:
        here = client.get("/health").json()
        there = client.get(f"{files.page}health").json()
    assert here == there | {"files": 0, "max_files": 32}
    assert here["version"] == __version__


async def test_metrics() -> None:
    engine = FakeEngine()
    async with serving(engine, options=HttpOptions(max_files=1)) as files:
        await files.post()
        engine.faults.inject(Fault())
        await files.post()
        engine.faults.clear()
        engine.faults.inject(Fault(error=None))
        held = files.posting()
        await eventually(lambda: files.service.running == 1)
        await files.post()
        answer = await files.http.get("/metrics")
        held.cancel()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert "realtime_server_sessions 3.0" in lines
    assert "realtime_server_files 1.0" in lines
    assert "realtime_server_files_audio_seconds_total 8.0" in lines
    for outcome, count in (("transcribed", 1), ("failed", 1), ("cancelled", 0), ("refused", 1)):
        assert f'realtime_server_files_done_total{{outcome="{outcome}"}} {count}.0' in lines


def test_both_ports_count_the_same(files: FilesServer) -> None:
    with files.http() as client:
        for port in (files.files_url, files.page.rstrip("/")):
            assert "realtime_server_files " in client.get(f"{port}/metrics").text


async def test_the_list_of_endpoints_is_complete_and_loads_nothing() -> None:
    async with serving() as files:
        page = (await files.http.get("/docs")).text
        policy = (await files.http.get("/docs")).headers["content-security-policy"]
        document = (await files.http.get("/openapi.json")).json()
    for path in document["paths"]:
        assert f" {path}</code>" in page
    for name in ("timestamp_granularities[]", "diarized_json", "hotwords", "spk", "chunking_strategy"):
        assert name in page
    assert "<script" not in page
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"openapi.json"}
    assert "url(" not in page
    assert "@import" not in page
    assert policy == page_policy(page)


async def test_the_document_describes_every_field() -> None:
    async with serving() as files:
        document = (await files.http.get("/openapi.json")).json()
    forms = {
        path: methods["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        for path, methods in document["paths"].items()
        if "post" in methods and path != "/tokens"
    }
    assert set(forms) == {"/asr", "/v1/audio/transcriptions", "/v1/audio/translations"}
    assert set(document["paths"]) == {
        *forms,
        "/",
        "/docs",
        "/health",
        "/metrics",
        "/overlay",
        "/overlay.html",
        "/ready",
        "/sessions/{name}",
        "/sessions/{name}/transcript.{form}",
        "/tokens",
        *MODELS,
    }
    for schema in forms.values():
        assert schema["required"] == ["file"]
        assert all(field["description"] for field in schema["properties"].values())
    assert forms["/asr"]["properties"]["timestamp"]["default"] is True
    asked = document["paths"]["/tokens"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert all(field["description"] for field in asked["properties"].values())


async def test_the_page_finds_the_live_service() -> None:
    async with serving() as files:
        moved = await files.http.get("/")
        assert moved.status_code == 307
        assert moved.headers["location"] == "/?server=ws%3A%2F%2F127.0.0.1%3A10095%2F"
        page = await files.http.get(moved.headers["location"])
        text = read_page(find_resource("static/client_mic.html"))
        assert page.text == text
        assert page.headers["content-security-policy"] == page_policy(text)
        elsewhere = await files.http.get("/", headers={"Host": "[2001:db8::1]:8899"})
        assert elsewhere.headers["location"] == "/?server=ws%3A%2F%2F%5B2001%3Adb8%3A%3A1%5D%3A10095%2F"
        named = await files.http.get("/?session=studio")
        assert named.headers["location"] == "/?session=studio&server=ws%3A%2F%2F127.0.0.1%3A10095%2F"


@pytest.mark.parametrize("path", PAGES[:-1])
async def test_head_is_get_without_the_body(path: str) -> None:
    async with serving() as files:
        get, head = await files.http.get(path), await files.http.head(path)
    assert (head.status_code, head.headers["content-length"], head.content) == (
        get.status_code, get.headers["content-length"], b"",
    )  # fmt: skip


def test_health_answers_while_recordings_are_decoded_and_written(files: FilesServer) -> None:
    """Four of five minutes, one of them as subtitles, and one of hours that takes seconds to decode."""
    with ThreadPoolExecutor(5) as pool, files.http() as client:
        work = [pool.submit(files.post, "/asr", FIVE_MINUTES) for _ in range(3)]
        work.append(pool.submit(files.post, "/v1/audio/transcriptions", FIVE_MINUTES, response_format="srt"))
        took_s = [ask_health(client)]
        while not all(task.done() for task in work):
            took_s.append(ask_health(client))
            time.sleep(0.005)
        assert [task.result().status_code for task in work] == [200] * 4
    assert len(took_s) > 10
    assert statistics.quantiles(took_s, n=10)[-1] < 0.1


def ask_health(client: httpx2.Client) -> float:
    """Seconds that an answer took."""
    begun_s = time.monotonic()
    assert client.get("/health").status_code == 200
    return time.monotonic() - begun_s

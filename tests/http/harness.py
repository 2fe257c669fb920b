"""The HTTP server in this process, on loopback, with a fake engine whose pace and faults are chosen."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from openai import AsyncOpenAI
from websockets.asyncio.client import connect

from realtime_server.core.counts import SessionCounts
from realtime_server.core.settings import SessionSettings
from realtime_server.doors.door import Door
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.engines.fake import FakeEngine, FakeScorer
from realtime_server.http.app import LiveService, make_app
from realtime_server.http.options import HttpOptions
from realtime_server.http.service import FileService
from realtime_server.http.serving import HttpServer
from realtime_server.metrics import Metrics, Snapshot
from realtime_server.offline.audio_reader import AudioReader
from realtime_server.offline.transcriber import Transcriber
from realtime_server.realtime.archive import Archive
from realtime_server.realtime.options import ServerOptions
from realtime_server.realtime.reception import Reception
from realtime_server.realtime.viewers import Gallery
from realtime_server.resources import find_resource
from tests.http.process import TALK_WAV, upload
from tests.realtime.harness import HANGS_S, Client, eventually

SNAPSHOT = Snapshot(
    about={}, counts=SessionCounts(), sessions=3, max_sessions=4, ready=True, in_line={}, in_engine={},
    engine_up=True, engine_silent_s=0.0,
    late=False,
)  # fmt: skip
METRICS = Metrics(lambda: SNAPSHOT)
LIVE = LiveService(
    port=10_095,
    page=find_resource("static/client_mic.html"),
    state=lambda: {"engine": "fake"},
    why_not_ready=lambda: None,
    busy=lambda: False,
    metrics=METRICS,
    gallery=Gallery(Archive(0.0, time.monotonic), ServerOptions()),
    reception=Reception(Door(), METRICS),
)


@dataclass
class Files:
    """A running server, and a client of it."""

    service: FileService
    server: HttpServer
    url: str
    http: httpx2.AsyncClient
    stopped: bool = False

    async def stop(self) -> None:
        """End the server, once."""
        if not self.stopped:
            self.stopped = True
            await self.server.stop()

    async def post(self, path: str = "/asr", data: bytes = TALK_WAV, **fields: Any) -> httpx2.Response:
        """Send a form."""
        return await self.http.post(path, files=upload(data), data=fields)

    def posting(self, path: str = "/asr", data: bytes = TALK_WAV, **fields: Any) -> asyncio.Task[Any]:
        """Send a form, in a task of its own."""
        return asyncio.create_task(self.post(path, data, **fields))

    def openai(self) -> AsyncOpenAI:
        """OpenAI's client, which asks once and does not try again."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    @asynccontextmanager
    async def websocket(self, **options: Any) -> AsyncIterator[Client]:
        """A client of /ws."""
        async with connect(self.url.replace("http", "ws") + "/ws", compression=None, **options) as connection:
            yield Client(connection)


@asynccontextmanager
async def serving(
    engine: Engine | None = None, scorer: Scorer | None = None, embedder: Embedder | None = None, *,
    settings: SessionSettings | None = None, options: HttpOptions | None = None, live: LiveService = LIVE,
    verify: ssl.SSLContext | bool = True,
) -> AsyncIterator[Files]:  # fmt: skip
    """Serve on a free port; afterwards nothing runs and no task is left."""
    before = asyncio.all_tasks()
    engine = engine or FakeEngine()
    options = replace(options or HttpOptions(), port=0)
    settings = settings or SessionSettings(speakers=embedder is not None)
    reader = AudioReader(options.limits)
    metrics = Metrics(lambda: SNAPSHOT)
    live = replace(live, metrics=metrics, reception=Reception(live.reception.door, metrics))
    transcriber = Transcriber(engine, scorer or FakeScorer(), embedder, observe=live.metrics.observe_job)
    service = FileService(transcriber, reader, engine.capabilities, settings, options)
    app = make_app(service, live, ("fake",))
    server = HttpServer(service, reader, app, live.reception, live.tls, live.taps)
    port = await server.start()
    url = f"{'https' if live.tls else 'http'}://127.0.0.1:{port}"
    http = httpx2.AsyncClient(base_url=url, timeout=HANGS_S, verify=verify)
    files = Files(service, server, url, http)
    try:
        async with asyncio.timeout(HANGS_S), http:
            yield files
    finally:
        await files.stop()
        assert service.running == 0
        assert service.audio.held_s < 0.001
        await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left")

"""Clients that say nothing in TLS: neither a handshake nor a goodbye."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from realtime_server.doors.tls import ServerTls
from realtime_server.http import serving as module
from tests.certificates import make_certificate, trusting
from tests.http.harness import LIVE, serving


async def test_a_stalled_handshake_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Server, "handshake_s", 0.05)
    live = replace(LIVE, tls=ServerTls(make_certificate(tmp_path)).context)
    async with serving(live=live) as files:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        async with asyncio.timeout(30):  # uvicorn would leave a minute
            assert await reader.read() == b""
        writer.close()


async def test_a_client_that_does_not_say_goodbye_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = make_certificate(tmp_path)
    live = replace(LIVE, tls=ServerTls(certificate).context)

    def connect(port: int) -> socket.socket:
        bare = socket.create_connection(("127.0.0.1", port))
        return trusting(certificate).wrap_socket(bare, server_hostname="127.0.0.1")

    async with serving(live=live) as files:
        with await asyncio.to_thread(connect, int(files.url.rpartition(":")[2])):
            await files.stop()
    assert not caplog.records

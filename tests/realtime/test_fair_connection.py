"""Connections whose clients ping without end, and reasons that quote a client at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from realtime_server.doors.tls import ServerTls
from realtime_server.realtime.fair_connection import MOST_UNTAKEN, REASON_BYTES, cut_reason
from tests.audio import tone
from tests.certificates import make_certificate, trusting
from tests.realtime.harness import eventually, serving, texts
from tests.realtime.pings import PINGS, flood, ping_and_read

MUCH = 100 * MOST_UNTAKEN  # far beyond what sockets hold


async def test_who_pings_and_does_not_read_is_cut_off() -> None:
    async with serving() as service, service.client("?session=studio") as other:
        assert await flood(service.port, "/", MUCH) < MUCH
        assert await flood(service.port, "/sessions/studio", MUCH) < MUCH
        await eventually(lambda: service.sessions == 1)
        assert texts(await other.transcribe(tone(1.0))) == ["one two"]


async def test_over_tls_too(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    async with serving(tls=ServerTls(files).context) as service:
        assert await flood(service.port, "/", MUCH, trusting(files)) < MUCH


async def test_who_takes_the_answers_may_ping_for_ever() -> None:
    rounds = 5 * MOST_UNTAKEN // len(PINGS)
    async with serving() as service:
        assert await ping_and_read(service.port, "/", rounds) > 4 * MOST_UNTAKEN


@pytest.mark.parametrize("reason", ["", "busy", "x" * 500, "語" * 90, "é" * 62])
def test_a_reason_is_cut_where_it_would_not_fit(reason: str) -> None:
    cut = cut_reason(reason)
    assert reason.startswith(cut)
    assert len(cut.encode()) <= REASON_BYTES
    assert cut == reason or len(cut.encode()) > REASON_BYTES - 4


async def test_a_connection_is_closed_for_a_long_reason() -> None:
    async with serving() as service, service.client() as client:
        await eventually(lambda: service.sessions == 1)
        (connection,) = service.server._server.connections  # type: ignore[union-attr]  # it serves
        await connection.close(1008, "語" * 90)
        await client.connection.wait_closed()
        assert (client.connection.close_code, client.connection.close_reason) == (1008, "語" * 41)

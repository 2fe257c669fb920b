"""WebSockets of the HTTP port: pings without end, and handshakes that are refused in words."""

from __future__ import annotations

import logging

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.http.harness import serving
from tests.http.test_taps import closed, exchange, send, stream
from tests.realtime.pings import flood, ping_and_read
from tests.realtime.test_fair_connection import MUCH


@pytest.mark.parametrize("path", ["/ws", "/twilio"])
async def test_who_pings_and_does_not_read_is_cut_off(path: str) -> None:
    async with exchange() as line:
        port = int(line.files.url.rpartition(":")[2])
        assert await flood(port, path, MUCH) < MUCH
        assert await ping_and_read(port, path, 20) > 0


async def test_a_refused_handshake_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as files:
        with pytest.raises(InvalidStatus) as refused:
            await connect(files.url.replace("http", "ws") + "/sessions/nobody")
    assert refused.value.response.status_code == 404
    assert b"there is no session 'nobody'" in refused.value.response.body
    assert not caplog.records


async def test_a_refusal_that_quotes_a_client_at_length_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with exchange() as line, line.dial() as socket:
        await send(socket, iter(list(stream(language="語" * 90))[:2]))
        code, told = await closed(socket)
    assert code == 1008
    assert "語語語" in told
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]

"""Where a webhook may be, and receivers that do not speak HTTP; test_taps.py has those that do."""

from __future__ import annotations

import asyncio

import pytest

from realtime_server.errors import ConfigurationError
from realtime_server.http.options import Webhook
from realtime_server.http.webhooks import Delivery
from tests.http.receiver import receiving

FINAL = {"type": "final", "session": "abc", "seq": 7}


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/calls", "https://calls.example/a?key=b", "http://[::1]/"]
)
def test_what_is_an_address(url: str) -> None:
    assert url not in repr(Webhook(url, "token"))


@pytest.mark.parametrize(
    "url",
    ["", "calls.example", "ftp://calls.example", "file:///etc/passwd", "http://", "http://a b/", "http://a:b/",
     "http://a:0/", "http://[::1/", "http://a/\n", "http://ä.example", "http://user:secret@calls.example/"],
)  # fmt: skip
def test_what_is_none(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Webhook(url)
    assert "secret" not in str(refused.value)


def test_a_token_has_one_line() -> None:
    with pytest.raises(ConfigurationError, match="printable"):
        Webhook("http://localhost/", "a\nb")


def test_a_log_has_the_place_and_not_the_path() -> None:
    assert Webhook("https://calls.example:8443/secret?key=secret").place == "https://calls.example"


@pytest.mark.parametrize("answer", [b"", b"hello\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
async def test_who_does_not_speak_http_is_asked_again(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        tries.append(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        webhook = Webhook(f"http://127.0.0.1:{port}/", pause_s=0.01, patience_s=1.0, timeout_s=5.0)
        delivery = Delivery(webhook, {})
        delivery.put({"type": "partial"})
        delivery.put(FINAL)
        delivery.finish()
        await delivery.run()
    assert len(tries) >= 2
    assert "did not take the final abc-7: it cannot be reached" in caplog.text


async def test_behind_the_end_of_a_call_a_receiver_that_hangs_holds_nothing_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with receiving() as receiver:
        receiver.hold.clear()
        webhook = Webhook(receiver.url, pause_s=0.01, timeout_s=0.05, patience_s=0.2)
        delivery = Delivery(webhook, {})
        for seq in range(500):
            delivery.put({**FINAL, "seq": seq})
        delivery.finish()
        await delivery.run()
        receiver.hold.set()
        assert 2 <= len(receiver.tries) <= 10
    assert "did not take the final abc-0: no answer within 0.05 s" in caplog.text
    assert "500 messages of a call were not delivered" in caplog.text

"""SIGHUP: certificate and tokens are read again by a server as users start it, and nobody who speaks notices."""

from __future__ import annotations

import shutil
import signal
import ssl
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from realtime_server.doors.tls import TlsFiles
from tests.audio import tone
from tests.certificates import make_certificate, trusting
from tests.realtime.harness import Client, texts
from tests.realtime.process import Process, served

OLD, NEW = "an-old-token-of-somebody", "a-new-token-of-somebody"

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no SIGHUP here")


def connecting(server: Process, context: ssl.SSLContext, token: str, **options: Any) -> connect:
    return connect(f"wss://127.0.0.1:{server.port}/?token={token}", ssl=context, compression=None, **options)


def name_of(client: Client) -> str:
    """Whom the server's certificate names."""
    subject = client.connection.transport.get_extra_info("peercert")["subject"]
    return str(dict(pair[0] for pair in subject)["commonName"])


async def test_certificate_and_tokens_change_under_a_session(tmp_path: Path) -> None:
    old, new = make_certificate(tmp_path, "old"), make_certificate(tmp_path, "new")
    used, tokens, context = (
        TlsFiles(tmp_path / "used.pem", tmp_path / "used.key"),
        tmp_path / "t",
        trusting(old, new),
    )
    assert used.key
    shutil.copy(old.certificate, used.certificate)
    shutil.copy(old.key or "", used.key)
    tokens.write_text(f"somebody {OLD}\n")
    flags = ("--tls-cert", str(used.certificate), "--tls-key", str(used.key), "--token-file", str(tokens))
    async with (
        served(*flags, "--log-level", "debug") as server,
        connecting(server, context, OLD) as connection,
    ):
        client = Client(connection)
        await client.say("START")

        used.certificate.write_text("nothing\n")
        tokens.write_text("somebody\n")
        server.signal(signal.SIGHUP)
        await server.until_logged("the tokens stay as they were: --token-file")
        await server.until_logged("the certificate stays as it was: --tls-cert")
        async with connecting(server, context, OLD) as another:
            assert name_of(Client(another)) == "old"

        shutil.copy(new.certificate, used.certificate)
        shutil.copy(new.key or "", used.key)
        tokens.write_text(f"somebody {NEW}\n")
        server.signal(signal.SIGHUP)
        await server.until_logged("read the tokens again: somebody")
        await server.until_logged("read the certificate again")
        async with connecting(server, context, NEW) as another:
            assert name_of(Client(another)) == "new"
        with pytest.raises(InvalidStatus) as refused:
            async with connecting(server, context, OLD):
                pass
        assert refused.value.response.status_code == 401

        await client.hear(tone(0.5))
        await client.say("STOP")
        assert texts(await client.final()) == ["one"]
        await connection.close()
        server.signal(signal.SIGTERM)
        assert await server.exit_code(60) == 0
    log = "".join(server.log)
    assert "refused 127.0.0.1: this token is not valid here" in log
    assert not any(secret in log for secret in (OLD, NEW))


async def test_a_server_without_such_files_goes_on() -> None:
    async with served() as server:
        async with server.client() as client:
            await client.say("START")
            server.signal(signal.SIGHUP)
            await server.until_logged("there is nothing to read again")
            await client.hear(tone(0.5))
            await client.say("STOP")
            assert texts(await client.final()) == ["one"]
        server.signal(signal.SIGTERM)
        assert await server.exit_code(60) == 0

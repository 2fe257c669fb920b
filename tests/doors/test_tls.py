"""TLS: what is read, what is refused in words, and certificates that are replaced under connections."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from realtime_server.doors.tls import ServerTls, TlsFiles
from realtime_server.errors import ConfigurationError
from tests.certificates import make_certificate, trusting


@asynccontextmanager
async def echoing(tls: ServerTls) -> AsyncIterator[int]:
    """A server that sends back each line; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls.context)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def connect(port: int, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"hello\n")
    return await reader.readline()


def name_of(writer: asyncio.StreamWriter) -> str:
    """Whom the certificate names."""
    return str(dict(pair[0] for pair in writer.get_extra_info("peercert")["subject"])["commonName"])


async def test_a_new_certificate_is_for_new_connections_and_a_bad_one_for_nobody(tmp_path: Path) -> None:
    old, new = make_certificate(tmp_path, "old"), make_certificate(tmp_path, "new")
    used = TlsFiles(tmp_path / "used.pem", tmp_path / "used.key")

    def use(certificate: TlsFiles, key: TlsFiles) -> None:
        assert used.key
        assert key.key
        used.certificate.write_bytes(certificate.certificate.read_bytes())
        used.key.write_bytes(key.key.read_bytes())

    use(old, old)
    tls, client = ServerTls(used), trusting(old, new)
    async with echoing(tls) as port:
        first = await connect(port, client)
        use(new, old)
        with pytest.raises(ConfigurationError, match="is not the key of"):
            tls.reload()
        second = await connect(port, client)
        use(new, new)
        tls.reload()
        third = await connect(port, client)
        assert [name_of(writer) for _, writer in (first, second, third)] == ["old", "old", "new"]
        for reader, writer in (first, second, third):
            assert await ask(reader, writer) == b"hello\n"
            writer.close()


@pytest.mark.parametrize(
    ("version", "accepted"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_the_oldest_version_is_1_2(version: ssl.TLSVersion, accepted: bool, tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    client = trusting(files)
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = version
    tls = ServerTls(files)
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2  # OpenSSL's own settings may be stricter
    async with echoing(tls) as port:
        if not accepted:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connect(port, client)
            return
        reader, writer = await connect(port, client)
        assert await ask(reader, writer) == b"hello\n"
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        writer.close()


def test_the_key_may_be_in_the_same_file(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    assert files.key
    both = tmp_path / "both.pem"
    both.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    assert TlsFiles(both).read()
    with pytest.raises(
        ConfigurationError, match=r"^--tls-cert .*there is no private key .*; give --tls-key, too$"
    ):
        TlsFiles(files.certificate).read()


def test_files_that_cannot_be_used_are_told_in_words(tmp_path: Path) -> None:
    files, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "two")
    assert files.key
    locked, half, none = tmp_path / "locked.key", tmp_path / "half.pem", tmp_path / "none"
    command = [
        "openssl",
        "ec",
        "-aes256",
        "-passout",
        "pass:secret",
        "-in",
        str(files.key),
        "-out",
        str(locked),
    ]
    subprocess.run(command, check=True, capture_output=True)
    half.write_bytes(files.certificate.read_bytes()[:60])
    for certificate, key, words in (
        (none, files.key, f"--tls-cert {none}: No such file or directory"),
        (files.certificate, none, f"--tls-key {none}: No such file or directory"),
        (tmp_path, files.key, f"--tls-cert {tmp_path}: Is a directory"),
        (files.key, files.key, f"--tls-cert {files.key}: there is no certificate in it in PEM form"),
        (
            files.certificate,
            files.certificate,
            f"--tls-key {files.certificate}: there is no private key in it",
        ),
        (files.certificate, other.key, f"--tls-key {other.key}: it is not the key of the certificate in"),
        (files.certificate, locked, f"--tls-key {locked}: the key has a passphrase"),
        (half, files.key, f"--tls-cert {half}, --tls-key {files.key}: one of them is damaged"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            ServerTls(TlsFiles(certificate, key))
        assert str(refused.value).startswith(words)
        assert "\n" not in str(refused.value)

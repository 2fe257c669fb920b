"""TLS of all ports, with certificates that may be replaced while the server runs.

Connections begin in a context of which only the settings count; it then passes them on to the one that has the
certificate. Another certificate is another context, made whole before anybody sees it: those who are connected keep
theirs, and a file that cannot be read changes nothing.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from realtime_server.errors import ConfigurationError

CERTIFICATE = re.compile("-----BEGIN (TRUSTED |X509 )?CERTIFICATE-----")
KEY = re.compile("-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. certificate: with those that it depends on behind it.  key: None if it is in the same file."""

    certificate: Path
    key: Path | None = None

    def read(self) -> ssl.SSLContext:
        """Make a context. Raises ConfigurationError naming the file."""
        key = self.key or self.certificate
        flag = "--tls-key" if self.key else "--tls-cert"
        _look(self.certificate, "--tls-cert", CERTIFICATE, "certificate")
        _look(key, flag, KEY, "private key", "" if self.key else "; give --tls-key, too")
        context = _context()
        try:
            context.load_cert_chain(self.certificate, key, password=_no_password)
        except _EncryptedKeyError:
            words = "the key has a passphrase, which nobody can enter here; store it without one"
            raise ConfigurationError(f"{flag} {key}: {words}") from None
        except (OSError, ValueError) as error:  # ssl's errors are OSErrors
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                words = "it is not the key of the certificate in"
                raise ConfigurationError(f"{flag} {key}: {words} --tls-cert {self.certificate}") from None
            reason = getattr(error, "reason", None)
            why = reason.replace("_", " ").lower() if reason else "one of them is damaged"
            raise ConfigurationError(f"--tls-cert {self.certificate}, {flag} {key}: {why}") from None
        return context


class ServerTls:
    """The context that servers are given, for good. Raises ConfigurationError naming the file."""

    def __init__(self, files: TlsFiles) -> None:
        self._files, self._current = files, files.read()
        self.context = _context()
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read the files again, for connections to come. Raises ConfigurationError, and nothing changes."""
        self._current = self._files.read()

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        connection.context = self._current


class _EncryptedKeyError(Exception):
    """A passphrase is asked for."""


def _no_password() -> bytes:
    raise _EncryptedKeyError


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _look(path: Path, flag: str, wanted: re.Pattern[str], what: str, todo: str = "") -> None:
    """The library would not say which of two files is wrong."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigurationError(f"{flag} {path}: {error.strerror}") from error
    if not wanted.search(text):
        raise ConfigurationError(f"{flag} {path}: there is no {what} in it in PEM form{todo}")

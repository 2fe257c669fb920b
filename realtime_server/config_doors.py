"""What the flags of `realtime-server serve` say of who may come in, and what of it can be read again."""

from __future__ import annotations

import argparse
import logging
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from realtime_server.doors.door import Door, DoorOptions
from realtime_server.doors.origins import Origins
from realtime_server.doors.tls import ServerTls, TlsFiles
from realtime_server.doors.tokens import Token, read_token_file
from realtime_server.errors import ConfigurationError
from realtime_server.flags import naming

logger = logging.getLogger(__name__)

TOKEN_NAME = "token"  # of the one that has no file to be named in


@dataclass(frozen=True, slots=True)
class DoorConfig:
    """How the door is made, and what it is made of.

    token: the one that is given without a file.  token_file, tls: files that are read again at SIGHUP.  exposed:
    other machines can reach the server.
    """

    options: DoorOptions
    token: Token | None = None
    token_file: Path | None = None
    tls: TlsFiles | None = None
    exposed: bool = False

    @property
    def reloads(self) -> bool:
        """Whether there is anything to read again."""
        return bool(self.token_file or self.tls)


def read_doors(arguments: argparse.Namespace) -> DoorConfig:
    """Validate the flags of flags.add_arguments(). Raises ConfigurationError saying which one cannot be."""
    source = getattr(arguments.token, "name", "--token")  # or an environment variable
    with naming(source):
        token = Token.of(TOKEN_NAME, arguments.token) if arguments.token else None
    file = Path(arguments.token_file) if arguments.token_file else None
    tokens = tuple(_read_tokens(token, file))
    exposed = not _is_loopback(arguments.host)
    if exposed and not tokens and not arguments.insecure:
        raise ConfigurationError(
            f"--host {arguments.host or repr('')} lets other machines in: give them a token with --token-file or "
            "--token, or say --insecure to let in everybody who can reach this one"
        )
    with naming("--allow-origin"):
        Origins(arguments.allow_origin)
    with naming("--token-key-file"):
        options = DoorOptions(
            tokens=tokens,
            key=_read_key(arguments.token_key_file),
            origins=tuple(arguments.allow_origin),
            named=arguments.insecure,
            per_minute=arguments.max_requests_per_minute,
            connections=_read_connections(arguments),
            proxies=arguments.trust_proxy,
        )
    return DoorConfig(options, token, file, _read_tls(arguments), exposed)


class Doors:
    """The door and the TLS of one server; both last, what they are made of may be read again."""

    def __init__(self, config: DoorConfig) -> None:
        self._config = config
        self.door = Door(config.options)
        self.tls = ServerTls(config.tls) if config.tls else None
        if config.exposed and self.door.token_needed and not self.tls:
            logger.warning(
                "tokens and voices cross the network unencrypted: give --tls-cert, or let a proxy encrypt"
            )

    def reload(self) -> None:
        """Read tokens and certificates again, for those who come from now on; what cannot be read stays as it was."""
        if not self._config.reloads:
            logger.info("there is nothing to read again: no --token-file and no --tls-cert is given")
        parts = (
            ("tokens stay as they were", self._reload_tokens), ("certificate stays as it was", self._reload_tls)
        )  # fmt: skip
        for kept, read in parts:
            try:
                if told := read():
                    logger.info("%s", told)
            except ConfigurationError as error:
                logger.error("the %s: %s", kept, error)

    def _reload_tokens(self) -> str | None:
        if not self._config.token_file:
            return None
        tokens = _read_tokens(self._config.token, self._config.token_file)
        self.door.replace_tokens(tokens)
        return f"read the tokens again: {', '.join(token.name for token in tokens)}"

    def _reload_tls(self) -> str | None:
        if not self.tls:
            return None
        self.tls.reload()
        return "read the certificate again"


def _read_tokens(token: Token | None, file: Path | None) -> list[Token]:
    return [*([token] if token else []), *(read_token_file(file) if file else [])]


def _read_key(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes().strip() if path else None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error


def _read_connections(arguments: argparse.Namespace) -> int:
    """How many one address may have: unless told, enough for all sessions to be of one, and their viewers."""
    told: int | None = arguments.max_connections_per_address
    return max(DoorOptions().connections, 2 * arguments.max_sessions) if told is None else told


def _read_tls(arguments: argparse.Namespace) -> TlsFiles | None:
    if arguments.tls_key and not arguments.tls_cert:
        raise ConfigurationError("--tls-key goes with --tls-cert, the certificate that it belongs to")
    return TlsFiles(arguments.tls_cert, arguments.tls_key) if arguments.tls_cert else None


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on a host; one that cannot be found is told of later."""
    if not host:
        return False
    try:
        places = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    return all(ip_address(str(place[4][0])).is_loopback for place in places)

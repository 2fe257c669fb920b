"""Tokens that the operator gives out: a name for each, what it is good for, and how many sessions at once.

Only their hashes are kept. A token is sought among all of them, in a time that does not depend on which is it, nor on
how far a wrong one agrees.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from realtime_server.errors import ConfigurationError

Right = Literal["transcribe", "view", "metrics"]
RIGHTS: frozenset[Right] = frozenset(get_args(Right))

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
VALUE = re.compile(r"[!-~]{16,512}")  # no shorter: it can be tried as often as anybody likes
SESSION_PREFIX = "rts."  # of session tokens, which are told by it
HOW = "make one with: openssl rand -hex 24"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. digest: SHA-256 of its text.  max_sessions: at once, None for any number."""

    name: str
    digest: bytes = field(repr=False)
    rights: frozenset[Right] = RIGHTS
    max_sessions: int | None = None

    @classmethod
    def of(
        cls, name: str, value: str, *, rights: frozenset[Right] = RIGHTS, max_sessions: int | None = None
    ) -> Token:  # fmt: skip
        """Make one of its text. Raises ConfigurationError, which does not repeat it."""
        if not NAME.fullmatch(name):
            raise ConfigurationError("a token's name is 1 to 64 of the characters A-Z a-z 0-9 . _ -")
        if not VALUE.fullmatch(value) or value.startswith(SESSION_PREFIX):
            raise ConfigurationError(
                f"a token has 16 to 512 visible ASCII characters, no spaces, and does not begin with "
                f"'{SESSION_PREFIX}'; {HOW}"
            )
        return cls(name, digest(value), rights, max_sessions)


class Tokens:
    """All tokens of the server. Raises ConfigurationError if two have one name, or one text."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._by_name: dict[str, Token] = {}
        for token in tokens:
            if token.name in self._by_name:
                raise ConfigurationError(f"two tokens are named '{token.name}'; give each a name of its own")
            if twin := self._find(token.digest):
                raise ConfigurationError(f"'{twin.name}' and '{token.name}' are one token; give each its own")
            self._by_name[token.name] = token

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_name)

    def find(self, value: str) -> Token | None:
        """The token with this text."""
        return self._find(digest(value))

    def named(self, name: str) -> Token | None:
        """The token with this name."""
        return self._by_name.get(name)

    def _find(self, wanted: bytes) -> Token | None:
        found = None
        for token in self._by_name.values():
            if hmac.compare_digest(token.digest, wanted):
                found = token
        return found


def digest(value: str) -> bytes:
    """What is kept of a token's text."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()


def read_token_file(path: Path) -> list[Token]:
    """Read lines of `name token [max_sessions=N] [rights=transcribe,view]`; `#` begins a comment line.

    Raises ConfigurationError naming file and line, and never what stands in it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"--token-file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"--token-file {path}: it is not text in UTF-8") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if (words := line.split()) and not words[0].startswith("#"):
            try:
                found.append(_read_line(words))
            except ConfigurationError as error:
                raise ConfigurationError(f"--token-file {path}, line {number}: {error}") from None
    if not found:
        raise ConfigurationError(
            f"--token-file {path}: there is no token in it; write a name and a token on a line"
        )
    try:
        Tokens(found)
    except ConfigurationError as error:
        raise ConfigurationError(f"--token-file {path}: {error}") from None
    return found


def _read_line(words: list[str]) -> Token:
    if len(words) < 2:
        raise ConfigurationError(f"a name and a token are needed, on one line; {HOW}")
    rights, most = RIGHTS, None
    for number, word in enumerate(words[2:], start=3):
        name, _, value = word.partition("=")
        if name == "rights":
            rights = read_rights(value)
        elif name == "max_sessions" and re.fullmatch(r"[1-9]\d{0,8}", value):
            most = int(value)
        else:  # it may be the rest of a token: it is not repeated
            raise ConfigurationError(
                f"word {number} cannot be read; after name and token may stand max_sessions=N, with N above zero, "
                "and rights=transcribe,view,metrics"
            )
    return Token.of(words[0], words[1], rights=rights, max_sessions=most)


def read_rights(text: str) -> frozenset[Right]:
    """Read rights separated by commas. Raises ConfigurationError."""
    names = text.split(",")
    if unknown := [name for name in names if name not in RIGHTS]:
        raise ConfigurationError(f"rights are transcribe, view and metrics, not '{unknown[0][:20]}'")
    return frozenset(right for right in RIGHTS if right in names)

"""Session tokens: good for minutes, for somebody who must not have the long one, such as everybody's browser.

    rts.PAYLOAD.SIGNATURE

Nothing of them is stored. The payload (base64 of JSON) has the name of the token that they were made with, rights, the
time of their end and, if they are good for one session only, its id. It is signed by HMAC-SHA-256 with a key made of
the server's own and of that token's hash: a token that is taken away or changed takes along what was made with it.
Several servers with the same tokens and the same key accept each other's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from realtime_server.core.session_names import is_name
from realtime_server.doors.queries import read_query
from realtime_server.doors.tokens import RIGHTS, SESSION_PREFIX, Right, Token, Tokens
from realtime_server.errors import AdmissionError, FieldError

TTL_S, LONGEST_S = 300, 12 * 3600  # the day of an event; who comes back after that asks for another
MINTABLE: tuple[Right, ...] = ("transcribe", "view")
BAD = "this token is not valid here"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a session token should be good for. session: None for any."""

    rights: frozenset[Right] = frozenset({"transcribe"})
    ttl_s: int = TTL_S
    session: str | None = None

    @classmethod
    def read(cls, fields: object) -> Wish:
        """Read a JSON object. Raises FieldError naming the field."""
        if not isinstance(fields, dict):
            raise FieldError("send a JSON object with any of rights, ttl_s and session", None)
        if unknown := fields.keys() - {"rights", "ttl_s", "session"}:
            name = min(unknown)[:40]
            raise FieldError(f"'{name}' is not known; there are rights, ttl_s and session", name)
        wish = cls()
        rights, ttl_s, session = (
            fields.get(name, getattr(wish, name)) for name in ("rights", "ttl_s", "session")
        )
        if not isinstance(rights, list | frozenset) or not rights or any(r not in MINTABLE for r in rights):
            raise FieldError(f"rights must be a list of {' and '.join(MINTABLE)}, not empty", "rights")
        if type(ttl_s) is not int or not 1 <= ttl_s <= LONGEST_S:
            raise FieldError(f"ttl_s must be a whole number of seconds from 1 to {LONGEST_S}", "ttl_s")
        if session is not None and not (isinstance(session, str) and is_name(session)):
            raise FieldError("session must be the name of one: 1 to 64 of A-Z a-z 0-9 _ -", "session")
        return cls(frozenset(rights), ttl_s, session)

    @classmethod
    def read_query(cls, query: str) -> Wish:
        """Read rights=view,transcribe&ttl_s=60&session=ID. Raises FieldError naming the field."""
        fields: dict[str, object] = dict(read_query(query))
        if isinstance(rights := fields.get("rights"), str):
            fields["rights"] = rights.split(",")
        if isinstance(ttl_s := fields.get("ttl_s"), str) and re.fullmatch(r"\d{1,9}", ttl_s, re.ASCII):
            fields["ttl_s"] = int(ttl_s)
        return cls.read(fields)


@dataclass(frozen=True, slots=True)
class Minted:
    """A session token, and when it ends: seconds since 1970."""

    value: str
    expires_s: int
    wish: Wish

    @property
    def body(self) -> dict[str, object]:
        """What its maker is told."""
        rights = [right for right in MINTABLE if right in self.wish.rights]
        told = {"token": self.value, "expires_at": self.expires_s, "ttl_s": self.wish.ttl_s}
        return {**told, "rights": rights, "session": self.wish.session}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a session token says; it is true.  maker: the token that it was made with."""

    maker: Token
    rights: frozenset[Right]
    session: str | None


class Signer:
    """Makes and reads session tokens. key: secret, the same on servers that accept each other's."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, maker: Token, wish: Wish, now_s: float) -> Minted:
        """Make one."""
        ends_s = int(now_s) + wish.ttl_s
        payload = {"name": maker.name, "rights": sorted(wish.rights), "ends": ends_s, "session": wish.session}
        return Minted(self.seal(maker, payload), ends_s, wish)

    def seal(self, maker: Token, payload: Mapping[str, object]) -> str:
        """Write a payload and its signature."""
        text = _encode(json.dumps(payload, separators=(",", ":")).encode())
        return f"{SESSION_PREFIX}{text}.{_encode(self._signature(maker, text))}"

    def read(self, value: str, tokens: Tokens, now_s: float) -> Claim:
        """Read one. Raises AdmissionError if it is not ours, or has ended."""
        try:
            text, signature = value.removeprefix(SESSION_PREFIX).split(".")
            payload: Any = json.loads(_decode(text))
            maker = tokens.named(payload["name"])
            if not maker or not hmac.compare_digest(self._signature(maker, text), _decode(signature)):
                raise AdmissionError(BAD, "bad_token")
            rights = maker.rights & RIGHTS.intersection(payload["rights"])
            ends_s, session = float(payload["ends"]), payload["session"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise AdmissionError(BAD, "bad_token") from error
        if now_s >= ends_s:
            raise AdmissionError("this token has expired; get another from where it came", "expired_token")
        return Claim(maker, rights, session)

    def _signature(self, maker: Token, text: str) -> bytes:
        key = hmac.digest(self._key, maker.digest, hashlib.sha256)
        return hmac.digest(key, text.encode(), hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)

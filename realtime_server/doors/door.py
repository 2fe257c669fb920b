"""The door of a server: it lets somebody in, or raises the AdmissionError that says why not.

What is looked at, in this order: how often that address came, the page that asks, the token, its rights. It is done
at the handshake or for each request, and never again: who is in stays in, also when his token ends.
`/health` and the pages are not behind it. Only the clocks are not pure here, and they are given.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType

from realtime_server.doors.crowds import Crowd, Stay
from realtime_server.doors.origins import NONE, ORIGIN, Origins, plain, read_origin
from realtime_server.doors.rates import RateLimiter
from realtime_server.doors.refusals import RefusalLog
from realtime_server.doors.session_tokens import BAD, Minted, Signer, Wish
from realtime_server.doors.tokens import RIGHTS, SESSION_PREFIX, Right, Token, Tokens
from realtime_server.doors.visitors import Visitor, is_local
from realtime_server.errors import RETRY_S, AdmissionError, ConfigurationError, FieldError

logger = logging.getLogger(__name__)

SHORTEST_KEY = 32  # bytes
LONGEST_TOKEN = 2048  # characters that are looked at
HOW = "send it as 'Authorization: Bearer TOKEN', or from a browser as ?token=TOKEN"


@dataclass(frozen=True, slots=True)
class DoorOptions:
    """Who may come in; without tokens, everybody whose page may.

    key: signs session tokens; None: one that ends with the process.  origins: of pages that are let in, beside the
    server's own.  named: see Origins; with tokens it is so in any case.  per_minute: handshakes and requests of one
    address, 0 for any number.  connections: open at once of one address, 0 for any number.
    proxies: how many of ours a request has passed; their X-Forwarded-For is believed.
    """

    tokens: tuple[Token, ...] = ()
    key: bytes | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    named: bool = False
    per_minute: int = 600
    connections: int = 256
    proxies: int = 0

    def __post_init__(self) -> None:
        Tokens(self.tokens)
        Origins(self.origins)
        if self.key is not None and len(self.key) < SHORTEST_KEY:
            words = f"the key of session tokens needs at least {SHORTEST_KEY} characters"
            raise ConfigurationError(f"{words}; make one with: openssl rand -hex 32")
        if min(self.per_minute, self.connections, self.proxies) < 0:
            raise ConfigurationError("per_minute, connections and proxies cannot be negative")


@dataclass(frozen=True, slots=True)
class Pass:
    """Who was let in. name: of his token, None where none is needed.  session: the only one that it is good for."""

    name: str | None = None
    rights: frozenset[Right] = RIGHTS
    max_sessions: int | None = None
    session: str | None = None


class Place:
    """One of the sessions that somebody may have; a context manager, which may also be released before its end."""

    def __init__(self, taken: Counter[str], name: str | None) -> None:
        self._taken, self._name = taken, name
        if name is not None:
            taken[name] += 1

    def release(self) -> None:
        """Give it back, once."""
        if self._name is not None:
            self._taken[self._name] -= 1
            if not self._taken[self._name]:
                del self._taken[self._name]
        self._name = None

    def __enter__(self) -> Place:
        """See the class."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Door:
    """One for all ports of a server.

    clock: seconds, which only grow.  wall_clock: seconds since 1970, as other servers with the same key have them.
    free: the senders who may have any number of connections.
    """

    def __init__(
        self, options: DoorOptions | None = None, *, clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time, free: Callable[[str], bool] = is_local,
    ) -> None:  # fmt: skip
        options = options or DoorOptions()
        self.proxies, self.origins = options.proxies, tuple(map(read_origin, options.origins))
        self._wall_clock = wall_clock
        self._tokens = Tokens(options.tokens)
        self._signer = Signer(options.key or secrets.token_bytes(SHORTEST_KEY))
        self._origins = Origins(options.origins, named=options.named or bool(options.tokens))
        self._rates = RateLimiter(options.per_minute, clock)
        self._crowd = Crowd(options.connections, free=free)
        self._refusals = RefusalLog(clock)
        self._taken: Counter[str] = Counter()  # sessions, by the name of their token

    @property
    def token_needed(self) -> bool:
        """Whether nobody comes in without a token."""
        return bool(self._tokens)

    def replace_tokens(self, tokens: Iterable[Token]) -> None:
        """Let in the owners of these from now on, and nobody else; who is in stays. Raises ConfigurationError."""
        changed = Tokens(tokens)
        if bool(changed) != bool(self._tokens):
            raise ConfigurationError("whether tokens are needed is decided at the start")
        self._tokens = changed

    def arrive_by_address(self, visitor: Visitor) -> Stay:
        """Count a connection that begins; behind proxies, whose address it has, that is left to `arrive_by_headers`.

        If what is returned has an error, that is the answer to whatever is asked.
        """
        return Stay() if self.proxies else self._crowd.enter(visitor.sender(0))

    def arrive_by_headers(self, visitor: Visitor) -> Stay | None:
        """Count a connection whose sender proxies name; None without proxies, for it was counted by its address."""
        return self._crowd.enter(visitor.sender(self.proxies)) if self.proxies else None

    def admit(self, visitor: Visitor, right: Right, session: str | None = None) -> Pass:
        """Let somebody in who wants to use a right, for `view` on that session. Raises AdmissionError."""
        self.knock(visitor)
        return self.recognise(visitor.token, right, session)

    def knock(self, visitor: Visitor) -> None:
        """Look at all but the token. Raises AdmissionError."""
        wait_s = self._rates.take(visitor.sender(self.proxies))
        if wait_s:
            words = f"too many requests come from your address; try again in {math.ceil(wait_s)} s"
            raise AdmissionError(words, "rate", wait_s)
        if not self._origins.let_in(visitor.origins, visitor.hosts):
            raise AdmissionError(_why_elsewhere(visitor), "origin")

    def recognise(self, token: str | None, right: Right, session: str | None = None) -> Pass:
        """Look at the token. Raises AdmissionError."""
        if not self._tokens:
            return Pass()
        if not token:
            raise AdmissionError(f"a token is needed; {HOW}", "no_token")
        found = self._identify(token)
        if right not in found.rights:
            words = f"this token is not good for this: it lacks the right '{right}'"
            raise AdmissionError(words, "right", token=found.name)
        if found.session not in (None, session):
            raise AdmissionError("this token is good for another session", "right", token=found.name)
        return found

    def take_place(self, entrant: Pass) -> Place:
        """Count a session. Raises AdmissionError if that is more than its token may have."""
        most = entrant.max_sessions
        if most is not None and self._taken[entrant.name or ""] >= most:
            words = f"this token has {most} session{'s' * (most > 1)} already, which is all it may have"
            raise AdmissionError(f"{words}; try again later", "sessions", RETRY_S, token=entrant.name)
        return Place(self._taken, entrant.name)

    def find_maker(self, visitor: Visitor) -> Token:
        """The token of somebody who wants to make session tokens; it must be in the header.

        Raises AdmissionError, and FieldError if no tokens are needed here.
        """
        self.knock(visitor)
        if not self._tokens:
            raise FieldError("no tokens are needed here: everybody may come in", None)
        token = visitor.bearer
        if not token:
            raise AdmissionError("a token is needed; send it as 'Authorization: Bearer TOKEN'", "no_token")
        maker = self._tokens.find(token)
        if not maker:
            found = self._identify(token)
            raise AdmissionError("a session token cannot make another one", "right", token=found.name)
        return maker

    def mint(self, maker: Token, wish: Wish) -> Minted:
        """Make a session token. Raises AdmissionError if the token that makes it could not do as much itself."""
        if lacking := wish.rights - maker.rights:
            words = f"this token lacks the right '{min(lacking)}' itself"
            raise AdmissionError(words, "right", token=maker.name)
        return self._signer.sign(maker, wish, self._wall_clock())

    def tell_refused(self, visitor: Visitor, error: AdmissionError) -> None:
        """Log a refusal, unless that sender has been told of lately."""
        words = f"{error} (token '{error.token}')" if error.token else str(error)
        line = self._refusals.note(visitor.sender(self.proxies), error.reason, words)
        if line:
            logger.info("%s", line)

    def _identify(self, token: str) -> Pass:
        """Whose token it is. Raises AdmissionError."""
        if len(token) <= LONGEST_TOKEN and token.startswith(SESSION_PREFIX):
            claim = self._signer.read(token, self._tokens, self._wall_clock())
            return Pass(claim.maker.name, claim.rights, claim.maker.max_sessions, claim.session)
        found = self._tokens.find(token)
        if not found:
            raise AdmissionError(BAD, "bad_token")
        return Pass(found.name, found.rights, found.max_sessions)


def _why_elsewhere(visitor: Visitor) -> str:
    """Say why a page, or whoever asks for the server by that name, is not let in."""
    listed = "the server's --allow-origin lists those that are"
    if visitor.origins:
        return f"pages from {_show(visitor.origins)} are not let in; {listed}"
    words = "without tokens the server is asked for as localhost or by its address, not by another name"
    return f"{words}; --allow-origin http://NAME adds one"


def _show(origins: Iterable[str]) -> str:
    """What a browser said, as far as it can be shown to anybody."""
    shown = [plain(origin) for origin in origins]
    return shown[0] if len(shown) == 1 and (shown[0] == NONE or ORIGIN.fullmatch(shown[0])) else "that origin"

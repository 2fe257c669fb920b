"""Who knocks: what a handshake or a request says of its sender."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from realtime_server.doors.queries import read_query

NETWORK_BITS = 64  # of an IPv6 address: whoever has one of these has all that share them
BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
NOBODY = "an unknown address"

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Visitor:
    """One handshake or request. address: of the peer.  The rest are headers; a header may come several times."""

    address: str = ""
    authorization: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    forwarded: tuple[str, ...] = ()  # X-Forwarded-For
    query: str = ""

    @classmethod
    def of(cls, address: str, get_all: Callable[[str], Sequence[str]], query: str) -> Visitor:
        """Read the headers, by a function that gives all values of a name."""
        names = ("Authorization", "Origin", "Host", "X-Forwarded-For")
        authorization, origins, hosts, forwarded = (tuple(get_all(name)) for name in names)
        return cls(address, authorization, origins, hosts, forwarded, query)

    @property
    def bearer(self) -> str | None:
        """The token in the header, which must be there once."""
        found = BEARER.fullmatch(self.authorization[0]) if len(self.authorization) == 1 else None
        return found[1] if found else None

    @property
    def query_token(self) -> str | None:
        """The parameter `token`, as browsers send it, for they cannot set a header; it may be empty."""
        return read_query(self.query).get("token")

    @property
    def session(self) -> str | None:
        """The parameter `session`: the name of the session that is asked about."""
        return read_query(self.query).get("session")

    @property
    def token(self) -> str | None:
        """The token, if there is one; that in the header counts before the other."""
        return self.bearer or self.query_token or None

    @property
    def asks_for_himself(self) -> bool:
        """Whether a question is about this visitor, as it shows a token or at least the place for one."""
        return bool(self.authorization) or self.query_token is not None

    def sender(self, proxies: int) -> str:
        """What counts as one sender, in a form for logs: an IPv4 address, or an IPv6 network of NETWORK_BITS.

        proxies: how many of ours the request has passed, each of which adds to X-Forwarded-For where it came from.
        What their client claims stands before that, and is not believed.
        """
        told = [part.strip() for header in self.forwarded for part in header.split(",")] if proxies else []
        first = read_ip(told[-min(proxies, len(told))]) if told else None
        return group(first or read_ip(self.address))


def read_ip(text: str) -> Address | None:
    """Read 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80; None if it is something else."""
    bare = re.sub(r"^\[(.*)\](:\d+)?$|^([\d.]+):\d+$", lambda found: found[1] or found[3] or "", text)
    try:
        address = ip_address(bare)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_local(sender: str) -> bool:
    """Whether a sender, as group names it, is this machine, or has no address at all."""
    if sender in (NOBODY, group(IPv6Address(1))):
        return True
    address = read_ip(sender)
    return address is not None and address.is_loopback


def group(address: Address | None) -> str:
    """Name the sender that an address belongs to."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), NETWORK_BITS), strict=False))
    return str(address or NOBODY)

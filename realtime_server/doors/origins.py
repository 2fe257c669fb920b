"""Which pages may connect. A browser names the origin of the page that asks; other programs name none.

Whoever opens a page lets its scripts ask any server that his browser can reach, also one that only this machine
can. So a page is let in if it came from the server's own host, on whatever port, or if its origin is listed.

Without tokens, a *name* of the host counts as its own only if it is `localhost`: the owner of any other name may
point it to this machine, and his pages would then be the server's own. Browsers name no origin when a page reads
from where it came, so then it is the host that is looked at, also of other programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from realtime_server.doors.visitors import read_ip
from realtime_server.errors import ConfigurationError

ANY, NONE = "*", "null"  # NONE: what a browser says of a page from disk, or one in a sandbox
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]{0,31}://[a-z0-9._:\[\]-]{0,255}")
PORTS = {"http": ":80", "https": ":443"}  # which browsers leave out


class Origins:
    """The pages that are let in.

    allowed: origins such as https://talk.example, `*` for all, `null` for pages from disk.
    named: whether any name of the host is believed to be its own.
    """

    def __init__(self, allowed: Sequence[str] = (), *, named: bool = False) -> None:
        self._allowed, self._named = frozenset(map(read_origin, allowed)), named
        self._hosts = {host for origin in self._allowed if (host := host_of(origin))}

    def let_in(self, origins: Sequence[str], hosts: Sequence[str]) -> bool:
        """Whether somebody with these headers may come in, Origin and Host."""
        if ANY in self._allowed:
            return True
        if not origins:
            return self._named or all(map(self._is_called, hosts))
        return len(origins) == 1 and (plain(origins[0]) in self._allowed or self._is_own(origins[0], hosts))

    def _is_own(self, origin: str, hosts: Sequence[str]) -> bool:
        page, here = host_of(origin), host_of(f"//{hosts[0]}") if len(hosts) == 1 else None
        if not page or page != here:
            return False
        return self._named or is_plain_host(page)

    def _is_called(self, host: str) -> bool:
        """Whether the server may be asked for by that name."""
        name = host_of(f"//{host}")
        return name is not None and (name in self._hosts or is_plain_host(name))


def read_origin(text: str) -> str:
    """Read one that is to be let in. Raises ConfigurationError."""
    origin = plain(text)
    if origin in (ANY, NONE) or (
        ORIGIN.fullmatch(origin) and (host_of(origin) or origin.startswith("file:"))
    ):
        return origin
    raise ConfigurationError(
        f"'{text}' is no origin: write https://HOST or https://HOST:PORT, or '*' for all pages"
    )


def plain(origin: str) -> str:
    """Write an origin as browsers do."""
    text = origin.strip().lower()
    return text.removesuffix(PORTS.get(text.partition(":")[0], "\0"))


def is_plain_host(host: str) -> bool:
    """Whether a host is one that nobody can point elsewhere: localhost, or an address."""
    return host == "localhost" or read_ip(host) is not None


def host_of(url: str) -> str | None:
    """The host in a URL; None without one."""
    try:
        return urlsplit(url).hostname
    except ValueError:  # half a bracket
        return None

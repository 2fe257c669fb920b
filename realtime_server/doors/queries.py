"""The query of an address, read in one way by whoever guards it and whoever serves it."""

from __future__ import annotations

from urllib.parse import unquote


def read_query(query: str) -> dict[str, str]:
    """Return the parameters by name; of one that is given several times the first counts, one without `=` is none.

    A plus sign is one, not a space: tokens have no spaces, and not everybody encodes it.
    """
    found: dict[str, str] = {}
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        if equals:
            found.setdefault(unquote(name), unquote(value))
    return found

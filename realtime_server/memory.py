"""Memory that this process has freed: where the C library keeps it, and how the machine gets it back.

Where the C library is not glibc, none of this is needed, and nothing happens.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def share_heaps() -> None:
    """Have all threads share as many heaps as there are cores; call it before threads are started.

    Else every thread has one of its own, up to eight for each core, and keeps there the most that it has ever needed.
    """
    if set_option := _find("mallopt"):
        set_option(ARENA_MAX, os.cpu_count() or 1)


def give_back() -> None:
    """Have the C library return what it keeps for later. Call it in any thread.

    Loading models takes several times their size for a moment. What was freed of that, 250 MB, would count as this
    process's until its end; so would the most that its threads have ever needed. Takes some ten milliseconds.
    """
    if trim := _find("malloc_trim"):
        trim(0)


def _find(name: str) -> Any:
    """A function of glibc's; None on Windows, macOS, musl."""
    try:
        library = ctypes.CDLL(None)
        return library.malloc_trim and getattr(library, name)  # musl has a mallopt that does nothing
    except (OSError, AttributeError, TypeError):
        return None

"""Memory that this process has freed, given back to the machine."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Have the C library return what it keeps for later; where it is not glibc, do nothing. Call it in any thread.

    Loading models takes several times their size for a moment. What was freed of that, 250 MB, would count as this
    process's until its end; so would the most that each thread has ever needed. Takes some ten milliseconds.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # Windows, macOS, musl
        return
    trim(0)

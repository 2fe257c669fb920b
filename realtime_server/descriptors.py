"""File descriptors: every connection takes one. As many as may be had, and a word in the log when they run out.

Who cannot be accepted for lack of one is hung up on, or waits, and the event loop may tell nobody.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from contextlib import suppress

logger = logging.getLogger(__name__)

LOOK_S = 1.0
SAY_S = 60.0  # between two warnings


def raise_limit() -> None:
    """Take as many as this process may take without asking; many systems begin with 1024."""
    if sys.platform == "win32":  # it has no such limit
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS calls it unlimited, and refuses that
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def watch(look_s: float = LOOK_S, say_s: float = SAY_S) -> None:
    """Warn while there are none left; does not end."""
    loop = asyncio.get_running_loop()
    silent_until_s = loop.time()
    while True:
        if loop.time() >= silent_until_s and not are_left():
            silent_until_s = loop.time() + say_s
            logger.warning(
                "no file descriptors are left: nobody can connect until somebody leaves; raise the limit (ulimit -n,"
                " LimitNOFILE=)"
            )
        await asyncio.sleep(look_s)


def are_left() -> bool:
    """Whether this process can open anything."""
    try:
        os.close(os.dup(2))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return False
    return True

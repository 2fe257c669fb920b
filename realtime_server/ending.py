"""The end of a program that holds models: in bounded time, with a code that says why, whatever hangs.

A signal may come before anybody listens for it, while packages are imported and models are loaded. So __main__.py,
which imports nothing heavy, holds signals back, and the command that knows what they mean for it lets them in.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, Protocol

from realtime_server.errors import ConfigurationError, RealtimeServerError

logger = logging.getLogger(__name__)

CLOSE_S = 10.0  # for all parts to close, together
CHILDREN_S = 2.0  # for child processes to end when told to, before they are killed
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Closable(Protocol):
    """An engine, a scorer, an embedder, or what holds them."""

    async def aclose(self) -> None:
        """Free everything."""


async def close_all(parts: Mapping[str, Closable]) -> bool:
    """Close all parts, whichever fail; False if one hangs, or a thread of the event loop's, for CLOSE_S."""
    loop = asyncio.get_running_loop()
    closing = {name: asyncio.create_task(part.aclose()) for name, part in parts.items()}
    end_s = loop.time() + CLOSE_S
    await asyncio.wait(closing.values(), timeout=CLOSE_S)
    for name, task in closing.items():
        if task.done() and (error := task.exception()):
            logger.error("%s: could not be closed", name, exc_info=error)
    hanging = [name for name, task in closing.items() if not task.done()]
    if not hanging:
        threads = asyncio.create_task(loop.shutdown_default_executor())
        await asyncio.wait([threads], timeout=max(0.0, end_s - loop.time()))
        hanging = [] if threads.done() else ["a thread"]
    if hanging:
        logger.warning("ending without waiting any longer, after %g s, for: %s", CLOSE_S, ", ".join(hanging))
    return not hanging


def end_process(code: int) -> NoReturn:
    """End without waiting for anything: Python itself would join threads that hang.

    Processes of ours are ended here, for one that is still loading has nobody else to watch over it.
    """
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    end_s = time.monotonic() + CHILDREN_S
    for child in children:
        child.join(max(0.0, end_s - time.monotonic()))
        child.kill()
    os._exit(code)


def let_signals_in() -> None:
    """End what __main__.py began: a signal does what it does, also one that came meanwhile."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def let_hangup_in() -> None:
    """The same for SIGHUP, which tells a server to read its files again."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))


@contextmanager
def at_once_on_signals(code: int | None = None) -> Iterator[None]:
    """Let a signal end the process at once inside the block, unless somebody else listens for it there.

    One that came while signals were held back counts, too.  code: None for 128 and the signal's number.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are not its affair
        yield
        return

    def end(number: int, _: object) -> None:
        end_process(128 + number if code is None else code)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    let_signals_in()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell(error: BaseException) -> int:
    """Say what ended a command; return its exit code: 2 for what the operator can mend, 1 for anything else."""
    if not isinstance(error, RealtimeServerError):
        traceback.print_exception(error)
        return 1
    print(f"realtime-server: {error}", file=sys.stderr)
    return 2 if isinstance(error, ConfigurationError) else 1

"""Threads for what may block for ever, such as a disk or a receiver that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


async def in_thread(name: str, work: Callable[[], None]) -> None:
    """Do something that blocks in a thread of its own, which neither a pool nor the end of the process waits for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.done():
            return
        if error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def run() -> None:
        try:
            work()
            told: BaseException | None = None
        except BaseException as error:
            told = error
        with suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(tell, told)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done

"""A program with the engine, as a user would write one; run by test_processes.py.

python -m tests.vllm.program CHECKPOINT
"""

from __future__ import annotations

import asyncio
import signal
import sys

from realtime_server.engines.vllm_engine import load
from tests.vllm.engines import job, nano_options


async def serve(folder: str) -> None:
    """Decode once, say so, and wait for SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    engine = load(nano_options(folder))
    try:
        await engine.warmup()
        await engine.transcribe(job(1))
        print("ready", flush=True)
        await stop.wait()
    finally:
        await engine.aclose()
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

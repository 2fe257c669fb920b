"""The order of starting and stopping, seen from the command."""

from __future__ import annotations

import asyncio

import pytest

from realtime_server.cli import _warm_up, main
from realtime_server.engines.fake import FakeEngine
from realtime_server.errors import EngineError


class Slow(FakeEngine):
    """An engine whose warm-up never ends by itself."""

    cancelled_warmup = False

    async def warmup(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled_warmup = True
            raise


async def test_a_warm_engine_is_ready() -> None:
    assert await _warm_up(FakeEngine(), asyncio.Event())


async def test_a_signal_ends_the_warm_up() -> None:
    engine, stop = Slow(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, stop.set)
    assert not await _warm_up(engine, stop)
    assert engine.cancelled_warmup


async def test_an_engine_that_cannot_work_says_so() -> None:
    engine = FakeEngine()
    await engine.aclose()
    with pytest.raises(EngineError, match="closed"):
        await _warm_up(engine, asyncio.Event())


def test_without_a_command_the_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "COMMAND" in capsys.readouterr().err

"""The order of starting and stopping, seen from the command."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import pytest

from realtime_server import config, flags
from realtime_server.cli import _listen_for_files, _to_open, _warm_up, _warm_up_speakers, main
from realtime_server.core.jobs import EmbedJob
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer
from realtime_server.engines.loading import AbsentEmbedder
from realtime_server.errors import EngineError
from realtime_server.http import serving
from realtime_server.realtime.server import RealtimeServer, ServerOptions
from realtime_server.resources import find_resource


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


async def test_a_signal_ends_the_warm_up_of_a_speaker_network_that_hangs() -> None:
    engine, stop = Slow(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, stop.set)
    assert await _warm_up_speakers(engine, stop) == (False, engine)  # type: ignore[arg-type,comparison-overlap]
    assert engine.cancelled_warmup


async def test_speakers_whose_network_does_not_warm_up_are_unavailable() -> None:
    class Broken(FakeEmbedder):
        async def warmup(self) -> None:
            raise EngineError("out of memory")

    warm, telling = await _warm_up_speakers(Broken(), asyncio.Event())
    assert (warm, isinstance(telling, AbsentEmbedder)) == (True, True)
    with pytest.raises(EngineError, match="out of memory"):
        await telling.embed(EmbedJob(1, "s", 1, 0, 0, (), ()))


async def test_an_engine_that_cannot_work_says_so() -> None:
    engine = FakeEngine()
    await engine.aclose()
    with pytest.raises(EngineError, match="closed"):
        await _warm_up(engine, asyncio.Event())


async def test_recordings_are_counted_in_the_metrics_of_the_live_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    class Files:
        async def start(self) -> int:
            return 1

    built: list[Any] = []

    def build(*arguments: Any) -> Files:
        built.extend(arguments)
        return Files()

    monkeypatch.setattr(serving, "build", build)
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    settings = config.read_arguments(
        parser.parse_args(["--engine", "fake", "--vad", "level", "--http-port", "0"])
    )
    page = find_resource("static/client_mic.html")
    server = RealtimeServer(
        FakeEngine(), FakeScorer(), SessionSettings(), ServerOptions(), page=page, description={}
    )
    await _listen_for_files(settings, FakeScorer(), None, server, 1)
    (live,) = (part for part in built if hasattr(part, "why_not_ready"))
    assert live.metrics is server.metrics
    assert live.reception is server.reception


def test_without_a_command_the_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "COMMAND" in capsys.readouterr().err


def test_other_machines_are_let_in_by_an_address_that_can_be_opened_here() -> None:
    assert [_to_open(host) for host in ("0.0.0.0", "::", "")] == ["localhost"] * 3
    assert [_to_open(host) for host in ("127.0.0.1", "::1", "name")] == ["127.0.0.1", "[::1]", "name"]


def test_transcribing_does_not_offer_what_only_a_server_has(capsys: pytest.CaptureFixture[str]) -> None:
    for command, offered in (("serve", True), ("transcribe", False)):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert ("--vad-workers" in capsys.readouterr().out) == offered


def test_the_help_of_the_benchmark_shows_how_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    shown = capsys.readouterr().out
    assert "Put more and more clients on a live server" in shown
    assert "realtime-server bench -- --engine fake --vad level" in shown

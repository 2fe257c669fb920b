"""Many at once change nothing for any of them, and many after each other leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from realtime_server.core.jobs import DecodeJob, Samples
from realtime_server.doors.door import Door, DoorOptions
from realtime_server.engines.fake import FakeEngine
from realtime_server.realtime.dispatch import Dispatcher
from realtime_server.realtime.server import ServerOptions
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, speech_pattern, tone
from tests.realtime.harness import FIXED, Message, Service, WatchedScorer, eventually, serving

CROWD = 50
CYCLES = 1000
AT_ONCE = 20
WORDS = tone(0.6)
DESCRIPTORS = Path("/proc/self/fd")


# --- at once ----------------------------------------------------------------------------------------------


async def test_a_stream_reads_the_same_alone_and_among_fifty_others() -> None:
    """Texts and times, on an engine that all of them keep busy; no sentence is one that a partial stands in for."""
    chance = random.Random(7)
    audio = [talk(chance) for _ in range(CROWD + 1)]
    alone, among = await alone_in(audio[:4]), await among_others(audio)
    assert among[:4] == alone
    assert len({str(sentences) for sentences in among}) == CROWD + 1


async def alone_in(audio: list[Samples]) -> list[list[Message]]:
    """One after the other, each on a server that nobody else uses."""
    heard = []
    for samples in audio:
        async with serving(FakeEngine(decode_s=0.0)) as service:
            heard.append(await sentences(service, samples, pace=20.0))
            assert_undisturbed(service)
    return heard


async def among_others(audio: list[Samples]) -> list[list[Message]]:
    engine = FakeEngine(slots=2, decode_s=0.02)
    async with serving(engine) as service:
        heard = await asyncio.gather(*(sentences(service, samples, pace=5.0) for samples in audio))
        assert_undisturbed(service)
        assert service.server.hub.counts.folded > CROWD  # it was too much for the engine
    return heard


def assert_undisturbed(service: Service) -> None:
    counts = service.server.hub.counts
    assert (counts.recovered, counts.failed, counts.truncated, counts.decode_failures) == (0, 0, 0, 0)


async def sentences(service: Service, samples: Samples, pace: float) -> list[Message]:
    async with service.client() as client:
        found: list[Message] = (await client.transcribe(samples, pace=pace))["sentences"]
    return found


def talk(chance: random.Random) -> Samples:
    """About ten seconds: spells of speech, with pauses that end a sentence and some that do not."""
    return speech_pattern([(chance.uniform(0.5, 2.5), chance.choice([0.3, 0.7, 1.0])) for _ in range(5)])


async def test_fifty_that_all_stop_at_once_get_their_own_final() -> None:
    def name(job: DecodeJob) -> str:
        return f"{job.session} from {job.start} to {job.end}"

    engine = FakeEngine(slots=4, decode_s=0.01, script=name)
    settings = replace(FIXED, endpointing=replace(FIXED.endpointing, eager_ms=None))
    async with serving(engine, settings=settings) as service:
        go = asyncio.Event()

        async def speak(ms: int) -> str:
            async with service.client() as client:
                await client.say("START", pcm16(tone(ms / 1000)))
                await go.wait()
                await client.say("STOP")
                (sentence,) = (await client.final())["sentences"]
                await client.event("stopped")
            session, rest = sentence["text"].split(" ", 1)
            assert rest == f"from 0 to {16 * ms}"
            return str(session)

        speaking = [asyncio.create_task(speak(500 + 10 * n)) for n in range(CROWD)]
        await eventually(lambda: service.sessions == CROWD)
        go.set()
        assert len(set(await asyncio.gather(*speaking))) == CROWD


# --- after each other ---------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir(DESCRIPTORS))  # noqa: PTH208 - the listing must not hold them open


def resident() -> int:
    """Bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc tells")
async def test_a_thousand_that_come_and_vanish_leave_nothing() -> None:
    """In mid-sentence, behind STOP, with audio that nobody waited for; by reset, by close, or by hanging up."""
    engine, scorer = FakeEngine(slots=2, decode_s=0.002), WatchedScorer()
    options, door = ServerOptions(max_sessions=AT_ONCE + 5), Door(DoorOptions(per_minute=0))
    async with serving(engine, scorer, options=options, door=door) as service:
        tasks = len(asyncio.all_tasks())

        async def come_and_go(number: int) -> None:
            async with service.client() as client:
                await client.say("START", pcm16(WORDS))
                match number % 5:
                    case 0:
                        client.abort()
                    case 1:
                        await client.say("STOP")
                        client.abort()
                    case 2:
                        await client.until(lambda message: message.get("partial"))
                        client.abort()
                    case 3:
                        await client.say("STOP", "START", pcm16(WORDS))
                        client.connection.transport.write_eof()
                    case 4:
                        await client.say("STOP")
                        await client.final()

        async def cycles(first: int, count: int) -> tuple[int, int, int]:
            """Run some; return what is there once they have gone: descriptors, objects, bytes."""
            for start in range(first, first + count, AT_ONCE):
                await asyncio.gather(*map(come_and_go, range(start, start + AT_ONCE)))
            await eventually(lambda: service.sessions == 0)
            await eventually(lambda: engine.running == engine.waiting == scorer.streams == 0)
            await eventually(lambda: len(asyncio.all_tasks()) == tasks)
            await asyncio.sleep(0.05)
            gc.collect()
            return descriptors(), len(gc.get_objects()), resident()

        warm = await cycles(0, 300)
        end = await cycles(300, CYCLES - 300)
        dispatcher, hub = service.server.dispatcher, service.server.hub
        assert (dispatcher.waiting, dispatcher.running) == ({}, {})
        assert hub.counts.sessions >= CYCLES
        assert hub.counts.failed == hub.counts.decode_failures == 0
    assert end[0] <= warm[0]
    assert end[1] <= 1.01 * warm[1] + 500
    assert end[2] <= warm[2] + 16 * 2**20  # the allocator's whims; the audio of 700 sessions would be 27


async def test_a_session_makes_no_garbage_that_only_a_search_for_cycles_finds() -> None:
    """Such a search stops everything for as long as it takes, which grows with the number of sessions."""
    packets = [pcm16(packet) for packet in speech_pattern([(1.5, 0.8)] * 8).reshape(-1, 1600)]
    dispatcher = Dispatcher(FakeEngine(decode_s=0.0, keep_jobs=0))
    async with RealtimeASRSession(dispatcher, WatchedScorer(), FIXED) as session:
        session.feed("START")
        reading = asyncio.create_task(read(session))
        gc.collect()
        gc.disable()
        try:
            for packet in packets:
                session.feed(packet)
                for _ in range(8):  # turns that score, decode and tell
                    await asyncio.sleep(0)
            assert gc.collect() == 0
        finally:
            gc.enable()
        assert session.counts.sentences >= 7
        assert session.counts.partials > 7
        session.end()
        await reading


async def read(session: RealtimeASRSession) -> None:
    async for _ in session.messages():
        pass

"""One segment: its audio, its place, its second try, and an engine that is dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from realtime_server.core.jobs import Decoded, DecodeJob, DecodingOptions, Priority
from realtime_server.core.segments import SAMPLE_RATE, Segment
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.errors import EngineError
from realtime_server.offline.calls import Deadlines
from realtime_server.offline.decoding import Decoder, Wish
from realtime_server.offline.segmentation import ArrayAudio
from tests.audio import tone

QUICK = Deadlines(base_s=0.2, factor=0.0, tick_s=0.02)
WISH = Wish("file", ArrayAudio(tone(60.0)), DecodingOptions(words=True))


def decoder(
    engine: FakeEngine, *, live: Callable[[], bool] = lambda: False, deadlines: Deadlines | None = None
) -> Decoder:
    return Decoder(engine, deadlines or Deadlines(), live)


def segment(index: int = 0) -> Segment:
    return Segment(index, 0, index * SAMPLE_RATE, (index + 1) * SAMPLE_RATE)


async def test_a_segment_is_a_final_on_exactly_its_samples_at_the_priority_of_files() -> None:
    engine = FakeEngine()
    settled = await decoder(engine).settle(segment(3), WISH)
    assert settled.text == "seven eight"
    assert [word.start_ms for word in settled.words] == [0, 500]
    (job,) = engine.jobs
    assert (job.kind, job.priority, job.segment) == ("final", Priority.FILE, 3)
    assert (job.start, job.end, job.audio.size) == (48_000, 64_000, 16_000)
    assert (job.session, job.options) == ("file", WISH.options)


async def test_texts_are_cleaned_as_the_live_service_cleans_them() -> None:
    script = [Decoded("<|zh|> so " * 30, finish="length"), Decoded("", finish="gated")]
    settled = await decoder(FakeEngine(script=script)).settle(segment(), WISH)
    assert (settled.text, settled.flags) == ("so so", ("truncated",))
    settled = await decoder(FakeEngine(script=script[1:])).settle(segment(), WISH)
    assert (settled.text, settled.flags) == ("", ())


async def test_a_failure_is_tried_once_more() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(nth=1))
    settled = await decoder(engine).settle(segment(), WISH)
    assert (settled.text, settled.flags) == ("one two", ())
    first, second = engine.jobs
    assert first.id != second.id
    assert (first.start, first.end) == (second.start, second.end)


async def test_two_failures_are_told(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    settled = await decoder(engine).settle(segment(1), WISH)
    assert (settled.text, settled.flags) == ("", ("failed",))
    assert settled.error == "the fake engine was told to fail"
    assert len(engine.jobs) == 2
    assert "file: 1.0 to 2.0 s could not be recognised" in caplog.text


async def test_a_hanging_engine_is_asked_once() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    settled = await decoder(engine, deadlines=QUICK).settle(segment(), WISH)
    assert settled.flags == ("failed",)
    assert "no answer within" in (settled.error or "")
    assert (len(engine.jobs), engine.cancelled, engine.running) == (1, 1, 0)


async def test_a_dead_engine_is_no_failed_segment() -> None:
    engine = FakeEngine(decode_s=100)
    asyncio.get_running_loop().call_later(0.01, engine.die)
    with pytest.raises(EngineError, match="died"):
        await decoder(engine).settle(segment(), WISH)


async def test_an_engine_that_dies_in_silence_is_noticed() -> None:
    class Silent(FakeEngine):
        dead = False

        @property
        def healthy(self) -> bool:
            return not self.dead

    engine = Silent(decode_s=100)
    asyncio.get_running_loop().call_later(0.03, setattr, engine, "dead", True)
    with pytest.raises(EngineError, match="has died"):
        await decoder(engine, deadlines=QUICK).settle(segment(), WISH)


async def test_the_deadline_does_not_count_the_wait_for_a_place() -> None:
    engine = FakeEngine(slots=1, decode_s=0.1)
    work = decoder(engine, deadlines=QUICK)
    settled = await asyncio.gather(*(work.settle(segment(n), WISH) for n in range(5)))
    assert all(each.text and not each.flags for each in settled)


async def test_an_engine_that_answers_one_by_one_is_not_late() -> None:
    """It says that it works on eight jobs at once; each waits for those before it."""

    class Serial(FakeEngine):
        def __init__(self) -> None:
            super().__init__(slots=8)
            self._turn = asyncio.Lock()

        async def transcribe(self, job, on_text=None):  # type: ignore[no-untyped-def]
            async with self._turn:
                await asyncio.sleep(0.06)
            return await super().transcribe(job, on_text)

    work = decoder(Serial(), deadlines=QUICK)
    settled = await asyncio.gather(*(work.settle(segment(n), WISH) for n in range(8)))
    assert not any(each.flags for each in settled)


async def test_live_sessions_may_keep_a_file_waiting() -> None:
    engine = FakeEngine(decode_s=0.4)
    settled = await decoder(engine, live=lambda: True, deadlines=QUICK).settle(segment(), WISH)
    assert settled.text == "one two"


@pytest.mark.parametrize(
    ("slots", "live", "most"), [(3, False, 3), (3, True, 2), (1, True, 1), (1, False, 1)]
)
async def test_one_place_is_left_to_live_sessions(slots: int, live: bool, most: int) -> None:
    running: list[int] = []

    def note(_: DecodeJob) -> str:
        running.append(engine.running)
        return "text"

    engine = FakeEngine(slots=slots, decode_s=0.002, script=note)
    work = decoder(engine, live=lambda: live)
    await asyncio.gather(*(work.settle(segment(n), WISH) for n in range(12)))
    assert max(running) + 1 == most  # those before it, and itself


async def test_audio_is_read_when_there_is_a_place() -> None:
    engine = FakeEngine(slots=2)
    engine.faults.inject(Fault(error=None))
    reads: list[tuple[int, int]] = []

    class Noting(ArrayAudio):
        def read(self, start: int, end: int):  # type: ignore[no-untyped-def]
            reads.append((start, end))
            return super().read(start, end)

    work = Decoder(engine, Deadlines(), lambda: False)
    wish = Wish("file", Noting(tone(60.0)), DecodingOptions())
    tasks = [asyncio.create_task(work.settle(segment(n), wish)) for n in range(50)]
    await asyncio.sleep(0.02)
    assert len(reads) == 2
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (engine.cancelled, engine.running, work.places.held) == (2, 0, 0)

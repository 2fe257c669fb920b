"""Whom the workers serve, in which order; and the engine with the real network behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from realtime_server.core.jobs import Decoded, DecodeJob, DecodingOptions, Priority
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.embedded import BATCH, QUIET_S, EmbeddedEngine, JobQueue, Ticket
from realtime_server.errors import EngineError, UnsupportedError, WeightsError
from tests.audio import tone
from tests.models.whisper import folder, job, reading

WAIT_S = 5.0  # for what happens at once, unless it never does


@dataclass
class Held:
    """A `Recognizer` that begins a batch when told, and answers each job with its id."""

    open: bool = True
    batches: list[list[int]] = field(default_factory=list)
    failing: set[int] = field(default_factory=set)
    unwanted: list[int] = field(default_factory=list)
    languages: frozenset[str] = frozenset({"en", "zh"})
    retried: int = 0

    def __post_init__(self) -> None:
        self._gate = threading.Semaphore(0)

    def let(self, batches: int) -> None:
        """Let so many batches end."""
        self._gate.release(batches)

    def recognise(
        self, jobs: Sequence[DecodeJob], wanted: Callable[[DecodeJob], bool]
    ) -> list[Decoded | None]:
        self.batches.append([one.id for one in jobs])
        if not self.open:
            self._gate.acquire()
        if any(one.id in self.failing for one in jobs):
            raise RuntimeError("out of memory")
        self.unwanted += [one.id for one in jobs if not wanted(one)]
        return [Decoded(str(one.id)) if wanted(one) else None for one in jobs]


def engine_with(recognizer: Held, workers: int = 1) -> EmbeddedEngine:
    return EmbeddedEngine(Path(), workers=workers, load=lambda _, threads: recognizer)


@pytest.fixture
async def held() -> AsyncIterator[Held]:
    """A recognizer that holds what it begins, and lets all of it go in the end."""
    recognizer = Held(open=False)
    yield recognizer
    recognizer.open = True
    recognizer.let(1000)


def submit(engine: EmbeddedEngine, *jobs: DecodeJob) -> list[asyncio.Task[Decoded]]:
    return [asyncio.create_task(engine.transcribe(one)) for one in jobs]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a worker thread does."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - a thread that knows no event changes it
            await asyncio.sleep(0.001)


def final(seconds: float = 1.0) -> DecodeJob:
    return job(tone(seconds))


def partial(seconds: float = 1.0, priority: Priority = Priority.REFRESH) -> DecodeJob:
    return job(tone(seconds), kind="partial", priority=priority)


def file_work() -> DecodeJob:
    return job(tone(1.0), priority=Priority.FILE)


async def test_jobs_are_served_by_priority_then_arrival(held: Held) -> None:
    engine = engine_with(held)
    busy = final()
    tasks = submit(engine, busy)
    await until(lambda: len(held.batches) == 1)
    late = [
        file_work(),
        partial(9.0),
        partial(9.0, Priority.FIRST_PARTIAL),
        job(tone(1.0), kind="eager"),
        final(),
        final(),
        partial(9.0),
    ]
    tasks += submit(engine, *late)
    await asyncio.sleep(0)
    held.let(8)
    answers = await asyncio.gather(*tasks)
    assert [answer.text for answer in answers] == [str(one.id) for one in (busy, *late)]
    order = [late[n].id for n in (4, 5, 3, 2, 1, 6, 0)]
    assert held.batches == [[busy.id], *([number] for number in order)]
    await engine.aclose()


async def test_partials_and_files_leave_the_last_worker_to_finals(held: Held) -> None:
    engine = engine_with(held, workers=2)
    tasks = submit(engine, partial(9.0), partial(9.0), file_work())
    await until(lambda: len(held.batches) == 1)
    await asyncio.sleep(0.02)
    assert len(held.batches) == 1
    urgent = final()
    tasks += submit(engine, urgent)
    await until(lambda: len(held.batches) == 2)
    assert held.batches[1] == [urgent.id]
    held.let(4)
    await asyncio.gather(*tasks)
    await engine.aclose()


async def test_finals_and_eager_finals_take_every_worker(held: Held) -> None:
    engine = engine_with(held, workers=2)
    tasks = submit(engine, final(), job(tone(1.0), kind="eager"))
    await until(lambda: len(held.batches) == 2)
    held.let(2)
    assert len(await asyncio.gather(*tasks)) == 2
    await engine.aclose()


async def test_partials_that_wait_together_are_decoded_together(held: Held) -> None:
    engine = engine_with(held)
    tasks = submit(engine, final())
    await until(lambda: len(held.batches) == 1)
    short = [partial() for _ in range(BATCH + 1)]
    long, urgent = partial(9.0), [final(), final()]
    tasks += submit(engine, *short, long, *urgent)
    await asyncio.sleep(0)
    held.let(10)
    await asyncio.gather(*tasks)
    ids = [one.id for one in short]
    assert held.batches[1:] == [[urgent[0].id], [urgent[1].id], ids[:BATCH], ids[BATCH:], [long.id]]
    await engine.aclose()


async def test_a_cancelled_job_leaves_the_queue_at_once(held: Held) -> None:
    engine = engine_with(held)
    (first,) = submit(engine, final())
    await until(lambda: len(held.batches) == 1)
    dropped, kept = final(), final()
    second, third = submit(engine, dropped, kept)
    await asyncio.sleep(0)
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    held.let(2)
    await asyncio.gather(first, third)
    assert [dropped.id] not in held.batches
    await engine.aclose()


async def test_the_result_of_a_cancelled_running_job_is_discarded(held: Held) -> None:
    engine = engine_with(held)
    running, after = final(), final()
    (first,) = submit(engine, running)
    await until(lambda: len(held.batches) == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    (second,) = submit(engine, after)
    held.let(2)
    assert (await second).text == str(after.id)
    assert held.unwanted == [running.id]
    await engine.aclose()


async def test_closing_ends_waiting_and_running_jobs(held: Held) -> None:
    engine = engine_with(held)
    tasks = submit(engine, final(), final(), partial())
    await until(lambda: len(held.batches) == 1)
    closing = asyncio.create_task(engine.aclose())
    answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)
    assert [type(answer) for answer in answers] == [EngineError] * 3
    held.let(1)
    await closing
    assert len(held.batches) == 1
    with pytest.raises(EngineError, match="shut down"):
        await engine.transcribe(final())
    await engine.aclose()


async def test_a_failing_model_is_an_engine_error(caplog: pytest.LogCaptureFixture) -> None:
    recognizer = Held()
    engine, bad, good = engine_with(recognizer), final(), final()
    recognizer.failing = {bad.id}
    with pytest.raises(EngineError, match="out of memory") as caught:
        await engine.transcribe(bad)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "failed on 1.0 s" in caplog.text
    assert engine.healthy
    assert (await engine.transcribe(good)).text == str(good.id)
    await engine.aclose()
    assert not engine.healthy


async def test_a_job_that_fails_does_not_take_its_company_along(held: Held) -> None:
    engine = engine_with(held)
    tasks = submit(engine, final())
    await until(lambda: len(held.batches) == 1)
    together = [partial(), partial(), partial()]
    held.failing = {together[1].id}
    tasks += submit(engine, *together)
    await asyncio.sleep(0)
    held.let(5)
    _, one, two, three = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(two, EngineError)
    assert (one, three) == (Decoded(str(together[0].id)), Decoded(str(together[2].id)))
    await engine.aclose()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (job(tone(0.5), prefix_text="so far"), "a prefix"),
        (job(tone(0.5), DecodingOptions(language="tlh")), "'tlh'"),
        (job(np.zeros(30 * SAMPLE_RATE + 1, np.float32)), "more than 30 s"),
    ],
    ids=["prefix", "language", "length"],
)
async def test_what_it_lacks_is_said(asked: DecodeJob, told: str) -> None:
    recognizer = Held()
    engine = engine_with(recognizer)
    with pytest.raises(UnsupportedError, match=told):
        await engine.transcribe(asked)
    assert recognizer.batches == []
    await engine.aclose()


async def test_warmup_reaches_every_context_and_reports_failure() -> None:
    recognizer = Held()
    engine = engine_with(recognizer)
    await engine.warmup()
    assert len(recognizer.batches) == 3
    await engine.aclose()
    with pytest.raises(EngineError):
        await engine.warmup()


async def test_capabilities_tell_the_truth() -> None:
    engine = engine_with(Held(), workers=3)
    can = engine.capabilities
    assert (can.concurrency, can.longest_s, can.hotwords) == (3, 30.0, "soft")
    assert (can.words, can.logprobs, can.prefix, can.translate) == (True, True, False, True)
    assert can.languages == {"en", "zh"}
    await engine.aclose()


class Queue:
    """A JobQueue with a clock that is set, and tickets that nobody waits for."""

    def __init__(self, workers: int) -> None:
        self.now = 100.0
        self.jobs = JobQueue(workers, clock=lambda: self.now)
        self._arrivals = 0

    def put(self, *jobs: DecodeJob) -> None:
        loop = asyncio.get_running_loop()
        for one in jobs:
            self._arrivals += 1
            self.jobs.put(Ticket(one.priority, self._arrivals, one, loop, loop.create_future()))

    def take(self) -> list[int]:
        """Priorities of what a free worker gets."""
        return [ticket.priority for ticket in self.jobs.poll()]


async def test_files_use_every_worker_while_nobody_speaks() -> None:
    queue = Queue(workers=2)
    queue.put(file_work(), file_work())
    assert queue.take() == [Priority.FILE]
    assert queue.take() == [Priority.FILE]


@pytest.mark.parametrize(("later_s", "second"), [(QUIET_S - 0.1, []), (QUIET_S, [Priority.FILE])])
async def test_files_make_room_for_a_while_when_somebody_speaks(later_s: float, second: list[int]) -> None:
    queue = Queue(workers=2)
    queue.put(final(), file_work(), file_work())
    queue.jobs.done(queue.jobs.poll())
    queue.now += later_s
    assert queue.take() == [Priority.FILE]
    assert queue.take() == second


async def test_free_workers_share_the_partials() -> None:
    queue = Queue(workers=3)
    queue.put(*(partial() for _ in range(4)))
    assert [len(queue.take()) for _ in range(3)] == [2, 2, 0]


async def test_a_single_worker_does_everything() -> None:
    queue = Queue(workers=1)
    queue.put(partial())
    assert queue.take() == [Priority.REFRESH]


# The real thing.


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine(folder(), workers=2)
    yield engine
    asyncio.run(engine.aclose())


@pytest.mark.embedded
async def test_load_changes_no_text(engine: EmbeddedEngine) -> None:
    """Six speakers at once, with partials: the finals are those of an idle engine, word for word."""
    options = DecodingOptions(language="en", words=True)
    pieces = [reading(start, start + length) for start, length in ((0, 4), (4, 4.4), (24.1, 4.4), (28.5, 7))]
    await engine.warmup()
    alone = [await engine.transcribe(job(piece, options)) for piece in pieces]
    partials = [job(piece[: 3 * SAMPLE_RATE], kind="partial") for piece in pieces * 2]
    tasks = submit(engine, *partials, *(job(piece, options, kind="eager") for piece in pieces))
    finals = await asyncio.gather(*submit(engine, *(job(piece, options) for piece in pieces)))
    assert list(finals) == alone
    answers = await asyncio.gather(*tasks)
    assert answers[len(partials) :] == alone
    assert answers[:4] == answers[4:8]


@pytest.mark.embedded
async def test_the_event_loop_runs_while_the_network_works(engine: EmbeddedEngine) -> None:
    (task,) = submit(engine, job(reading(0, 30)))
    longest, loop = 0.0, asyncio.get_running_loop()
    turns = 0
    while not task.done():
        before = loop.time()
        await asyncio.sleep(0.001)
        longest, turns = max(longest, loop.time() - before), turns + 1
    assert turns > 20
    assert "best of times" in (await task).text


@pytest.mark.embedded
async def test_closing_the_real_engine_ends_its_jobs() -> None:
    engine = EmbeddedEngine(folder(), workers=1)
    tasks = submit(engine, job(reading(0, 30)), job(reading(0, 5)))
    await asyncio.sleep(0.05)
    await engine.aclose()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [EngineError] * 2


@pytest.mark.embedded
def test_a_missing_folder_is_a_weights_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"model\.bin"):
        EmbeddedEngine(tmp_path / "nothing")

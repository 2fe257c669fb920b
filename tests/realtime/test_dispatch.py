"""Whose decode is next, and when one is given up: the Dispatcher between sessions and one engine."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable
from dataclasses import replace

import numpy as np
import pytest

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, DecodingOptions, Priority
from realtime_server.engines.fake import CAPABILITIES, FakeEngine, Fault
from realtime_server.errors import EngineError, EngineTimeoutError
from realtime_server.metrics import KINDS as COUNTED
from realtime_server.realtime.dispatch import AHEAD, Dispatcher, Ticket
from realtime_server.realtime.options import Clocks
from tests.realtime.harness import PATIENCE_S, eventually

FINAL, EAGER, FIRST, REFRESH, FILE = Priority
KINDS: dict[Priority, DecodeKind] = {
    FINAL: "final",
    EAGER: "eager",
    FIRST: "partial",
    REFRESH: "partial",
    FILE: "final",
}
IDS = itertools.count()
QUICK = Clocks(deadline_s=1.0, deadline_factor=0.0)


def job(priority: Priority = FINAL, session: str = "", start: int = 0) -> DecodeJob:
    """A job of a session of its own, unless one is named."""
    number = next(IDS)
    audio = np.zeros(1600, np.float32)
    return DecodeJob(
        number, session or f"s{number}", 1, 0, KINDS[priority], priority, 0, start, start + 1600, audio, "",
        DecodingOptions(),
    )  # fmt: skip


class Service:
    """A dispatcher over an engine whose jobs end when they are told to."""

    def __init__(self, slots: int = 1, batch: int = 1, clocks: Clocks | None = None) -> None:
        self.engine = Held(slots, batch)
        self.dispatcher = Dispatcher(self.engine, clocks)
        self.tasks: list[asyncio.Task[Decoded]] = []
        self.tickets: list[Ticket] = []

    async def ask(self, *jobs: DecodeJob) -> list[Ticket]:
        """Ask for some, in this order."""
        tickets = [Ticket(each) for each in jobs]
        self.tickets += tickets
        self.tasks += [asyncio.create_task(self.dispatcher.run(ticket)) for ticket in tickets]
        await asyncio.sleep(0)
        return tickets

    async def serve(self, count: int) -> list[int]:
        """Answer jobs one by one; return their ids in the order in which the engine served them."""
        served = []
        for _ in range(count):
            served.append(self.engine.answer())
            await asyncio.sleep(0.001)
        return served

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert not self.dispatcher._line
        assert not self.dispatcher._backlogs
        assert not self.dispatcher._finals
        assert not self.dispatcher._engaged
        assert self.dispatcher._engaged.urgent == 0


class Held(FakeEngine):
    """Takes jobs into its slots by priority, then by arrival, as engines do; there they stay until `answer`."""

    def __init__(self, slots: int, batch: int = 1) -> None:
        super().__init__(slots=slots, capabilities=replace(CAPABILITIES, batch=batch))
        self.given: list[DecodeJob] = []
        self.at_work: dict[int, asyncio.Future[Decoded]] = {}

    @property
    def held(self) -> int:
        return self.running + self.waiting

    async def transcribe(self, job: DecodeJob, on_text: object = None) -> Decoded:
        self.given.append(job)
        await self._slots.acquire(job.priority)
        answer = self.at_work[job.id] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        finally:
            del self.at_work[job.id]
            self._slots.release()

    def answer(self) -> int:
        """Answer the job that has been worked on for the longest; return its id."""
        number = next(iter(self.at_work))
        self.at_work[number].set_result(Decoded(""))
        return number


def ids(*jobs: DecodeJob) -> list[int]:
    return [each.id for each in jobs]


# --- the order --------------------------------------------------------------------------------------------


async def test_finals_pass_partials_and_are_served_as_they_were_asked_for() -> None:
    service = Service()
    running, *partials = [job(REFRESH), job(REFRESH), job(REFRESH), job(FIRST)]
    finals = [job() for _ in range(4)]
    await service.ask(running, *partials, *finals)
    assert await service.serve(8) == ids(running, *finals, partials[2], *partials[:2])
    await service.close()


async def test_the_engine_is_given_what_it_works_on_and_one_final_more() -> None:
    service = Service(slots=2)
    await service.ask(*(job(REFRESH) for _ in range(5)))
    assert service.engine.held == 2
    await service.ask(*(job() for _ in range(5)))
    assert service.engine.held == 2 + 3
    assert service.dispatcher.waiting == {"partial": 3, "final": 2}
    assert service.dispatcher.running == {"partial": 2, "final": 3}
    await service.serve(10)
    await service.close()


async def test_an_engine_that_decodes_partials_together_is_given_enough_of_them() -> None:
    service = Service(slots=2, batch=4)
    await service.ask(*(job(REFRESH) for _ in range(9)))
    assert service.engine.held == 8
    await service.close()


async def test_files_wait_while_the_engine_has_work() -> None:
    service = Service(slots=2, batch=4)
    await service.ask(job(REFRESH), job(REFRESH))
    (file,) = await service.ask(job(FILE))
    await service.ask(job(FIRST))
    assert file.number is None
    await service.serve(3)
    assert file.number is not None
    await service.close()


@pytest.mark.parametrize("when", ["in line", "before it is in line", "in the engine", "done with"])
async def test_an_eager_final_that_is_confirmed_is_a_final(when: str) -> None:
    service = Service(slots=1)
    if when != "in the engine":
        await service.ask(job())
    eager, other = job(EAGER), job()
    if when == "before it is in line":
        ticket = Ticket(eager)
        service.dispatcher.hasten(ticket)
        service.tasks.append(asyncio.create_task(service.dispatcher.run(ticket)))
        await asyncio.sleep(0)
    else:
        (ticket,) = await service.ask(eager)
        if when == "done with":
            service.tasks[-1].cancel()
            await asyncio.sleep(0.001)
        service.dispatcher.hasten(ticket)
    await service.ask(job(EAGER), other)
    if when == "done with":
        await service.serve(3)
    else:
        served = await service.serve(len(service.tasks))
        assert served.index(eager.id) == (when != "in the engine")
        assert service.engine.given[-1].priority == EAGER
        given = next(each for each in service.engine.given if each.id == eager.id)
        assert given.priority == (EAGER if when == "in the engine" else FINAL)
    await service.close()


async def test_few_finals_pass_a_confirmed_one_that_the_engine_already_has() -> None:
    """Partials hold the slots, then finals come without end: as many as there are slots are served before it."""
    service = Service(slots=2)
    await service.ask(job(REFRESH), job(REFRESH))
    (eager,) = await service.ask(job(EAGER))
    service.dispatcher.hasten(eager)
    await service.ask(*(job() for _ in range(20)))
    assert (await service.serve(5))[4] == eager.job.id
    await service.close()


# --- partials ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])
async def test_a_job_that_had_to_wait_is_renewed_when_its_turn_comes(waits: bool) -> None:
    service = Service(slots=1)
    if waits:
        await service.ask(job())
    asked = Ticket(job(REFRESH))
    grown = replace(asked.job, end=3200, audio=np.zeros(3200, np.float32))
    seen: list[DecodeJob] = []

    def renew(each: DecodeJob) -> DecodeJob:
        seen.append(each)
        return grown

    task = asyncio.create_task(service.dispatcher.run(asked, renew=renew))
    await asyncio.sleep(0)
    assert not seen
    await service.serve(1 + waits)
    await task
    assert (len(seen), service.engine.given[-1] is grown, asked.job is grown) == (waits, waits, waits)
    await service.close()


# --- fairness ---------------------------------------------------------------------------------------------


async def test_a_backlog_leaves_room_for_others_and_has_the_engine_when_it_is_alone() -> None:
    service = Service(slots=2)
    heavy = [job(session="heavy") for _ in range(20)]
    await service.ask(*heavy)
    assert service.engine.held == 2
    assert service.dispatcher.waiting == {"final": 18}
    assert await service.serve(4) == ids(*heavy[:4])  # 4 and 5 are worked on, 6 is in line
    partial, final = job(REFRESH), job()
    await service.ask(partial, final)
    assert await service.serve(5) == ids(heavy[4], heavy[5], final, heavy[6], partial)
    assert await service.serve(13) == ids(*heavy[7:])
    await service.close()


async def test_backlogs_share_what_those_that_speak_leave() -> None:
    """However many they are, a partial waits for one job of each, and a final for what is worked on."""
    service = Service(slots=1)
    crowd = {name: [job(session=name) for _ in range(12)] for name in "abc"}
    await service.ask(*itertools.chain(*crowd.values()))
    await service.serve(3 * AHEAD)
    later = await service.serve(6)
    assert [sum(number in ids(*jobs) for number in later) for jobs in crowd.values()] == [2, 2, 2]
    for _ in range(3):
        partial, final = job(REFRESH), job()
        await service.ask(partial, final)
        served = await service.serve(6)
        assert served[1] == final.id
        assert partial.id in served
    await service.close()


async def test_the_end_of_a_backlog_is_none_any_more() -> None:
    service = Service(slots=1)
    heavy = [job(session="heavy") for _ in range(AHEAD + 2)]
    partial = job(REFRESH)
    await service.ask(*heavy[:-1], partial, heavy[-1])
    assert await service.serve(AHEAD + 3) == ids(*heavy, partial)
    await service.close()


async def test_a_job_may_be_taken_back_wherever_it_is() -> None:
    service = Service(slots=1)
    await service.ask(*(job(session="heavy") for _ in range(6)), job(REFRESH), job(EAGER))
    for n in (4, 0, 2, 6, 3, 7, 1, 5):  # the middle of a backlog, the engine, the head of the backlog, ...
        service.tasks[n].cancel()
        await asyncio.sleep(0.001)
    assert service.engine.held == 0
    await service.close()


async def test_a_job_that_is_taken_back_as_its_turn_comes_leaves_the_turn_to_the_next() -> None:
    service = Service(slots=1)
    first, second, third = await service.ask(job(REFRESH), job(REFRESH), job(REFRESH))
    service.tasks[1].cancel()
    service.engine.answer()
    await asyncio.sleep(0.001)
    assert (first.number, second.number) == (None, None)
    assert list(service.engine.at_work) == [third.job.id]
    await service.close()


# --- deadlines --------------------------------------------------------------------------------------------


async def outcomes(*calls: Awaitable[Decoded]) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    return [type(answer).__name__ for answer in answers]


async def test_nothing_expires_while_the_engine_works_however_many_wait() -> None:
    """Three times as long as a deadline, in one session and in many."""
    dispatcher = Dispatcher(FakeEngine(slots=1, decode_s=0.1), QUICK)
    jobs = (
        [job(session="one") for _ in range(10)]
        + [job() for _ in range(10)]
        + [job(REFRESH) for _ in range(10)]
    )
    assert set(await outcomes(*map(dispatcher.transcribe, jobs))) == {"Decoded"}


async def test_when_the_engine_hangs_all_are_told_within_one_deadline() -> None:
    engine = FakeEngine(slots=1)
    engine.faults.inject(Fault(error=None))
    dispatcher = Dispatcher(engine, QUICK)
    jobs = [job(session="one") for _ in range(5)] + [job() for _ in range(5)] + [job(REFRESH), job(EAGER)]
    started_s = time.monotonic()
    assert set(await outcomes(*map(dispatcher.transcribe, jobs))) == {"EngineTimeoutError"}
    assert time.monotonic() - started_s < 1.9
    assert (engine.running, engine.waiting) == (0, 0)
    engine.faults.clear()
    assert await outcomes(dispatcher.transcribe(job())) == ["Decoded"]


async def test_a_lost_job_expires_though_later_ones_of_others_are_answered() -> None:
    engine = FakeEngine(slots=2, decode_s=0.02)
    engine.faults.inject(Fault(error=None, nth=1))
    dispatcher = Dispatcher(engine, QUICK)
    lost = asyncio.create_task(dispatcher.transcribe(job()))
    await asyncio.sleep(0)
    while not lost.done():
        await dispatcher.transcribe(job())
    with pytest.raises(EngineTimeoutError, match=r"^no answer within 1\.0 s$"):
        await lost


async def test_the_deadline_grows_with_the_audio() -> None:
    engine = FakeEngine(decode_s=0.2)
    dispatcher = Dispatcher(engine, Clocks(deadline_s=0.05, deadline_factor=100.0))
    assert await outcomes(dispatcher.transcribe(job())) == ["Decoded"]


@pytest.mark.parametrize("error", [EngineError("broken"), TimeoutError("its own"), ValueError("a bug")])
async def test_what_the_engine_raises_is_passed_on(error: Exception) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=error))
    with pytest.raises(type(error), match=str(error)):
        await Dispatcher(engine).transcribe(job())


# --- what operators are told ------------------------------------------------------------------------------


class Counts:
    """Stands in for Metrics: the kinds of decodes that were observed."""

    def __init__(self) -> None:
        self.decodes: list[str] = []

    def observe_decode(self, kind: str, waited_s: float, took_s: float) -> None:
        self.decodes.append(kind)


async def test_a_decode_is_of_one_kind_wherever_it_is_counted() -> None:
    """A hastened eager is a final in the engine and in the histograms; a recording's decode is a file."""
    service, counts = Service(), Counts()
    service.dispatcher = Dispatcher(service.engine, None, counts)  # type: ignore[arg-type]
    _, _, eager, *_ = await service.ask(job(FIRST), job(), job(EAGER), job(EAGER), job(FILE))
    assert service.dispatcher.running == {"partial": 1, "final": 1}
    assert service.dispatcher.waiting == {"eager": 2, "file": 1}
    service.dispatcher.hasten(eager)
    assert service.dispatcher.running == {"partial": 1, "final": 2}
    assert service.dispatcher.waiting == {"eager": 1, "file": 1}
    await service.serve(5)
    assert counts.decodes == ["partial", "final", "final", "eager", "file"]
    assert set(counts.decodes) == set(COUNTED)
    await service.close()


async def test_an_engine_that_makes_no_step_is_a_problem_until_it_answers() -> None:
    service = Service(slots=1, clocks=Clocks(deadline_s=0.2, deadline_factor=1000.0))
    assert (service.dispatcher.silent_s, service.dispatcher.problem) == (0.0, None)
    await service.ask(job(), job(REFRESH), job())
    assert service.dispatcher.problem is None
    await eventually(lambda: service.dispatcher.problem)
    assert service.dispatcher.problem == "the recognizer has given no answer for 0 s; 3 jobs wait for it"
    await service.serve(1)
    assert service.dispatcher.problem is None
    await service.serve(2)
    await asyncio.sleep(0.25)
    assert service.dispatcher.silent_s == 0.0
    await service.ask(job())  # idle until now: that was no silence
    assert service.dispatcher.problem is None
    await service.close()


async def test_it_is_an_engine() -> None:
    engine = FakeEngine()
    dispatcher = Dispatcher(engine)
    await dispatcher.warmup()
    assert (dispatcher.capabilities, dispatcher.healthy) == (engine.capabilities, True)
    texts: list[str] = []
    spoken = replace(job(), audio=np.full(1600, 0.3, np.float32))
    assert (await dispatcher.transcribe(spoken, texts.append)).text == "one"
    assert texts == ["one"]
    await dispatcher.aclose()
    assert not dispatcher.healthy

"""Long work does not hold back short work; nor do many requests for one long piece of it."""

from __future__ import annotations

import asyncio
import gc

import pytest

from realtime_server.http.slices import Slices
from realtime_server.offline.steps import Steps


async def stays() -> bool:
    return False


class Work:
    """Steps of several pieces of work, in the order in which they were done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def of(self, name: str, steps: int) -> Steps[str]:
        for _ in range(steps):
            self.done.append(name)
            yield
        return name


@pytest.fixture
def slices() -> Slices:
    return Slices(slice_s=0.0)


async def test_each_has_its_turn(slices: Slices) -> None:
    work = Work()
    long, short = (
        asyncio.create_task(slices.do(name, lambda name=name, steps=steps: work.of(name, steps), stays))  # type: ignore[misc]
        for name, steps in (("long", 50), ("short", 3))
    )
    assert await short == "short"
    assert not long.done()
    assert work.done[:6] == ["long", "short"] * 3
    assert await long == "long"


async def test_many_requests_for_one_subject_weigh_as_one(slices: Slices) -> None:
    work = Work()
    many = [asyncio.create_task(slices.do("a", lambda: work.of("a", 20), stays)) for _ in range(10)]
    assert await slices.do("b", lambda: work.of("b", 3), stays) == "b"
    assert work.done.count("a") <= 5
    assert await asyncio.gather(*many) == ["a"] * 10


async def test_nothing_is_done_for_who_has_left(slices: Slices) -> None:
    work, gone = Work(), False

    async def has_left() -> bool:
        return gone

    leaving = asyncio.create_task(slices.do("a", lambda: work.of("a", 1000), has_left))
    waiting = asyncio.create_task(slices.do("a", lambda: work.of("never", 1), has_left))
    assert await slices.do("b", lambda: work.of("b", 3), stays) == "b"
    gone = True
    assert await leaving is None
    assert await waiting is None
    assert len(work.done) < 20
    assert "never" not in work.done


async def test_work_that_fails_leaves_the_turn_to_others(slices: Slices) -> None:
    def failing() -> Steps[str]:
        yield
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await slices.do("a", failing, stays)
    assert await slices.do("a", lambda: Work().of("a", 2), stays) == "a"


async def test_subjects_are_forgotten(slices: Slices) -> None:
    for number in range(5):
        await slices.do(str(number), lambda: Work().of("a", 1), stays)
    gc.collect()
    assert not slices._subjects

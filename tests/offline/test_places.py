"""Who gets the next place in the engine."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.offline.places import Places


class Queue:
    """Jobs that hold a place until they are let go; `running` are their recordings, oldest first."""

    def __init__(self, count: int, most_samples: int = 1 << 40) -> None:
        self.count = count
        self.places = Places(lambda: self.count, most_samples)
        self.running: list[str] = []
        self._ends: list[asyncio.Event] = []

    def ask(self, recording: str, samples: int = 1) -> asyncio.Task[None]:
        return asyncio.create_task(self._hold(recording, samples))

    async def end_oldest(self) -> None:
        self.running.pop(0)
        self._ends.pop(0).set()
        await settle()

    async def _hold(self, recording: str, samples: int) -> None:
        async with self.places.hold(recording, samples):
            end = asyncio.Event()
            self.running.append(recording)
            self._ends.append(end)
            await end.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def drain(queue: Queue, tasks: list[asyncio.Task[None]]) -> list[str]:
    """End everything, the oldest first; the recordings in the order in which they ended."""
    ended = []
    await settle()
    while queue.running:
        ended.append(queue.running[0])
        await queue.end_oldest()
    await asyncio.gather(*tasks)
    assert queue.places.held == 0
    return ended


async def test_a_recording_alone_has_every_place() -> None:
    queue = Queue(3)
    tasks = [queue.ask("long") for _ in range(5)]
    await settle()
    assert queue.running == ["long"] * 3
    assert await drain(queue, tasks) == ["long"] * 5


async def test_a_newcomer_gets_the_next_place() -> None:
    queue = Queue(2)
    tasks = [queue.ask("long") for _ in range(100)]
    await settle()
    tasks.append(queue.ask("short"))
    await queue.end_oldest()
    assert queue.running == ["long", "short"]
    await drain(queue, tasks)


async def test_recordings_share_alike_whatever_came_first() -> None:
    queue = Queue(1)
    tasks = [queue.ask(name) for name in "aaaabbbbcccc"]
    assert await drain(queue, tasks) == list("abcabcabcabc")


async def test_places_that_are_taken_away_are_not_given_again() -> None:
    queue = Queue(2)
    tasks = [queue.ask("long") for _ in range(4)]
    await settle()
    queue.count = 1
    await queue.end_oldest()
    assert len(queue.running) == 1
    queue.count = 2
    await queue.end_oldest()
    assert len(queue.running) == 2
    await drain(queue, tasks)


async def test_samples_are_bounded_but_one_job_always_goes() -> None:
    queue = Queue(10, most_samples=100)
    tasks = [queue.ask("one", 40), queue.ask("two", 40), queue.ask("three", 40), queue.ask("four", 500)]
    await settle()
    assert queue.running == ["one", "two"]
    await queue.end_oldest()
    assert queue.running == ["two", "three"]
    assert await drain(queue, tasks) == ["two", "three", "four"]


@pytest.mark.parametrize("which", [0, 1, 2, 3])
async def test_a_cancelled_job_gives_back_its_place_or_its_turn(which: int) -> None:
    queue = Queue(2)
    tasks = [queue.ask(name) for name in "abcd"]
    await settle()
    tasks[which].cancel()
    await asyncio.wait([tasks[which]])
    await settle()
    if which < 2:
        assert queue.running == [*"ab", "c"]
        queue.running.pop(which)
        queue._ends.pop(which)
    else:
        assert queue.running == ["a", "b"]
    left = [task for task in tasks if not task.cancelled()]
    assert Counter(await drain(queue, left)) == Counter("abcd".replace("abcd"[which], ""))


async def test_a_job_cancelled_in_the_turn_in_which_it_got_its_place_gives_it_back() -> None:
    queue = Queue(1)
    first, second, third = (queue.ask(name) for name in "abc")
    await settle()
    queue.running.pop()
    queue._ends.pop().set()
    second.cancel()  # before the first has left
    await settle()
    assert second.cancelled()
    assert await drain(queue, [first, third]) == ["c"]


@given(
    names=st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), count=st.integers(1, 5), data=st.data()
)
def test_every_free_place_goes_to_one_that_holds_fewest(
    names: list[str], count: int, data: st.DataObject
) -> None:
    async def scenario() -> None:
        queue = Queue(count)
        tasks = [queue.ask(name) for name in names]
        await settle()
        left = Counter(names)
        while queue.running:
            turn = data.draw(st.integers(0, len(queue.running) - 1))
            queue.running.insert(0, queue.running.pop(turn))
            queue._ends.insert(0, queue._ends.pop(turn))
            left[queue.running[0]] -= 1
            before = Counter(queue.running[1:])
            waiting = left - before
            await queue.end_oldest()
            assert len(queue.running) == min(count, left.total())
            if waiting:
                assert before[queue.running[-1]] == min(before[name] for name in waiting)
        await asyncio.gather(*tasks)

    asyncio.run(scenario())

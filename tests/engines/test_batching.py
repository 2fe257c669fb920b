"""Micro-batching: who shares a batch, in which order, and that no caller's trouble is another's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress

import pytest

from realtime_server.engines.batching import Batcher
from realtime_server.errors import EngineError

LONG_S = 60.0  # a window that no test waits for
BUCKETS = (10, 20)


class Encoder:
    """Answers each text with itself in capitals; holds every batch until `gate` opens."""

    def __init__(self, *, fail_on: str = "", lose: int = 0, held: bool = False) -> None:
        self.batches: list[tuple[list[str], int]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.threads: set[int] = set()
        self.overlaps = 0
        self._fail_on, self._lose = fail_on, lose
        self._busy = threading.Lock()
        if not held:
            self.gate.set()

    def __call__(self, items: Sequence[str], edge: int) -> list[str]:
        self.overlaps += not self._busy.acquire(blocking=False)
        self.threads.add(threading.get_ident())
        self.batches.append((list(items), edge))
        self.entered.release()
        assert self.gate.wait(10)
        self._busy.release()
        if self._fail_on in items:
            raise RuntimeError("out of memory")
        return [item.upper() for item in items[self._lose :]]

    def batcher(self, *, window_s: float = 0.001, max_batch: int = 4) -> Batcher[str, str]:
        return Batcher(self, len, buckets=BUCKETS, window_s=window_s, max_batch=max_batch)

    async def wait_entered(self) -> None:
        """Wait until the next batch is being computed."""
        assert await asyncio.to_thread(self.entered.acquire, timeout=10)


def submit(batcher: Batcher[str, str], *items: str, priority: int = 0) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(batcher.submit(item, priority)) for item in items]


async def turn() -> None:
    """Let tasks that were just made run."""
    await asyncio.sleep(0)


async def test_items_that_come_together_share_a_batch() -> None:
    encoder = Encoder()
    batcher = encoder.batcher()
    assert await asyncio.gather(*submit(batcher, "a", "b", "c")) == ["A", "B", "C"]
    assert encoder.batches == [(["a", "b", "c"], 10)]
    await batcher.aclose()


async def test_one_that_comes_alone_does_not_wait_for_company() -> None:
    batcher = Batcher(lambda items, edge: [item.upper() for item in items], len, buckets=(10,), window_s=0.01)
    assert await batcher.submit("a") == "A"
    await asyncio.sleep(0.05)
    batcher._window_s = 3600.0  # from here on, whoever waits for company waits for ever
    batcher._arrived_s = -1e9  # long ago
    async with asyncio.timeout(10.0):
        assert await batcher.submit("b") == "B"
    await batcher.aclose()


async def test_a_batch_holds_one_length_bucket() -> None:
    encoder = Encoder()
    batcher = encoder.batcher()
    items = ["a" * 10, "b" * 11, "c", "d" * 20, "e" * 21, "f" * 22]
    assert await asyncio.gather(*submit(batcher, *items)) == [item.upper() for item in items]
    assert encoder.batches == [
        (["a" * 10, "c"], 10),
        (["b" * 11, "d" * 20], 20),
        (["e" * 21], 21),  # longer than every bucket: nothing to share
        (["f" * 22], 22),
    ]
    await batcher.aclose()


async def test_a_full_batch_does_not_wait_for_company() -> None:
    encoder = Encoder()
    batcher = encoder.batcher(window_s=LONG_S, max_batch=3)
    tasks = submit(batcher, "a", "b", "long enough to go alone")
    await turn()
    assert not encoder.batches
    tasks += submit(batcher, "c")
    assert await asyncio.gather(*tasks[:2], tasks[3]) == ["A", "B", "C"]
    assert await tasks[2] == "LONG ENOUGH TO GO ALONE"  # an idle worker takes what waits at once
    await batcher.aclose()


async def test_a_small_batch_takes_items_of_every_length() -> None:
    encoder = Encoder()
    batcher = Batcher(encoder, len, buckets=BUCKETS, window_s=0.001, max_batch=8, mixed_length=60)
    items = ["a" * 5, "b" * 15, "c" * 5, "d" * 15, "e" * 5]
    assert await asyncio.gather(*submit(batcher, *items)) == [item.upper() for item in items]
    assert encoder.batches == [(items[:3], 20), (items[3:], 20)]
    await batcher.aclose()


async def test_a_batch_of_one_bucket_may_be_larger_than_a_mixed_one() -> None:
    encoder = Encoder()
    batcher = Batcher(encoder, len, buckets=BUCKETS, window_s=0.001, max_batch=8, mixed_length=40)
    items = [letter * 5 for letter in "abcdef"]
    await asyncio.gather(*submit(batcher, *items, "g" * 15))
    assert encoder.batches == [(items, 10), (["g" * 15], 20)]
    await batcher.aclose()


async def test_the_patient_wait_for_more_company_and_go_with_whoever_has_less() -> None:
    encoder = Encoder()
    batcher = Batcher(encoder, len, buckets=BUCKETS, window_s=0.001, patience_s={3: LONG_S}, mixed_length=99)
    patient = submit(batcher, "a", "b" * 12, priority=3)
    await asyncio.sleep(0.02)
    assert not encoder.batches
    (urgent,) = submit(batcher, "c")
    assert await asyncio.gather(*patient, urgent) == ["A", "B" * 12, "C"]
    assert encoder.batches == [(["c", "a", "b" * 12], 20)]
    await batcher.aclose()


async def test_the_patient_go_on_waiting_while_others_are_computed() -> None:
    encoder = Encoder(held=True)
    batcher = Batcher(encoder, len, buckets=BUCKETS, window_s=0.001, patience_s={3: LONG_S})
    (first,) = submit(batcher, "a")
    await encoder.wait_entered()
    (patient,) = submit(batcher, "b" * 12, priority=3)
    encoder.gate.set()
    assert await first == "A"
    await asyncio.sleep(0.02)
    assert len(encoder.batches) == 1
    submit(batcher, "c" * 12)
    assert await patient == "B" * 12
    await batcher.aclose()


async def test_a_full_batch_of_the_patient_does_not_wait() -> None:
    encoder = Encoder()
    batcher = Batcher(encoder, len, buckets=BUCKETS, window_s=LONG_S, patience_s={3: LONG_S}, max_batch=2)
    assert await asyncio.gather(*submit(batcher, "a", "b", priority=3)) == ["A", "B"]
    await batcher.aclose()


async def test_no_batch_is_larger_than_allowed() -> None:
    encoder = Encoder()
    batcher = encoder.batcher(max_batch=2)
    await asyncio.gather(*submit(batcher, *"abcde"))
    assert [items for items, _ in encoder.batches] == [["a", "b"], ["c", "d"], ["e"]]
    await batcher.aclose()


async def test_long_items_share_less() -> None:
    encoder = Encoder()
    batcher = Batcher(encoder, len, buckets=BUCKETS, window_s=0.001, max_batch=4, max_length=45)
    items = [letter * length for length in (5, 15, 50) for letter in "abcde"]
    await asyncio.gather(*submit(batcher, *items))
    sizes = [(edge, len(batch)) for batch, edge in encoder.batches]
    assert sizes == [(10, 4), (10, 1), (20, 2), (20, 2), (20, 1), *[(50, 1)] * 5]
    await batcher.aclose()


async def test_what_comes_meanwhile_goes_together_and_the_urgent_first() -> None:
    encoder = Encoder(held=True)
    batcher = encoder.batcher(max_batch=2)
    tasks = submit(batcher, "a")
    await encoder.wait_entered()
    tasks += submit(batcher, "refresh", "partial", priority=3)
    tasks += submit(batcher, "a long final", priority=0) + submit(batcher, "partial 2", priority=2)
    await turn()
    encoder.gate.set()
    await asyncio.gather(*tasks)
    assert [items for items, _ in encoder.batches] == [
        ["a"],
        ["a long final"],
        ["partial 2", "refresh"],
        ["partial"],
    ]
    await batcher.aclose()


async def test_one_thread_computes_and_the_loop_goes_on() -> None:
    encoder = Encoder(held=True)
    batcher = encoder.batcher(max_batch=1)
    tasks = submit(batcher, "a", "b", "c")
    await encoder.wait_entered()
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert len(encoder.batches) == 1
    assert not any(task.done() for task in tasks)
    encoder.gate.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C"]
    assert encoder.overlaps == 0
    assert len(encoder.threads) == 1
    assert threading.get_ident() not in encoder.threads
    await batcher.aclose()


async def test_an_answer_does_not_wait_for_the_next_batch() -> None:
    encoder = Encoder(held=True)
    batcher = encoder.batcher(max_batch=1)
    first, second = submit(batcher, "a", "b")
    await encoder.wait_entered()
    encoder.gate.set()
    encoder.gate = threading.Event()  # the second batch is held
    assert await first == "A"
    assert not second.done()
    encoder.gate.set()
    assert await second == "B"
    await batcher.aclose()


async def test_cancelling_one_that_waits_spares_the_others() -> None:
    encoder = Encoder()
    batcher = encoder.batcher()
    tasks = submit(batcher, "a", "b", "c")
    await turn()
    tasks[1].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [answers[0], answers[2]] == ["A", "C"]
    assert isinstance(answers[1], asyncio.CancelledError)
    assert encoder.batches == [(["a", "c"], 10)]
    await batcher.aclose()


async def test_cancelling_one_that_is_computed_spares_its_batch() -> None:
    encoder = Encoder(held=True)
    batcher = encoder.batcher()
    tasks = submit(batcher, "a", "b", "c")
    await encoder.wait_entered()
    tasks[1].cancel()
    with suppress(asyncio.CancelledError):
        await tasks[1]
    encoder.gate.set()
    assert [await tasks[0], await tasks[2]] == ["A", "C"]
    assert await batcher.submit("d") == "D"
    await batcher.aclose()


async def test_when_all_that_waited_are_cancelled_nothing_is_computed() -> None:
    encoder = Encoder()
    batcher = encoder.batcher()
    tasks = submit(batcher, "a", "b")
    await turn()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.005)
    assert encoder.batches == []
    assert await batcher.submit("c") == "C"
    await batcher.aclose()


async def test_a_failure_reaches_its_batch_only() -> None:
    encoder = Encoder(fail_on="b")
    batcher = encoder.batcher()
    answers = await asyncio.gather(*submit(batcher, "a", "b", "c" * 11), return_exceptions=True)
    assert answers[2] == "C" * 11
    for answer in answers[:2]:
        assert isinstance(answer, EngineError)
        assert str(answer) == "the encoder failed: out of memory"
        assert isinstance(answer.__cause__, RuntimeError)
    assert answers[0] is not answers[1]
    assert await batcher.submit("d") == "D"
    await batcher.aclose()


async def test_a_batch_with_an_answer_too_few_is_a_failure() -> None:
    batcher = Encoder(lose=1).batcher()
    answers = await asyncio.gather(*submit(batcher, "a", "b"), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["the encoder failed: answers are missing"] * 2
    await batcher.aclose()


async def test_closing_fails_what_waits_and_what_runs() -> None:
    encoder = Encoder(held=True)
    batcher = encoder.batcher(max_batch=1)
    tasks = submit(batcher, "a", "b")
    await encoder.wait_entered()
    closing = asyncio.create_task(batcher.aclose())
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [EngineError, EngineError]
    assert not closing.done()  # the thread is still at work
    encoder.gate.set()
    await closing
    assert len(encoder.batches) == 1
    with pytest.raises(EngineError, match="shut down"):
        await batcher.submit("c")

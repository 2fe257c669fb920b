"""Buckets of senders: what fits at once, what time brings back, and that their number is bounded."""

from __future__ import annotations

import pytest

from realtime_server.doors.rates import RateLimiter


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bucket_empties_and_fills_again() -> None:
    clock = Clock()
    limiter = RateLimiter(6, clock)
    assert [limiter.take("a") for _ in range(7)] == [0] * 6 + [10]
    assert limiter.take("b") == 0
    clock.now_s += 4
    assert limiter.take("a") == pytest.approx(6)
    clock.now_s += 6
    assert limiter.take("a") == 0
    assert limiter.take("a") == pytest.approx(10)
    clock.now_s += 1e6
    assert [limiter.take("a") > 0 for _ in range(7)] == [False] * 6 + [True]


def test_asking_in_vain_does_not_lengthen_the_wait() -> None:
    clock = Clock()
    limiter = RateLimiter(1, clock)
    limiter.take("a")
    for _ in range(59):
        clock.now_s += 1
        assert limiter.take("a") > 0
    clock.now_s += 1.001
    assert limiter.take("a") == 0


def test_without_a_limit_nothing_is_kept() -> None:
    limiter = RateLimiter(0, Clock())
    assert not any(limiter.take("a") for _ in range(1000))
    assert len(limiter) == 0


def test_many_senders_take_bounded_memory_and_do_not_help_who_keeps_asking() -> None:
    limiter = RateLimiter(2, Clock(), senders=100)
    limiter.take("a")
    limiter.take("a")
    for n in range(10_000):
        assert limiter.take(str(n)) == 0
        if n % 50 == 0:
            assert limiter.take("a") > 0
    assert len(limiter) == 100

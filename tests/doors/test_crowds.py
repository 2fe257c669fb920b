"""How many connections a sender has open: who is told, who is cut off, and that nothing is left of who has gone."""

from __future__ import annotations

import pytest

from realtime_server.doors.crowds import SPARE, Crowd, Stay
from realtime_server.doors.visitors import NOBODY

SENDER, OTHER = "192.0.2.1", "2001:db8::/64"


def test_so_many_may_be_open_a_few_more_are_told_and_the_rest_is_cut_off() -> None:
    crowd = Crowd(2)
    stays = [crowd.enter(SENDER) for _ in range(2 + SPARE + 3)]
    assert [stay.error is None for stay in stays] == [True] * 2 + [False] * (SPARE + 3)
    assert [stay.cut for stay in stays] == [False] * (2 + SPARE) + [True] * 3
    error = stays[2].error
    assert error
    assert (error.status, error.reason, error.headers) == (429, "connections", {"Retry-After": "5"})
    assert "2 connections" in str(error)
    assert crowd.enter(OTHER).error is None


def test_places_come_back_once() -> None:
    crowd = Crowd(1)
    with crowd.enter(SENDER) as first:
        second = crowd.enter(SENDER)
        assert second.error
        second.release()
    first.release()
    assert not len(crowd)
    again = crowd.enter(SENDER)
    first.release()
    assert again.error is None
    assert crowd.enter(SENDER).error


def test_those_cut_off_are_not_counted() -> None:
    crowd = Crowd(1)
    stays = [crowd.enter(SENDER) for _ in range(2 * SPARE)]
    for stay in stays:
        stay.release()
    assert not len(crowd)


@pytest.mark.parametrize("sender", ["127.0.0.1", "127.1.2.3", "::/64", NOBODY])
def test_this_machine_is_not_counted_unless_it_shall_be(sender: str) -> None:
    crowd = Crowd(1)
    assert all(crowd.enter(sender).error is None for _ in range(5))
    crowd = Crowd(1, free=lambda sender: False)
    assert [crowd.enter(sender).error is None for _ in range(2)] == [True, False]


def test_any_number() -> None:
    crowd = Crowd(0)
    assert all(crowd.enter(SENDER).error is None for _ in range(1000))
    assert not len(crowd)


def test_what_was_not_counted_is_released_like_the_rest() -> None:
    crowd = Crowd(0)
    with crowd.enter(SENDER) as stay:
        stay.release()
    assert not len(crowd)
    assert (Stay().error, Stay().cut) == (None, False)

"""The time in which all clients speak, from moments and takes made by hand, and from a small server."""

from __future__ import annotations

import os
import sys

import pytest

from realtime_server.bench import full_load, swarm
from realtime_server.bench.accounting import Heard
from realtime_server.bench.full_load import Moment, Outcome
from tests.bench.test_swarm import TAKE, obey, server

SPELLS = ((0, 1000),)


def moment(at_s: float, cpu_s: float = 0.0) -> Moment:
    return Moment(at_s, cpu_s, None, 0, 0)


def times(heard: Heard) -> list[tuple[float, float]]:
    return [(at, at) for at in (0, 1000, 2000, 3000)]


@pytest.mark.parametrize(("pace", "within"), [(1.0, [1000, 2000]), (2.0, [2000, 3000]), (0.0, [1000, 2000])])
def test_values_count_between_the_last_beginning_and_the_first_end(pace: float, within: list[float]) -> None:
    log = swarm.Log(takes=[Heard(SPELLS)], began_s=[10.0])
    outcome = Outcome([log], moment(11.0), moment(12.0), pace)
    assert outcome.under_load(times) == within


def test_the_clients_cpu_is_a_share_of_the_one_core_of_their_loop() -> None:
    outcome = Outcome([], moment(10.0, cpu_s=3.0), moment(14.0, cpu_s=4.0))
    assert (outcome.seconds, outcome.client_cores, outcome.server) == (4.0, 0.25, None)


def test_clients_begin_one_after_the_other_in_uneven_steps() -> None:
    found = full_load.starts(8, 4.0)
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] < 4.0
    assert len({round(start * 1000) % 100 for start in found}) > 4


async def test_the_load_ends_with_the_first_client_that_has_said_all() -> None:
    async with server(obey) as url:
        short, long = (swarm.Client(url, [TAKE] * count) for count in (1, 3))
        outcome = await full_load.run([short, long], None)
    assert [len(log.takes) for log in outcome.logs] == [1, 3]
    assert 0.3 <= outcome.seconds < 0.9
    assert outcome.server is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_known_server_is_watched() -> None:
    async with server(obey) as url:
        outcome = await full_load.run([swarm.Client(url, [TAKE], pace=5)], os.getpid(), 5)
    assert outcome.server
    assert outcome.server[1].rss_mb > 10


async def test_a_server_that_has_gone_is_not_known() -> None:
    async with server(obey) as url:
        outcome = await full_load.run([swarm.Client(url, [TAKE], pace=5)], 2**22 + 1, 5)
    assert outcome.server is None

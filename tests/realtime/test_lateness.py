"""When newcomers are turned away because the recognizer is late, and when they are let in again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from websockets.exceptions import InvalidStatus

from realtime_server.engines.fake import FakeEngine
from realtime_server.realtime.lateness import FEW, TRICKLE_S, WINDOW_S, Lateness, Wait
from realtime_server.realtime.server import ServerOptions
from realtime_server.realtime.session import Clocks
from tests.audio import pcm16, tone
from tests.realtime.harness import BY_CLIENT, eventually, serving, texts
from tests.realtime.test_http import ask

BOUND_S = 2.0


@dataclass
class World:
    """A clock that stands still, a line, and what judges them."""

    now_s: float = 100.0
    line: list[Wait] = field(default_factory=list)
    lateness: Lateness = field(init=False)

    def __post_init__(self) -> None:
        self.lateness = Lateness(BOUND_S, lambda: self.line, lambda: self.now_s)

    def waits(self, kind: str, *seconds: float) -> None:
        for each in seconds:
            self.lateness.receive_wait(kind, each)

    @property
    def admits(self) -> bool:
        return self.lateness.problem is None


@pytest.fixture
def world() -> World:
    return World()


# --- what is late ---------------------------------------------------------------------------------------------


def test_nothing_is_late_before_anything_has_waited(world: World) -> None:
    assert world.admits


@pytest.mark.parametrize(
    ("kind", "bound_s"),
    [
        ("final", BOUND_S),
        ("partial", 2.5 * BOUND_S),
        ("text", 2.5 * BOUND_S),
        ("eager", None),
        ("file", None),
    ],
)
def test_finals_and_partials_and_texts_have_bounds(world: World, kind: str, bound_s: float | None) -> None:
    world.waits(kind, *[bound_s or 1000.0] * 50)
    assert world.admits
    world.waits(kind, *[1.01 * (bound_s or 1000.0)] * 50)
    assert world.admits == (bound_s is None)


def test_one_in_twenty_may_be_late(world: World) -> None:
    world.waits("final", *[0.0] * 96, *[3.0] * 5)
    assert world.admits
    world.waits("final", 3.0)
    assert not world.admits


def test_a_few_are_not_enough(world: World) -> None:
    world.waits("final", *[3.0] * (FEW - 1))
    assert world.admits
    world.waits("final", 3.0)
    assert not world.admits


def test_what_waits_now_counts_with_what_has_waited(world: World) -> None:
    world.waits("final", 3.0)
    world.line = [("final", 2.5), ("final", 0.5), ("file", 60.0)]
    assert world.admits
    world.line = [("final", 2.5), ("final", 2.1)]
    assert not world.admits


def test_what_was_long_ago_is_forgotten(world: World) -> None:
    world.waits("final", *[3.0] * FEW)
    world.now_s += WINDOW_S
    assert world.admits


def test_nobody_is_late_for_an_empty_server(world: World) -> None:
    world.waits("text", *[30.0] * FEW)
    assert not world.admits
    world.lateness.receive_empty()
    assert world.admits


def test_without_a_bound_nobody_is_late() -> None:
    lateness = Lateness(None, lambda: [("final", 1000.0)] * 50)
    for _ in range(50):
        lateness.receive_wait("final", 1000.0)
    assert lateness.problem is None


# --- the door ---------------------------------------------------------------------------------------------------


def test_it_stays_closed_until_waits_are_half_of_the_bound(world: World) -> None:
    world.waits("final", *[3.0] * FEW)
    assert not world.admits
    for _ in range(30):
        world.now_s += 1.0
        world.waits("final", 1.2, 1.2)
        assert not world.admits
    for _ in range(11):
        world.now_s += 1.0
        world.waits("final", 0.9, 0.9)
    assert world.admits


def test_when_it_opens_again_newcomers_come_one_by_one_at_first(world: World) -> None:
    world.waits("final", *[3.0] * FEW)
    assert not world.admits
    world.now_s += WINDOW_S
    admitted = []
    while world.now_s < 125.0:
        if world.admits:
            admitted.append(world.now_s)
            world.lateness.receive_newcomer()
        world.now_s += 0.25
    gaps = [later - earlier for earlier, later in pairwise(admitted)]
    trickled = round(WINDOW_S / TRICKLE_S)
    assert gaps[: trickled - 1] == [TRICKLE_S] * (trickled - 1)
    assert set(gaps[trickled:]) == {0.25}


def test_lateness_closes_a_door_that_is_ajar(world: World) -> None:
    world.waits("final", *[3.0] * FEW)
    assert not world.admits
    world.now_s += WINDOW_S
    assert world.admits
    world.now_s += 1.0
    world.waits("final", *[3.0] * FEW)
    assert not world.admits
    world.now_s += TRICKLE_S
    assert not world.admits


def test_a_door_that_nobody_asked_about_opens_all_the_same(world: World) -> None:
    world.waits("final", *[5.0] * 5)
    assert not world.admits
    world.now_s += 3600.0
    assert world.admits
    world.lateness.receive_newcomer()
    world.now_s += 0.2
    assert world.admits


@pytest.mark.parametrize("punctual", [False, True])
def test_it_is_ajar_from_when_it_became_calm(world: World, punctual: bool) -> None:
    world.waits("final", *[3.0] * FEW)
    for _ in range(round(2 * WINDOW_S)):
        world.now_s += 1.0
        if punctual:
            world.waits("final", 0.1)
    world.lateness.receive_newcomer()
    assert world.admits


def test_what_has_begun_to_wait_meanwhile_was_not_late_then(world: World) -> None:
    world.waits("final", *[3.0] * FEW)
    world.now_s += WINDOW_S + 1.9
    world.line = [("final", 1.9)] * FEW
    world.lateness.receive_newcomer()
    assert "one by one" in str(world.lateness.problem)


@pytest.mark.parametrize("asked", [1, 100])
def test_asking_moves_nothing(asked: int) -> None:
    """Waits that are late for a moment: whether somebody looks just then makes no difference."""
    world, admits = World(), []
    for _ in range(30):
        world.now_s += 1.0
        world.waits("final", *[3.0] * FEW)
        world.lateness.receive_newcomer()
        for _ in range(asked - 1):
            _ = world.lateness.problem
        world.waits("final", *[0.1] * 97)
        admits.append(world.admits)
    assert admits == [True] * 30


@pytest.mark.parametrize("late_share", [0.0, 0.04, 0.06, 1.0])
def test_it_does_not_flap(late_share: float) -> None:
    """Waits around the bound for five minutes: the door moves once at most."""
    world, states = World(), []
    for second in range(300):
        world.now_s += 1.0
        late = round(100 * late_share)
        world.waits("final", *[2.1] * late, *[1.9] * (100 - late))
        if second > WINDOW_S:
            states.append(world.admits)
    assert sum(a != b for a, b in pairwise(states)) <= 1
    assert states[-1] == (late_share < 0.05)


# --- on the server -----------------------------------------------------------------------------------------------


async def test_newcomers_are_refused_while_it_is_late_and_those_inside_go_on() -> None:
    """Eight sessions on one slot of 0.2 s; four finals wait longer than 0.6 s."""
    engine = FakeEngine(slots=1, decode_s=0.2)
    async with serving(engine, options=ServerOptions(late_s=0.3)) as service:

        async def speak() -> list[str]:
            async with service.client() as client:
                return texts(await client.transcribe(tone(1.0)))

        inside = [asyncio.create_task(speak()) for _ in range(8)]
        await eventually(lambda: service.server.why_not_ready())
        with pytest.raises(InvalidStatus) as refused:
            async with service.client():
                pass
        response = refused.value.response
        assert (response.status_code, int(response.headers["Retry-After"]) > 0) == (503, True)
        ready = await ask(service, "/ready")
        assert (ready.status, "late" in str(ready.json["reason"])) == (503, True)
        assert b'refused_total{reason="late"} 1.0' in (await ask(service, "/metrics")).body
        assert await asyncio.gather(*inside) == [["one two"]] * 8
        await eventually(lambda: service.sessions == 0)
        assert (await ask(service, "/ready")).status == 200
        async with service.client() as client:
            assert texts(await client.transcribe(tone(1.0))) == ["one two"]


async def test_newcomers_are_refused_while_texts_are_late_though_nothing_waits_in_line() -> None:
    """Each decode takes longer than a text may be old; then no longer, and the door opens, a little at first."""
    engine = FakeEngine(slots=32, decode_s=0.4)
    async with serving(engine, options=ServerOptions(late_s=0.1)) as service, service.client() as speaker:
        lateness = service.server.dispatcher.lateness
        await speaker.say("START")
        speaking = asyncio.create_task(speaker.hear(tone(60.0), pace=1.0))
        await eventually(lambda: service.server.why_not_ready())
        with pytest.raises(InvalidStatus, match="503"):
            async with service.client():
                pass
        assert service.server.dispatcher.waiting.total() == 0
        assert b"realtime_server_late 1.0" in (await ask(service, "/metrics")).body
        engine._decode_s = 0.0
        later_s = time.monotonic() + WINDOW_S
        lateness._clock = lambda: later_s
        async with service.client():
            assert "one by one" in str(service.server.why_not_ready())
        later_s += WINDOW_S
        assert (await ask(service, "/ready")).status == 200
        assert b"realtime_server_late 0.0" in (await ask(service, "/metrics")).body
        speaking.cancel()
        await speaker.say("STOP")
        await speaker.event("stopped")


async def test_when_the_last_session_has_left_nobody_hears_that_it_was_late() -> None:
    async with serving(FakeEngine()) as service:
        async with service.client() as client:
            await client.say("START")
            for _ in range(10):
                service.server.dispatcher.lateness.receive_wait("final", 60.0)
            assert "late" in str(service.server.why_not_ready())
        await eventually(lambda: service.sessions == 0)
        async with service.client(), service.client():
            assert service.server.why_not_ready() is None


async def test_it_can_be_switched_off() -> None:
    engine = FakeEngine(slots=1, decode_s=0.1)
    async with serving(engine, options=ServerOptions(late_s=None)) as service:

        async def speak() -> list[str]:
            async with service.client() as client:
                return texts(await client.transcribe(tone(1.0)))

        inside = [asyncio.create_task(speak()) for _ in range(30)]
        await eventually(lambda: service.server.dispatcher.waiting["final"] > 20)
        assert service.server.why_not_ready() is None
        assert await asyncio.gather(*inside) == [["one two"]] * 30


@pytest.mark.parametrize("slots", [1, 32])
async def test_a_client_that_sends_faster_than_it_is_decoded_makes_nobody_late(slots: int) -> None:
    """Its sentences wait for each other in line, or each is told long after its audio came."""
    engine = FakeEngine(slots=slots, decode_s=0.1 * slots**0.5)
    async with serving(engine, options=ServerOptions(late_s=0.2)) as service, service.client() as client:
        await client.say("START")
        for _ in range(20):
            await client.say(pcm16(tone(1.0)), pcm16(0.0 * tone(1.0)))
        await client.say("STOP")
        assert len((await client.final())["sentences"]) == 20
        assert service.server.why_not_ready() is None


@pytest.mark.parametrize("end", ["COMMIT", "STOP", None])
async def test_a_client_that_is_silent_before_it_ends_its_sentence_makes_nobody_late(end: str | None) -> None:
    """Its audio is due after 0.45 s, and would be late 1 s later."""
    clocks, options = Clocks(stall_s=2.0), ServerOptions(late_s=0.4)
    async with serving(options=options, clocks=clocks, settings=BY_CLIENT) as service, service.client():

        async def speak() -> list[str]:
            async with service.client() as client:
                await client.say("START", pcm16(tone(0.5)))
                if end:
                    await asyncio.sleep(2.0)
                    await client.say(end)
                return await client.sentences(1)

        assert await asyncio.gather(*(speak() for _ in range(FEW))) == [["one"]] * FEW
        assert service.server.why_not_ready() is None

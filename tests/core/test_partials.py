"""When partials are asked for, over which windows, and what they read together."""

from __future__ import annotations

import pytest

from realtime_server.core.partials import PartialPlanner, PartialRequest, join_texts
from realtime_server.core.segments import to_samples
from realtime_server.core.settings import Pace

S = 16_000


def planner(start: int = 0, window_s: float = 8.0, quiet: int | None = None) -> PartialPlanner:
    return PartialPlanner(
        start, pace=Pace(first_ms=500, interval_ms=800), window_s=window_s,
        find_quiet=lambda first, last: quiet if quiet is not None else last,
    )  # fmt: skip


def ask(planner: PartialPlanner, seconds: float, load_ms: float = 0) -> PartialRequest | None:
    return planner.take_request(to_samples(1000 * seconds), load_ms=load_ms)


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["a", "b"], "a b"),
        (["你好", "世界"], "你好世界"),
        (["你好", "world"], "你好world"),
        (["hello", "世界"], "hello世界"),
        (["", " a ", "", "b"], "a b"),
        (["", " \n"], ""),
        (["Hello.", "你好。", "Bye."], "Hello.你好。Bye."),
        (["こんにちは", "カタカナ"], "こんにちはカタカナ"),
        (["안녕하세요.", "반갑습니다"], "안녕하세요. 반갑습니다"),
        (["你好。", "안녕"], "你好。안녕"),
        (["สวัสดี", "ครับ"], "สวัสดี ครับ"),
        (["مرحبا", "العالم"], "مرحبا العالم"),
        ([], ""),
    ],
)
def test_texts_are_joined_as_their_script_asks(texts: list[str], joined: str) -> None:
    assert join_texts(texts) == joined


def test_the_first_is_due_half_a_second_after_the_start() -> None:
    p = planner(start=S)
    assert ask(p, 1.49) is None
    assert ask(p, 1.5) == PartialRequest(S, 3 * S // 2, first=True, settles=False)


def test_one_is_in_flight_and_what_comes_meanwhile_is_folded_into_one_more() -> None:
    p = planner()
    assert ask(p, 0.5)
    assert ask(p, 1.5) is None
    assert ask(p, 2.5) is None
    assert p.receive_text("one") == "one"
    assert ask(p, 2.5) == PartialRequest(0, 5 * S // 2, first=False, settles=False)


def test_the_interval_counts_from_the_last_request() -> None:
    p = planner()
    ask(p, 0.5)
    p.receive_text("one")
    assert ask(p, 1.29) is None
    assert ask(p, 1.3)


def test_an_empty_first_text_is_asked_for_again_soon() -> None:
    p = planner()
    ask(p, 0.5)
    assert p.receive_text("") is None  # nothing is said of this audio yet
    assert ask(p, 0.69) is None
    assert ask(p, 0.7)
    assert p.receive_text("one") == "one"
    assert ask(p, 1.49) is None
    assert ask(p, 1.5)


def test_what_stays_empty_is_asked_for_at_the_usual_pace() -> None:
    p = planner()
    ask(p, 0.5)
    p.receive_text("")
    ask(p, 1.3)
    assert p.receive_text("") == ""
    assert ask(p, 2.09) is None
    assert ask(p, 2.1)


def test_an_empty_beginning_of_a_window_takes_back_nothing() -> None:
    p = planner(quiet=to_samples(7900))
    ask(p, 8.0)
    assert p.receive_text("one two") == "one two"
    assert ask(p, 8.8) == PartialRequest(0, to_samples(7900), first=False, settles=True)
    assert p.receive_text("one") is None
    assert ask(p, 8.8)
    assert p.receive_text("") is None  # "two" stays
    assert ask(p, 8.99) is None
    assert ask(p, 9.0)
    assert p.receive_text("two") == "one two"


def test_a_request_whose_turn_comes_late_takes_along_what_was_heard_within_its_window() -> None:
    p = planner()
    ask(p, 0.5)
    assert p.receive_turn(to_samples(400)) == to_samples(500)
    assert p.receive_turn(2 * S) == 2 * S
    assert p.receive_turn(20 * S) == 8 * S
    with pytest.raises(RuntimeError):
        planner().receive_turn(S)


def test_a_settling_request_keeps_its_end() -> None:
    p = planner(quiet=6 * S)
    ask(p, 9.0)
    assert p.receive_turn(20 * S) == 6 * S


def test_requests_that_were_due_and_not_made_are_counted() -> None:
    p = planner()
    ask(p, 0.5)
    ask(p, 1.3)  # one is in flight
    p.receive_text("one")
    ask(p, 2.9)  # 1.3 and 2.1 would have been
    assert p.folded == 2
    p.receive_failure()
    p.receive_end(to_samples(3600))
    assert p.folded == 2
    p.receive_end(to_samples(4500))  # 3.7 and 4.5
    assert p.folded == 4


def test_slow_decodes_stretch_the_interval() -> None:
    p = planner()
    ask(p, 0.5, load_ms=1000)
    p.receive_text("")
    assert ask(p, 2.49) is None
    assert ask(p, 2.5)


def test_a_full_window_is_settled_at_a_quiet_place_and_the_rest_is_due_at_once() -> None:
    p = planner(quiet=6 * S)
    ask(p, 8.0)
    assert p.receive_text("one two") == "one two"
    settling = ask(p, 8.8)
    assert settling == PartialRequest(0, 6 * S, first=False, settles=True)
    assert p.receive_text("one") is None
    assert ask(p, 8.8) == PartialRequest(6 * S, to_samples(8800), first=False, settles=False)
    assert p.receive_text("two") == "one two"


def test_the_whole_adds_to_what_is_settled_and_does_not_change_it() -> None:
    p = planner(quiet=6 * S)
    assert p.join_whole("Kite's and crowes") == "Kite's and crowes"
    assert ask(p, 8.1)
    p.receive_text("Kites and crows.")
    assert p.join_whole("The kite's and crowes, and more") == "Kites and crows, and more"
    assert p.join_whole("") == "Kites and crows"
    assert ask(p, 9)
    assert p.receive_text("and more.") == "Kites and crows. and more."


def test_a_planner_that_fell_behind_catches_up_window_by_window() -> None:
    p, spans = planner(), []
    while request := ask(p, 30.0):
        spans.append((request.start // S, request.end // S))
        p.receive_text(f"{len(spans)}")
    assert spans == [(0, 8), (8, 16), (16, 24), (24, 30)]


def test_no_window_is_longer_than_asked_for() -> None:
    p = planner(window_s=3.0)
    for tenth in range(1, 300):
        request = ask(p, tenth / 10)
        if request:
            assert request.end - request.start <= 3 * S
            p.receive_text("x")


def test_after_a_failure_the_next_request_covers_the_same_audio() -> None:
    p = planner()
    ask(p, 0.5)
    p.receive_failure()
    assert ask(p, 1.3) == PartialRequest(0, to_samples(1300), first=False, settles=False)


def test_a_failed_settling_request_waits_like_any_other() -> None:
    p = planner(quiet=6 * S)
    ask(p, 8.0)
    p.receive_text("one")
    assert ask(p, 8.8)
    p.receive_failure()
    assert ask(p, 9.5) is None
    assert ask(p, 9.6) == PartialRequest(0, 6 * S, first=False, settles=True)


def test_a_text_that_was_not_asked_for_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="without a request"):
        planner().receive_text("x")

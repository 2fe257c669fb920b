"""How old a sample is, whatever came before its session and however it came."""

from __future__ import annotations

import pytest

from realtime_server.realtime.receipts import STEP_S, UNJUDGED, Receipts

S = 16_000


def test_the_age_of_a_sample_counts_from_its_frame() -> None:
    receipts = Receipts()
    receipts.receive_start()
    receipts.begin()
    for second in range(3):
        receipts.receive_audio(S, 100.0 + second)
    assert [receipts.age_s(n, 103.0) for n in (1, S, S + 1, 3 * S)] == [3.0, 3.0, 2.0, 1.0]
    assert receipts.age_s(3 * S + 1, 103.0) == 0.0


def test_a_session_behind_another_begins_where_its_start_stood() -> None:
    receipts = Receipts()
    receipts.receive_audio(7, 1.0)  # before any session: ignored
    receipts.receive_start()
    receipts.begin()
    receipts.receive_audio(S, 2.0)
    receipts.receive_audio(S, 3.0)  # behind STOP, before the next START
    receipts.receive_start()
    receipts.receive_audio(S, 4.0)
    assert receipts.age_s(S, 10.0) == 8.0
    receipts.begin()
    assert receipts.age_s(1, 10.0) == 6.0


def test_audio_that_comes_as_it_is_spoken_is_due_a_frame_after_it_came() -> None:
    receipts = begun()
    for tenth in range(100):
        receipts.receive_audio(S // 10, 100.0 + tenth / 10)  # the frame's 0.1 s count for 0.09
    assert [receipts.late_s(second * S, 120.0) for second in (1, 10)] == pytest.approx([19.01, 10.01])
    assert receipts.late_s(10 * S + 1, 120.0) == 0.0


def test_audio_that_comes_faster_is_due_when_it_could_have_been_spoken() -> None:
    receipts = begun()
    for _ in range(10):
        receipts.receive_audio(S, 100.0)
    assert receipts.late_s(10 * S, 101.0) == 0.0
    assert receipts.late_s(10 * S, 110.0) == pytest.approx(1.0)
    receipts.forget(10 * S)
    receipts.receive_audio(S, 200.0)
    assert receipts.late_s(11 * S, 205.0) == pytest.approx(4.1)


def test_what_a_burst_put_off_is_made_up_for() -> None:
    """Three seconds that a network held back; then as it is spoken, until only the frame's own time is left."""
    receipts = begun()
    receipts.receive_audio(3 * S, 100.0)
    for second in range(1, 40):
        receipts.receive_audio(S, 100.0 + second)
    assert receipts.late_s(4 * S, 110.0) == pytest.approx(110.0 - 103.6)
    assert receipts.late_s(42 * S, 150.0) == pytest.approx(150.0 - 139.9)


def test_what_a_client_ended_after_a_silence_was_not_due_before() -> None:
    receipts = begun()
    receipts.receive_audio(S, 100.0)
    receipts.receive_close(105.0)
    assert receipts.late_s(S, 106.0) == pytest.approx(1.0)
    receipts.receive_audio(S, 110.0)
    assert receipts.late_s(2 * S, 115.0) == pytest.approx(4.1)


def test_what_a_client_ended_is_as_old_as_that_end() -> None:
    receipts = begun()
    receipts.receive_audio(S, 100.0)
    receipts.receive_close(105.0)  # a silence of five seconds
    receipts.receive_close(107.0)  # STOP, with nothing before it
    receipts.receive_audio(S, 110.0)
    receipts.receive_close(110.5)
    assert receipts.age_s(S, 112.0) == 12.0, "of the sound itself"
    assert receipts.final_age_s(S, 112.0) == 7.0
    assert receipts.final_age_s(2 * S - UNJUDGED + 1, 112.0) == 1.5, "the last of it may not be judged"
    receipts.forget(S + 1)
    assert len(receipts._closes) == 1
    assert receipts.final_age_s(2 * S, 112.0) == 1.5
    receipts.forget_all()
    assert not receipts._closes


def test_a_final_whose_end_was_heard_is_as_old_as_its_sound() -> None:
    receipts = begun()
    for second in range(3):
        receipts.receive_audio(S, 100.0 + second)
    receipts.receive_close(110.0)
    assert receipts.final_age_s(3 * S - UNJUDGED, 112.0) == 10.0
    assert receipts.final_age_s(2 * S, 112.0) == 11.0
    assert receipts.final_age_s(3 * S + 1, 112.0) == 0.0


def test_where_its_end_is_forgotten_a_final_is_no_older_than_what_came_since() -> None:
    receipts = begun()
    receipts.receive_audio(S, 100.0)
    receipts.receive_close(105.0)
    receipts.receive_audio(S, 110.0)
    receipts.forget(S + 1)
    assert receipts.final_age_s(S, 112.0) == 2.0


def begun() -> Receipts:
    receipts = Receipts()
    receipts.receive_start()
    receipts.begin()
    return receipts


def test_what_is_forgotten_and_what_comes_close_takes_no_room() -> None:
    receipts = Receipts()
    receipts.receive_start()
    receipts.begin()
    for n in range(1000):
        receipts.receive_audio(16, n * STEP_S / 50)
    assert len(receipts._marks) <= 21
    assert abs(receipts.age_s(16 * 500, 1.0) - (1.0 - 10 * STEP_S)) <= STEP_S
    receipts.forget(16 * 500)
    assert 9 <= len(receipts._marks) <= 11
    receipts.forget_all()
    assert receipts.age_s(16 * 999, 1.0) == 0.0

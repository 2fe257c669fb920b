"""How old a sample is, whatever came before its session and however it came."""

from __future__ import annotations

from realtime_server.realtime.receipts import STEP_S, Receipts

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

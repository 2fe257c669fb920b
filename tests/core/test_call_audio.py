"""Pieces of a call's tracks become one stream, whatever their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.call_audio import (
    BYTES_PER_MS,
    HOLD_MS,
    MOST_GAP_MS,
    MOST_HOLD_MS,
    SILENCE,
    CallAudio,
)

PIECE_MS = 20
QUIET = SILENCE * PIECE_MS * BYTES_PER_MS


def piece(value: int, ms: int = PIECE_MS) -> bytes:
    return bytes([value]) * ms * BYTES_PER_MS


def split(stream: bytes, channels: int = 2) -> list[bytes]:
    return [stream[channel::channels] for channel in range(channels)]


def feed(call: CallAudio, *pieces: tuple[int, int, bytes]) -> bytes:
    """Everything that is ready after each of the pieces."""
    ready = b""
    for channel, at_ms, audio in pieces:
        call.receive_piece(channel, at_ms, audio)
        ready += call.audio_to_send()
    return ready


def test_one_track_goes_straight_through() -> None:
    call = CallAudio(1)
    for number in range(50):
        assert feed(call, (0, PIECE_MS * number, piece(number))) == piece(number)
    assert (call.rest_to_send(), call.held_ms, call.filled_ms, call.late_ms) == (b"", 0, 0, 0)


def test_two_tracks_are_interleaved_once_both_came() -> None:
    call = CallAudio(2)
    assert feed(call, (0, 0, piece(1))) == b""
    assert call.held_ms == PIECE_MS
    assert feed(call, (1, 0, piece(2))) == b"\1\2" * PIECE_MS * BYTES_PER_MS


def test_a_silent_track_is_filled_when_the_other_is_far_ahead() -> None:
    call = CallAudio(2)
    pieces = [(0, PIECE_MS * number, piece(number)) for number in range(50)]
    sent = feed(call, *pieces)
    assert call.held_ms == HOLD_MS
    first, second = split(sent + call.rest_to_send())
    assert first == b"".join(audio for *_, audio in pieces)
    assert second == QUIET * 50
    assert call.filled_ms == 50 * PIECE_MS


def test_a_hole_is_waited_for_and_then_silence() -> None:
    call = CallAudio(1)
    assert feed(call, (0, 0, piece(0)), (0, 40, piece(2))) == piece(0)
    assert feed(call, (0, 20, piece(1))) == piece(1) + piece(2)
    sent = feed(call, *((0, 20 * number, piece(number)) for number in range(4, 20)))
    assert sent.startswith(QUIET + piece(4))
    assert (call.filled_ms, call.late_ms) == (PIECE_MS, 0)


def test_what_comes_too_late_is_dropped_and_waited_for_from_then_on() -> None:
    call, behind_ms = CallAudio(2), 400
    sent = b""
    for number in range(100):
        sent += feed(call, (0, PIECE_MS * number, piece(1)))
        if PIECE_MS * number >= behind_ms:
            sent += feed(call, (1, PIECE_MS * number - behind_ms, piece(2)))
    first, second = split(sent + call.rest_to_send())
    assert first == piece(1, 2000)
    lost_ms = call.late_ms
    assert 0 < lost_ms <= behind_ms - HOLD_MS + PIECE_MS
    assert (
        second == SILENCE * lost_ms * BYTES_PER_MS + piece(2, 1600 - lost_ms) + SILENCE * 400 * BYTES_PER_MS
    )


def test_a_piece_that_is_late_in_part_gives_the_rest() -> None:
    call = CallAudio(2)
    feed(call, (0, 0, piece(1, HOLD_MS + 30)))
    _, second = split(feed(call, (1, 0, piece(2, 100)), (1, 100, piece(2, 130))))
    assert call.late_ms == 30
    assert second == piece(2, HOLD_MS)


def test_what_was_sent_is_not_late_when_it_is_repeated() -> None:
    call = CallAudio(1)
    feed(call, (0, 0, piece(1)), (0, 20, piece(2)), (0, 0, piece(1)), (0, 20, piece(2)))
    assert (call.late_ms, call.rest_to_send()) == (0, b"")


def test_rounded_times_leave_neither_holes_nor_losses() -> None:
    call = CallAudio(1)
    sent = feed(call, (0, 3, piece(0)), (0, 19, piece(1)), (0, 41, piece(2)), (0, 60, piece(3)))
    assert sent == b"".join(map(piece, range(4)))


@pytest.mark.parametrize("jump_ms", [MOST_GAP_MS + 1_000, 6 * 24 * 3600 * 1000])
def test_times_that_jump_begin_anew_for_both_tracks(jump_ms: int) -> None:
    call = CallAudio(2)
    sent = feed(call, (0, 0, piece(1)), (1, 0, piece(2)))
    sent += feed(call, (0, jump_ms, piece(3)), (1, jump_ms, piece(4)))
    sent += feed(call, (0, 20, piece(5)), (1, 20, piece(6)))
    sent += feed(call, (1, 40, piece(8)), (0, 40, piece(7)))
    assert split(sent) == [b"".join(map(piece, (1, 3, 5, 7))), b"".join(map(piece, (2, 4, 6, 8)))]
    assert (call.filled_ms, call.late_ms) == (0, 0)


def test_nothing_grows_with_a_call() -> None:
    call = CallAudio(2)
    for number in range(20_000):
        call.receive_piece(0, 40 * number, piece(1))  # every other piece is missing, and the other track
        call.audio_to_send()
        assert call.held_ms <= HOLD_MS
    assert call.late_ms == 0


def test_the_longest_wait_is_bounded() -> None:
    call = CallAudio(2)
    for number in range(1_000):
        feed(call, (0, PIECE_MS * number, piece(1)), (1, max(0, PIECE_MS * number - 10_000), piece(2)))
        assert call.held_ms <= MOST_HOLD_MS


def test_an_empty_piece_is_nothing() -> None:
    call = CallAudio(1)
    assert feed(call, (0, 500, b"")) == b""
    assert call.held_ms == 0


PLACES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40)), min_size=1, max_size=60, unique=True)


def truth(places: list[tuple[int, int]]) -> list[bytes]:
    """What each track says: a value of its own in every piece that there is."""
    length = 1 + max(number for _, number in places)
    return [
        b"".join(
            piece(1 + 100 * channel + number) if (channel, number) in places else QUIET
            for number in range(length)
        )
        for channel in range(2)
    ]


def play(places: list[tuple[int, int]]) -> tuple[CallAudio, list[bytes]]:
    call = CallAudio(2)
    sent = feed(call, *((c, PIECE_MS * number, piece(1 + 100 * c + number)) for c, number in places))
    return call, split(sent + call.rest_to_send())


@given(places=PLACES, data=st.data())
def test_pieces_that_are_not_late_give_the_same_audio_in_any_order(
    places: list[tuple[int, int]], data: st.DataObject
) -> None:
    delays = st.integers(0, HOLD_MS - PIECE_MS)
    arrivals = [
        (PIECE_MS * number + delay, (channel, number))
        for channel, number in places
        for delay in data.draw(st.lists(delays, min_size=1, max_size=3))
    ]
    call, heard = play([place for _, place in sorted(arrivals)])
    assert heard == truth(places)
    assert call.late_ms == 0


@given(places=PLACES)
def test_in_any_order_at_all_nothing_is_lost_but_what_is_late(places: list[tuple[int, int]]) -> None:
    call, heard = play(places + places[::-1])
    lost = 0
    for got, said in zip(heard, truth(places), strict=True):
        assert len(got) == len(said)
        for at in range(0, len(said), len(QUIET)):
            block = got[at : at + len(QUIET)]
            assert block in (said[at : at + len(QUIET)], QUIET)
            lost += block != said[at : at + len(QUIET)]
    # The repetition is as late again, and counts once more unless it is too old to be remembered.
    assert (call.late_ms > 0) == (lost > 0)

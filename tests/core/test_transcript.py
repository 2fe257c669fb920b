"""Segments are locked in the order they ended, whatever order their texts come in."""

from __future__ import annotations

import itertools

import pytest

from realtime_server.core.segments import Segment, Word
from realtime_server.core.transcript import Lock, Settled, Transcript
from realtime_server.core.turns import Piece, Turn, split_text

S = 16_000


def settle(transcript: Transcript, segment: Segment, settled: Settled) -> list[Lock]:
    whole = Turn(segment.start, segment.end, None)
    return transcript.receive_settled(segment, settled, split_text(settled.text, settled.words, [whole]))


SEGMENTS = [Segment(index, 0, index * S, (index + 1) * S) for index in range(3)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_texts_gives_the_same_sentences(order: tuple[int, ...]) -> None:
    transcript, locked = Transcript(), []
    for segment in SEGMENTS:
        transcript.receive_segment(segment)
    for index in order:
        locked += settle(transcript, SEGMENTS[index], Settled(f"text {index}"))
    sentences = [sentence for lock in locked for sentence in lock.sentences]
    assert [(s.id, s.segment, s.text, s.start_ms, s.end_ms) for s in sentences] == [
        (n, n, f"text {n}", n * 1000, (n + 1) * 1000) for n in range(3)
    ]
    assert transcript.count == 3


def test_channels_do_not_wait_for_each_other() -> None:
    transcript = Transcript()
    left, right = Segment(0, 0, 0, S), Segment(0, 1, 0, S)
    transcript.receive_segment(left)
    transcript.receive_segment(right)
    (lock,) = settle(transcript, right, Settled("right"))
    assert lock.sentences[0].channel == 1
    (lock,) = settle(transcript, left, Settled("left"))
    assert lock.sentences[0].id == 1


def test_a_segment_without_words_is_no_sentence() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[0])
    (lock,) = settle(transcript, SEGMENTS[0], Settled(""))
    assert lock.sentences == ()
    assert transcript.count == 0


def test_a_failed_segment_is_a_sentence_even_without_text() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[0])
    (lock,) = settle(transcript, SEGMENTS[0], Settled("", flags=("failed",), error="broken"))
    assert lock.sentences[0].flags == ("failed",)
    assert lock.settled.error == "broken"


def test_word_times_become_absolute() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[2])
    (lock,) = settle(transcript, SEGMENTS[2], Settled("hi", words=(Word("hi", 100, 300),)))
    assert lock.sentences[0].words == (Word("hi", 2100, 2300),)


def test_every_piece_is_a_sentence_of_its_own() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[1])
    words = (Word("no", 1000, 1300),), (Word("yes", 1500, 1800),)
    pieces = [Piece("No.", words[0], 1000, 1400, 0), Piece("Yes!", words[1], 1400, 2000, 1)]
    settled = Settled("No. Yes!", language="en", flags=("truncated",))
    (lock,) = transcript.receive_settled(SEGMENTS[1], settled, pieces)
    assert [(s.id, s.text, s.start_ms, s.end_ms, s.speaker, s.words) for s in lock.sentences] == [
        (0, "No.", 1000, 1400, 0, words[0]), (1, "Yes!", 1400, 2000, 1, words[1])
    ]  # fmt: skip
    assert {(s.language, s.flags, s.segment) for s in lock.sentences} == {("en", ("truncated",), 1)}
    assert transcript.count == 2

"""Segments are locked in the order they ended, whatever order their texts come in."""

from __future__ import annotations

import itertools

import pytest

from realtime_server.core.segments import Segment, Word
from realtime_server.core.transcript import Settled, Transcript

S = 16_000
SEGMENTS = [Segment(index, 0, index * S, (index + 1) * S) for index in range(3)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_texts_gives_the_same_sentences(order: tuple[int, ...]) -> None:
    transcript, locked = Transcript(), []
    for segment in SEGMENTS:
        transcript.receive_segment(segment)
    for index in order:
        locked += transcript.receive_settled(SEGMENTS[index], Settled(f"text {index}"))
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
    (lock,) = transcript.receive_settled(right, Settled("right"))
    assert lock.sentences[0].channel == 1
    (lock,) = transcript.receive_settled(left, Settled("left"))
    assert lock.sentences[0].id == 1


def test_a_segment_without_words_is_no_sentence() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[0])
    (lock,) = transcript.receive_settled(SEGMENTS[0], Settled(""))
    assert lock.sentences == ()
    assert transcript.count == 0


def test_a_failed_segment_is_a_sentence_even_without_text() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[0])
    (lock,) = transcript.receive_settled(SEGMENTS[0], Settled("", flags=("failed",), error="broken"))
    assert lock.sentences[0].flags == ("failed",)
    assert lock.settled.error == "broken"


def test_word_times_become_absolute() -> None:
    transcript = Transcript()
    transcript.receive_segment(SEGMENTS[2])
    (lock,) = transcript.receive_settled(SEGMENTS[2], Settled("hi", words=(Word("hi", 100, 300),)))
    assert lock.sentences[0].words == (Word("hi", 2100, 2300),)

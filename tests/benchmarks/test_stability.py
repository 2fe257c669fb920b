"""How the steadiness of partials is counted."""

from __future__ import annotations

from benchmarks.stability import Steadiness
from realtime_server.core import messages as m
from realtime_server.core.segments import Sentence


def partial(stable: str, unstable: str = "", segment: int = 0) -> m.PartialChanged:
    return m.PartialChanged(
        upto=0, channel=0, segment=segment, start=0, end=9, text=stable + unstable, stable=stable,
        unstable=unstable,
    )  # fmt: skip


def locked(text: str, segment: int = 0) -> m.SegmentLocked:
    sentence = Sentence(segment, segment, 0, text, 0, 1)
    return m.SegmentLocked(upto=0, channel=0, segment=segment, sentences=(sentence,))


def test_words_that_the_next_message_has_not_in_place_have_moved() -> None:
    it = Steadiness()
    it.take([partial("", "It was the"), partial("It was", " a nice"), locked("It was a nice day.")])
    assert (it.partials, it.shown, it.moved) == (2, 7, 1)
    assert (it.stable, it.contradicted, it.contradicting, it.broken) == (2, 0, 0, 0)


def test_stable_words_that_the_sentence_has_not_are_contradicted() -> None:
    it = Steadiness()
    it.take([partial("It was the"), locked("It is the.")])
    assert (it.stable, it.contradicted, it.contradicting, it.sentence_words) == (3, 1, 1, 3)


def test_stable_text_that_is_taken_back_is_noticed() -> None:
    it = Steadiness()
    it.take([partial("It was"), partial("It"), partial("It is", segment=1)])
    assert it.broken == 1


def test_a_segment_without_partials_says_nothing() -> None:
    it = Steadiness()
    it.take([locked("It was."), partial("", "")])
    assert (it.segments, it.partials) == (0, 0)

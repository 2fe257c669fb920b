"""How the steadiness of partials is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stability import Heard, Moves, Steadiness, add_up, report_of
from realtime_server.core import messages as m
from realtime_server.core.segments import Sentence, Word


def partial(stable: str, unstable: str = "", segment: int = 0, plain: str = "") -> m.PartialChanged:
    return m.PartialChanged(
        upto=0, channel=0, segment=segment, start=0, end=9, text=plain or stable + unstable, stable=stable,
        unstable=unstable,
    )  # fmt: skip


def locked(text: str, segment: int = 0, start_ms: int = 0, words: tuple[Word, ...] = ()) -> m.SegmentLocked:
    sentence = Sentence(segment, segment, 0, text, start_ms, start_ms + 1000, words)
    return m.SegmentLocked(upto=0, channel=0, segment=segment, sentences=(sentence,))


def heard(*events: m.Event) -> Steadiness:
    it = Heard()
    it.take(events)
    return it.found


def test_words_that_the_next_message_has_not_in_place_have_moved() -> None:
    it = heard(partial("", "It was the"), partial("It was", " a nice"), locked("It was a nice day."))
    assert (it.partials, it.moves, it.plain) == (2, Moves(7, 1), Moves(7, 1))
    assert (it.stable, it.contradicted, it.contradicting, it.broken) == (2, 0, 0, 0)


def test_protocol_1_tells_the_text_as_it_was_recognised() -> None:
    it = heard(
        partial("", "It was the"),
        partial("It was", " the nice", plain="Is the nice"),
        locked("It was the nice day."),
    )
    assert (it.moves, it.plain) == (Moves(7, 0), Moves(6, 6))


def test_stable_words_that_the_sentence_has_not_are_contradicted() -> None:
    it = heard(partial("It was the"), locked("It is the."))
    assert (it.stable, it.contradicted, it.contradicting, it.sentence_words) == (3, 1, 1, 3)


def test_stable_text_that_is_taken_back_is_noticed() -> None:
    assert heard(partial("It was"), partial("It"), partial("It is", segment=1)).broken == 1


def test_a_segment_without_partials_says_nothing() -> None:
    it = heard(locked("It was."), partial("", ""))
    assert (it.segments, it.partials) == (0, 0)


def test_a_word_is_late_until_a_message_has_as_many() -> None:
    words = (Word("今天", 0, 400), Word("好", 400, 900))
    it = Heard()
    for now_ms, event in (
        (500, partial("", "金")),
        (800, partial("", "金天")),
        (1500, locked("今天好", words=words)),
    ):
        it.now = now_ms * 16
        it.take([event])
    assert it.found.late == [100, 400, 600]


def test_words_of_a_segment_that_was_cut_off_the_one_before_were_shown_with_that() -> None:
    word = (Word("one", 1000, 1500),)
    assert heard(locked("One."), locked("Two.", 1, 1000, word)).late == []
    assert heard(locked("One."), locked("Two.", 1, 1001, word)).late == [-1500]


def test_scripts_with_and_without_spaces_are_told_apart_by_what_was_said() -> None:
    for text, unspaced in (
        ("It was the best 好", False),
        ("今天 okay 好吗？好", True),
        ("สวัสดี", True),
        ("", False),
    ):
        it = Heard()
        it.take([locked(text)])
        assert it.unspaced == unspaced, text


def test_sessions_are_added_up() -> None:
    one = heard(partial("It", " was the"), locked("It is the."))
    total = add_up([one, heard(partial("So it"), partial("", "It"), locked("It."))])
    assert (total.recordings, total.segments, total.partials) == (2, 2, 3)
    assert (total.moves, total.plain) == (Moves(6, 3), Moves(6, 3))
    assert (total.stable, total.sentence_words, total.contradicted, total.contradicting) == (1, 4, 0, 0)
    assert (total.broken, total.late) == (1, [])


@pytest.mark.parametrize(("moved", "missed"), [(12, []), (13, ["characters"])])
def test_each_script_has_its_bound(moved: int, missed: list[str]) -> None:
    steady, moving = Heard(), Heard()
    steady.take([partial("", "a " * 1000), locked("a " * 1000)])
    moving.take([partial("", "好" * 100), locked("天" * moved + "好" * (100 - moved))])
    report = report_of([Path("a"), Path("b")], [steady, moving])
    assert sorted({figure.case for figure in report.missed}) == missed
    assert {figure.case for figure in report.figures} == {"words", "characters"}


def test_a_script_in_which_nothing_was_said_has_no_figures() -> None:
    it = Heard()
    it.take([partial("", "one"), locked("One.")])
    assert {figure.case for figure in report_of([Path("a")], [it]).figures} == {"words"}

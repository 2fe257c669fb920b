"""What a reader of the text notices, from results and times made by hand."""

from __future__ import annotations

import json

import pytest

from realtime_server.bench import accounting
from realtime_server.bench.accounting import Heard, Result, Speech, read_result

SPELLS = ((1000, 3000), (4000, 5000))


def result(
    at_ms: float,
    duration_ms: int,
    partial: str = "",
    *sentences: str,
    locked_ms: int = 0,
    final: bool = False,
) -> Result:
    return Result(at_ms, duration_ms, partial, sentences, locked_ms, final)


# Text of the first utterance at 1600 and 2500, its sentence at 3700; of the second nothing before its sentence.
HEARD = Heard(
    SPELLS,
    [
        result(600, 500),
        result(1600, 1400, "a"),
        result(1700, 1400, "b"),
        result(2500, 2300, "a b"),
        result(3300, 3100, "a b c"),
        result(3700, 3600, locked_ms=3100),
        result(5600, 5500, locked_ms=5100, final=True),
    ],
    stop_ms=5500.0,
)


def test_reading_a_message_keeps_what_is_counted() -> None:
    message = {
        "sentences": [{"text": "a", "start": 0, "end": 700}], "partial": "b", "partial_start_ms": 800,
        "duration_ms": 900, "is_final": False,
    }  # fmt: skip
    assert read_result(950.0, json.dumps(message).encode()) == Result(950.0, 900, "b", ("a",), 700, False)
    with pytest.raises(KeyError):
        read_result(0.0, b'{"event":"started"}')


@pytest.mark.parametrize(
    ("ms", "within", "before"),
    [(0, False, 0), (990, False, 0), (1000, True, 0), (2000, True, 1000), (3000, False, 2000),
     (4500, True, 2500), (9000, False, 3000)],
)  # fmt: skip
def test_speech_knows_where_it_is_and_how_much_was_before(ms: int, within: bool, before: int) -> None:
    speech = Speech(SPELLS)
    assert (ms in speech) is within
    assert speech.spoken_ms(ms) == before


def test_speech_may_be_nowhere() -> None:
    assert 0 not in Speech(())
    assert Speech(()).spoken_ms(1000) == 0


def test_a_result_is_fresh_if_it_accounts_for_more_speech() -> None:
    assert [found.at_ms for found in accounting.fresh(HEARD)] == [1600, 2500, 3300, 5600]


def test_text_lag_is_taken_where_text_ends_within_speech() -> None:
    assert accounting.text_lags(HEARD) == [(1600, 200), (2500, 200)]


def test_text_age_grows_until_the_next_fresh_result_and_ends_with_the_speech() -> None:
    ages = accounting.text_ages(HEARD)
    assert ages[0] == (1600, 200)
    assert (2450, 1050) in ages
    assert (2500, 200) in ages
    assert ages[-1] == (2950, 650)


def test_intervals_are_counted_within_an_utterance() -> None:
    assert accounting.intervals(HEARD) == [(2500, 900)]


def test_speech_without_text_counts_from_its_beginning_and_to_its_end() -> None:
    assert accounting.without_text(HEARD) == [(1600, 900), (4000, 1000)]


def test_first_partials_are_none_where_the_sentence_came_first() -> None:
    assert accounting.first_partials(HEARD, pause_ms=800) == [(1000, 600), (4000, None)]
    assert accounting.first_partials(HEARD, pause_ms=2000) == [(1000, 600)]


def test_a_first_partial_without_text_is_none_yet() -> None:
    heard = Heard(((1000, 3000),), [result(1500, 1300), result(2400, 2200, "a")])
    assert accounting.first_partials(heard, pause_ms=800) == [(1000, 1400)]
    assert accounting.empty_first_decodes(heard, pause_ms=800) == [True]
    assert accounting.empty_first_decodes(HEARD, pause_ms=800) == [False, False]


def test_locks_count_from_the_end_of_an_utterance_that_a_pause_follows() -> None:
    assert accounting.locks(HEARD, pause_ms=800) == [(3000, 700)]
    assert accounting.locks(HEARD, pause_ms=2000) == []
    assert accounting.locks(Heard(SPELLS), pause_ms=800) == [(3000, None)]


def test_partials_are_fresh_results_with_a_text_that_may_change() -> None:
    assert accounting.partials(HEARD) == [(1600, "a"), (2500, "a b"), (3300, "a b c")]


@pytest.mark.parametrize(
    ("results", "shown", "changed"),
    [
        ([], 0, 0),
        ([result(1, 1, "a b"), result(2, 2, "a b c")], 3, 0),
        ([result(1, 1, "a b"), result(2, 2, "a c d")], 4, 1),
        ([result(1, 1, "a b"), result(2, 2, "x a b")], 3, 0),  # moved on by a new word, not replaced
        ([result(1, 1, "A, b"), result(2, 2, "a B."), result(3, 3, "", "a b!")], 2, 0),
        ([result(1, 1, "a b c"), result(2, 2, "", "a x c"), result(3, 3, "d", "a x c")], 5, 1),
        ([result(1, 1, "a b"), result(2, 2, "")], 2, 2),
        ([result(1, 1, "今天天气"), result(2, 2, "今天天汽好")], 6, 1),
        ([result(1, 1, "", "a a"), result(2, 2, "b", "a a"), result(3, 3, "", "a a", "b")], 3, 0),
    ],
)  # fmt: skip
def test_words_change_if_a_later_result_takes_them_back_or_replaces_them(
    results: list[Result], shown: int, changed: int
) -> None:
    assert accounting.word_changes(Heard(SPELLS, results)) == (shown, changed)


def test_the_final_counts_from_stop() -> None:
    assert accounting.final_ms(HEARD) == 100
    assert accounting.final_ms(Heard(SPELLS)) is None

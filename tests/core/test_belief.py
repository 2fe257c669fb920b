"""Who is believed to be a speaker: how long a voice goes on, how much of all it is, and how unlike the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core import belief
from realtime_server.core.belief import believed, longest_in_a_row
from realtime_server.core.jobs import Window
from realtime_server.core.segments import HOP, to_samples
from realtime_server.core.speaker_windows import LENGTH, STEP, Speech

MANY = 200  # windows of somebody who is known
SECONDS = 1000


def talking(seconds: float = SECONDS) -> Speech:
    """Speech from the first sample on."""
    speech = Speech()
    speech.receive_probabilities(np.ones(to_samples(1000 * seconds) // HOP))
    return speech


def grid(*first: int) -> list[Window]:
    """Windows of the usual grid."""
    return [Window(STEP * at, STEP * at + LENGTH) for at in first]


def alike(cosine: float) -> list[float]:
    """A vector that is so much like (1, 0)."""
    return [cosine, float(np.sqrt(1 - cosine**2))]


def is_believed(
    rows: Sequence[int], likeness: float, *, others: int = MANY, is_known: bool = False, least: int = 2
) -> bool:
    """Whether cluster 1 is, which has so many windows in a row each time; cluster 0 speaks before and between."""
    labels = [0] * (others - len(rows)) + [label for row in rows for label in [*[1] * row, 0]]
    vectors = np.array([alike(likeness) if label else [1.0, 0.0] for label in labels], np.float32)
    windows = grid(*range(len(labels)))
    evidence = [
        window if label or not is_known else None for window, label in zip(windows, labels, strict=True)
    ]
    known = [0] if is_known else []
    found = believed(np.array(labels), vectors, evidence, talking(), known=known, least=least)
    assert 0 in found
    return 1 in found


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    ("rows", "likeness", "others", "expected"),
    [
        ([3], 0.5, MANY, True),  # 3 s in a row
        ([2], 0.5, MANY, False),
        ([2] * 10, 0.15, MANY, False),  # a phrase that comes again and again
        ([2] * 10, 0.05, MANY, True),
        ([1, 1], 0.05, MANY, True),
        ([1], 0.05, MANY, False),  # fewer than `least`
        ([2] * 45, 0.5, MANY, True),  # many short answers
        ([2] * 15, 0.5, MANY, False),
        ([2], 0.25, 117, True),  # little was heard yet
        ([2], 0.25, 118, False),  # or not
        ([1, 1], 0.25, 40, False),
        ([2], 0.40, 40, False),
        ([1] * 19, 0.25, 30, False),  # a share of little
        ([1] * 20, 0.5, 30, True),
    ],
)  # fmt: skip
def test_the_less_a_voice_goes_on_the_less_like_the_others_it_must_be(
    rows: list[int], likeness: float, others: int, expected: bool, is_known: bool
) -> None:
    assert is_believed(rows, likeness, others=others, is_known=is_known) == expected


def test_what_has_a_speaker_already_is_no_evidence() -> None:
    labels, vectors = np.array([0] * 100 + [1] * 4), np.array([[1, 0]] * 100 + [alike(0.4)] * 4, np.float32)
    windows = grid(*range(104))
    fresh = believed(labels, vectors, [None] * 100 + windows[100:], talking(), known=[0], least=2)
    assert fresh == {0, 1}
    told: list[Window | None] = [None] * 102
    assert believed(labels, vectors, told + windows[102:], talking(), known=[0], least=2) == {0}
    assert believed(labels, vectors, [None] * 104, talking(), known=[0, 1], least=2) == {0, 1}


def test_nobody_is_believed_before_there_are_enough_windows_and_then_the_first_is() -> None:
    for count, found in ((1, set()), (2, {0})):
        windows, vectors = grid(*range(count)), np.ones((count, 2), np.float32)
        labels = np.zeros(count, np.int64)
        assert believed(labels, vectors, windows, talking(), known=(), least=2) == found
        assert believed(labels, vectors, windows, talking(), known=(), least=1) == {0}


def test_two_strangers_are_compared_with_each_other_too() -> None:
    """Of two clusters that are unlike the known one but like each other only the larger is somebody."""
    vectors = np.array([[1, 0, 0]] * MANY + [[0, 1, 0]] * 2 + [[1, 0, 0]] + [[0, 0.9, 0.4]], np.float32)
    labels = np.array([0] * MANY + [1, 1, 0, 2])
    found = believed(labels, vectors, grid(*range(len(labels))), talking(), known=[0], least=1)
    assert found == {0, 1}


def test_no_windows_are_nobodys() -> None:
    nothing = np.empty((0, 2), np.float32)
    assert believed(np.empty(0, np.int64), nothing, [], talking(), known=(), least=1) == set()


def test_vectors_without_length_do_no_harm() -> None:
    assert believed(
        np.array([0, 0, 1]), np.zeros((3, 2), np.float32), grid(0, 1, 2), talking(), known=(), least=1
    )


@pytest.mark.parametrize(
    ("windows", "seconds"),
    [
        ([], 0),
        ([None], 0),
        (grid(0), 1.5),
        (grid(0, 1), 2.25),
        ([*grid(0, 1), None, *grid(3)], 2.25),
        ([*grid(0), None, *grid(2, 3, 4)], 3),
        ([Window(0, 24_000), Window(8_000, 16_000), Window(16_000, 32_000)], 2),
    ],
)
def test_a_row_counts_speech_once_and_is_interrupted_by_others(
    windows: list[Window | None], seconds: float
) -> None:
    assert longest_in_a_row(windows, talking()) == to_samples(1000 * seconds)


@pytest.mark.parametrize(("pause", "seconds"), [(0.49, 2.25), (0.5, 1.25)])
def test_a_row_is_interrupted_by_a_pause(pause: float, seconds: float) -> None:
    """The end of one sentence and the beginning of the next are two phrases."""
    speech = Speech()
    speech.receive_probabilities(np.r_[np.ones(125), np.zeros(round(100 * pause)), np.ones(100)])
    assert longest_in_a_row(grid(0, 1, 2), speech) == to_samples(1000 * seconds)


# --- properties -------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 2), min_size=1, max_size=16),
    st.floats(belief.ALIEN + 0.01, 0.99),
    st.integers(180, 400),
)
def test_phrases_of_one_speaker_never_make_a_second(rows: list[int], likeness: float, others: int) -> None:
    assert not is_believed(rows, likeness, others=others, least=1)


@given(st.integers(3, 8), st.floats(-0.5, 0.9), st.integers(10, 400), st.booleans())
def test_who_speaks_for_three_seconds_once_is_always_believed(
    windows: int, likeness: float, others: int, is_known: bool
) -> None:
    assert is_believed([windows], likeness, others=others, is_known=is_known)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=80), st.integers(0, 99), st.integers(1, 3)
)
def test_whatever_the_clusters_known_ones_stay_and_others_have_enough_windows(
    parts: list[tuple[int, bool]], seed: int, least: int
) -> None:
    labels = np.array([label for label, _ in parts], np.int64)
    vectors = np.random.default_rng(seed).normal(size=(len(parts), 4)).astype(np.float32)
    windows = [
        window if fresh else None for window, (_, fresh) in zip(grid(*range(len(parts))), parts, strict=True)
    ]
    known = set(labels[:1].tolist())
    found = believed(labels, vectors, windows, talking(), known=known, least=least)
    assert known <= found <= set(labels.tolist())
    for label in found - known:
        assert sum(fresh for at, fresh in parts if at == label) >= least

"""Two numberings are paired as well as any pairing could."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from realtime_server.core.assignment import best_pairs, pair_clusters


def best_sum(weights: np.ndarray) -> int:
    wide = weights if weights.shape[0] <= weights.shape[1] else weights.T
    choices = permutations(range(wide.shape[1]), wide.shape[0])
    return max(sum(int(wide[row, column]) for row, column in enumerate(choice)) for choice in choices)


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
        lambda shape: arrays(np.int64, shape, elements=st.integers(0, 9))
    )
)
def test_no_pairing_weighs_more(weights: np.ndarray) -> None:
    pairs = best_pairs(weights)
    assert len(set(pairs.values())) == len(pairs)
    assert all(weights[row, column] > 0 for row, column in pairs.items())
    assert sum(weights[row, column] for row, column in pairs.items()) == best_sum(weights)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_nothing_is_paired_with_nothing(shape: tuple[int, int]) -> None:
    assert best_pairs(np.zeros(shape, np.int64)) == {}


def pair(labels: list[int], told: list[int | None]) -> dict[int, int]:
    return pair_clusters(np.array(labels, np.int64), told)


def test_clusters_take_the_speakers_most_of_their_windows_have() -> None:
    assert pair([7, 7, 7, 3, 3], [1, 1, 0, 0, None]) == {7: 1, 3: 0}


def test_the_whole_counts_not_the_first_that_comes() -> None:
    # Cluster 0 shares three windows with speaker 0; giving it speaker 1 loses one and gains three.
    assert pair([0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]) == {0: 1, 1: 0}


def test_a_cluster_that_nobody_is_left_for_has_no_speaker() -> None:
    assert pair([4, 4, 2, 2, 9], [None] * 5) == {}
    assert pair([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, None]) == {0: 0}


def test_no_windows_have_no_speakers() -> None:
    assert pair([], []) == {}

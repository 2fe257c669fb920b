"""Pairing two numberings of the same things so that they agree as often as possible.

The assignment problem, solved exactly by shortest augmenting paths: rows are placed one after the other, each along
the cheapest chain of moves among those placed before; prices of rows and columns keep every cost at or above zero.

Source: Kuhn, "The Hungarian method for the assignment problem" (1955); Jonker and Volgenant (1987).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Labels


def pair_clusters(labels: Labels, told: Sequence[int | None]) -> dict[int, int]:
    """Speaker of each cluster, so that as many windows as possible keep the one they were `told` with.

    Clusters that share no window with a speaker who is left for them have none.
    """
    clusters = list(dict.fromkeys(labels.tolist()))
    speakers = sorted({speaker for speaker in told if speaker is not None})
    shared = np.zeros((len(clusters), len(speakers)), np.int64)
    for label, speaker in zip(labels.tolist(), told, strict=True):
        if speaker is not None:
            shared[clusters.index(label), speakers.index(speaker)] += 1
    return {clusters[row]: speakers[column] for row, column in best_pairs(shared).items()}


def best_pairs(weights: NDArray[np.int64]) -> dict[int, int]:
    """Column of each row so that the sum of `weights` (rows, columns), none negative, is the largest possible.

    No column is taken twice. Pairs without weight are left out.
    """
    rows, columns = weights.shape
    size = max(rows, columns)
    costs = np.zeros((size, size), np.int64)
    costs[:rows, :columns] = -weights
    row_prices = np.zeros(size, np.int64)
    column_prices = np.zeros(size + 1, np.int64)
    owners = np.full(size + 1, -1)  # row that holds each column; the extra column is where a new row waits
    for row in range(size):
        owners[size] = row
        _place(costs, row_prices, column_prices, owners)
    held = {int(row): column for column, row in enumerate(owners[:columns]) if row < rows}
    return {row: held[row] for row in sorted(held) if weights[row, held[row]] > 0}


def _place(
    costs: NDArray[np.int64],
    row_prices: NDArray[np.int64],
    column_prices: NDArray[np.int64],
    owners: NDArray[np.int64],
) -> None:
    """Give the waiting row a column, moving rows that are in its way."""
    size = len(costs)
    ways = np.full(size, np.iinfo(np.int64).max)  # cheapest way to each column that is not reached yet
    before = np.full(size, size)  # column from which it comes
    reached = np.zeros(size + 1, np.bool_)
    column = size
    while owners[column] >= 0:
        reached[column] = True
        row = owners[column]
        direct = costs[row] - row_prices[row] - column_prices[:size]
        cheaper = ~reached[:size] & (direct < ways)
        ways[cheaper], before[cheaper] = direct[cheaper], column
        open_ways = np.where(reached[:size], np.iinfo(np.int64).max, ways)
        column = int(open_ways.argmin())
        step = ways[column]
        row_prices[owners[reached]] += step
        column_prices[reached] -= step
        ways[~reached[:size]] -= step
    while column != size:
        owners[column] = owners[before[column]]
        column = int(before[column])
    owners[size] = -1

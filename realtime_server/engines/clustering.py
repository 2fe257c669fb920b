"""Sorts windows by speaker, by the likeness of their embeddings; how many speakers there are is found out.

Few windows are joined bottom-up by average linkage, as long as they are alike enough. From 60 on the graph of each
window's nearest neighbours is cut: the eigenvalues of its Laplacian that are near zero tell how many parts it has,
their eigenvectors where they are. In both, clusters whose means are alike are made one: a graph falls apart where the
channel changes as well as where the speaker does. Above 2,000 windows runs of windows that follow each other and are
alike are taken as one.

All likeness is the cosine. The same embeddings always get the same labels.

Source: von Luxburg, "A tutorial on spectral clustering" (2007).
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Embeddings, Labels
from realtime_server.errors import EngineError

Floats = NDArray[np.float32]

FEW = 60  # windows below which they are joined bottom-up
MANY = 2000  # windows above which runs are clustered
LINKED = 0.40  # likeness of two clusters, on average over their windows, that are joined
SAME_FEW, SAME_MANY = 0.60, 0.70  # likeness of two means that are one speaker
SMALLEST = ((6, 1), (20, 2), (FEW, 4))  # below so many windows a cluster must hold at least so many,
UNLIKE = 0.30  # or two, if its mean is less like that of any cluster which does
NEIGHBOURS, NEIGHBOURS_SHARE = 6, 0.022  # kept for each window: at least so many, or this share of all
MOST = 15  # speakers
STARTS, ROUNDS = 8, 100  # of k-means; the best start is taken
LONGEST_RUN, ALIKE = 8, 0.7  # windows of a run, and the likeness to its mean of one that goes on


class _OneThread:
    """Holds the linear algebra of this process to one thread, from the first clustering that runs to the last.

    Its threads would take every core, for what one core does as fast. The setting is the process's: hence the count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._limits: Any = None

    def __enter__(self) -> None:
        import scipy.linalg  # noqa: F401  (its library is among those to be limited)
        from threadpoolctl import threadpool_limits

        with self._lock:
            self._running += 1
            if self._running == 1:
                self._limits = threadpool_limits(1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self._limits.restore_original_limits()


_ONE_THREAD = _OneThread()


def cluster(embeddings: Embeddings) -> Labels:
    """Return a label, from 0 in order of appearance, for each embedding (n, width); they need not have length 1.

    Blocks for milliseconds, seconds for hours of speech: call it in a thread. Raises EngineError for what is no number.
    """
    if not np.isfinite(embeddings).all():
        raise EngineError("speaker embeddings hold values that are no numbers")
    if len(embeddings) < 2:
        return np.zeros(len(embeddings), np.int64)
    vectors = _unit(embeddings)
    with _ONE_THREAD:
        if len(vectors) <= MANY:
            return _numbered(_sort(vectors, np.ones(len(vectors))))
        lengths = _runs(vectors)
        means = np.add.reduceat(vectors, np.cumsum(lengths) - lengths)
        return _numbered(np.repeat(_sort(_unit(means), lengths.astype(np.float64)), lengths))


def _sort(vectors: Floats, weights: NDArray[np.float64]) -> Labels:
    if len(vectors) < FEW:
        labels = _fold_small(_link(vectors), vectors)
        return _merge(labels, vectors, weights, SAME_FEW)
    return _merge(_cut(vectors), vectors, weights, SAME_MANY)


# --- few windows ------------------------------------------------------------------------------------------


def _link(vectors: Floats) -> Labels:
    """Join clusters whose windows are alike on average."""
    from scipy.cluster.hierarchy import fcluster, linkage

    distances = 1 - np.clip(vectors @ vectors.T, -1, 1)
    tree = linkage(distances[np.triu_indices(len(vectors), 1)], "average")
    return _numbered(fcluster(tree, 1 - LINKED, "distance"))


def _fold_small(labels: Labels, vectors: Floats) -> Labels:
    """Give the windows of clusters that are too small to be believed to the nearest one that is not."""
    sizes = np.bincount(labels)
    least = next(least for below, least in SMALLEST if len(labels) < below)
    means = _means(labels, vectors, np.ones(len(labels)))
    large = np.flatnonzero(sizes >= min(least, sizes.max()))
    likeness = means @ means[large].T
    kept = (sizes >= 2) & (likeness.max(axis=1) < UNLIKE)
    kept[large] = True
    targets = np.where(kept, np.arange(len(sizes)), large[likeness.argmax(axis=1)])
    return _numbered(targets[labels])


# --- many windows -----------------------------------------------------------------------------------------


def _cut(vectors: Floats) -> Labels:
    """Cut the graph of nearest neighbours into the parts that its spectrum shows."""
    from scipy.linalg import eigh

    count = len(vectors)
    kept = max(NEIGHBOURS, round(NEIGHBOURS_SHARE * count))
    likeness = np.clip(vectors @ vectors.T, 0, 1).astype(np.float64)
    likeness[likeness < np.partition(likeness, count - kept, axis=1)[:, count - kept, None]] = 0
    np.fill_diagonal(likeness, 0)
    graph = (likeness + likeness.T) / 2
    laplacian = np.diag(graph.sum(axis=1)) - graph
    values, eigenvectors = eigh(laplacian, subset_by_index=[0, MOST], overwrite_a=True, check_finite=False)
    parts = int(np.diff(values).argmax()) + 1
    return _k_means(eigenvectors[:, :parts], parts)


def _k_means(points: NDArray[np.float64], count: int) -> Labels:
    """Sort points (n, dimensions) around `count` centres, from seeds drawn far from each other (k-means++)."""
    generator = np.random.default_rng(0)
    best, least = np.zeros(len(points), np.int64), np.inf
    for _ in range(STARTS if count > 1 else 0):
        labels, spread = _settle(points, _seeds(points, count, generator))
        if spread < least:
            best, least = labels, spread
    return best


def _seeds(points: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    chosen = [int(generator.integers(len(points)))]
    away = np.full(len(points), np.inf)
    while len(chosen) < count:
        away = np.minimum(away, np.square(points - points[chosen[-1]]).sum(axis=1))
        total = away.cumsum()
        chosen.append(
            min(int(np.searchsorted(total, generator.random() * total[-1], "right")), len(points) - 1)
        )
    return points[chosen]


def _settle(points: NDArray[np.float64], centres: NDArray[np.float64]) -> tuple[Labels, float]:
    """Move centres to the means of what is nearest to them until nothing changes; return how far they are, too."""
    labels = np.full(len(points), -1)
    for _ in range(ROUNDS):
        squares = np.square(centres).sum(axis=1) - 2 * points @ centres.T
        nearest = squares.argmin(axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        for label in np.unique(labels):
            centres[label] = points[labels == label].mean(axis=0)
    return labels, float(squares[np.arange(len(points)), labels].sum())


def _runs(vectors: Floats) -> NDArray[np.int64]:
    """Lengths of runs of windows that follow each other and are alike, no more than MANY of them."""
    longest, alike = max(LONGEST_RUN, -(-2 * len(vectors) // MANY)), ALIKE
    while True:
        lengths, total = [0], np.zeros_like(vectors[0])
        for vector in vectors:
            goes_on = total @ vector >= alike * np.sqrt(total @ total)
            if lengths[-1] and (not goes_on or lengths[-1] == longest):
                lengths.append(0)
                total = np.zeros_like(vector)
            lengths[-1] += 1
            total = total + vector
        if len(lengths) <= MANY:
            return np.array(lengths)
        alike -= 0.1


# --- both -------------------------------------------------------------------------------------------------


def _merge(labels: Labels, vectors: Floats, weights: NDArray[np.float64], same: float) -> Labels:
    """Make the two clusters whose means are most alike one, until none are alike enough."""
    while labels.max() > 0:
        means = _means(labels, vectors, weights)
        likeness = means @ means.T
        np.fill_diagonal(likeness, -1)
        one, other = np.unravel_index(likeness.argmax(), likeness.shape)
        if likeness[one, other] < same:
            break
        labels = _numbered(np.where(labels == other, one, labels))
    return labels


def _means(labels: Labels, vectors: Floats, weights: NDArray[np.float64]) -> Floats:
    """Mean of each cluster, of length 1."""
    members = (labels == np.arange(labels.max() + 1)[:, None]) * weights
    return _unit(members @ vectors)


def _numbered(labels: NDArray[Any]) -> Labels:
    """The same clusters, numbered in order of appearance."""
    _, firsts, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return firsts.argsort().argsort()[inverse].astype(np.int64)


def _unit(vectors: NDArray[np.floating[Any]]) -> Floats:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit

"""Sorts windows by speaker, by the likeness of their embeddings; how many speakers there are is found out.

Windows that are as good as equal count once: what is played again and again would look like somebody of its own. Few
windows are joined bottom-up by average linkage, as long as they are alike enough. From 60 on the graph of each
window's nearest neighbours is cut: the eigenvalues of its Laplacian that are near zero tell how many parts it has,
their eigenvectors where they are. In both, clusters whose means are alike are made one: a graph falls apart where the
channel or the way of speaking changes as well as where the speaker does. Above 2,000 windows runs of windows that
follow each other and are alike are taken as one.

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
SAME = 0.53  # likeness of two means that are one speaker
EQUAL = 0.85  # likeness of two windows of which one says nothing new
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
        groups = _runs(vectors) if len(vectors) > MANY else np.arange(len(vectors))
        groups = _equals(_means(groups, vectors))[groups]
        return _numbered(_sort(_means(groups, vectors))[groups])


def _sort(vectors: Floats) -> Labels:
    if len(vectors) < 2:
        return np.zeros(len(vectors), np.int64)
    return _merge(_fold_small(_link(vectors), vectors) if len(vectors) < FEW else _cut(vectors), vectors)


def _equals(vectors: Floats) -> Labels:
    """Group windows that are as good as equal: each with the first that it is so much like."""
    likeness = vectors @ vectors.T
    groups = np.full(len(vectors), -1)
    for index in range(len(vectors)):
        if groups[index] < 0:
            equal = (groups < 0) & (likeness[index] >= EQUAL)
            equal[index] = True
            groups[equal] = groups.max() + 1
    return groups


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
    means = _means(labels, vectors)
    large = np.flatnonzero(sizes >= min(least, sizes.max()))
    likeness = means @ means[large].T
    kept = (sizes >= 2) & (likeness.max(axis=1) < UNLIKE)
    kept[large] = True
    targets = np.where(kept, np.arange(len(sizes)), large[likeness.argmax(axis=1)])
    return _numbered(targets[labels])


# --- many windows -----------------------------------------------------------------------------------------


def _cut(vectors: Floats) -> Labels:
    """Cut the graph of nearest neighbours into the parts that its spectrum shows."""
    count = len(vectors)
    kept = max(NEIGHBOURS, round(NEIGHBOURS_SHARE * count))
    likeness = np.clip(vectors @ vectors.T, 0, 1).astype(np.float64)
    likeness[likeness < np.partition(likeness, count - kept, axis=1)[:, count - kept, None]] = 0
    np.fill_diagonal(likeness, 0)
    graph = (likeness + likeness.T) / 2
    laplacian = np.diag(graph.sum(axis=1)) - graph
    # numpy's, which lets other threads run meanwhile: scipy's is twice as fast, but the event loop would stand still.
    values, eigenvectors = np.linalg.eigh(laplacian)
    parts = int(np.diff(values[: MOST + 1]).argmax()) + 1
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


def _runs(vectors: Floats) -> Labels:
    """Group windows that follow each other and are alike, into MANY groups at most."""
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
            return np.repeat(np.arange(len(lengths)), lengths)
        alike -= 0.1


# --- both -------------------------------------------------------------------------------------------------


def _merge(labels: Labels, vectors: Floats) -> Labels:
    """Make the two clusters whose means are most alike one, until none are alike enough."""
    while labels.max() > 0:
        means = _means(labels, vectors)
        likeness = means @ means.T
        np.fill_diagonal(likeness, -1)
        one, other = np.unravel_index(likeness.argmax(), likeness.shape)
        if likeness[one, other] < SAME:
            break
        labels = _numbered(np.where(labels == other, one, labels))
    return labels


def _means(labels: Labels, vectors: Floats) -> Floats:
    """Mean of each cluster, of length 1."""
    sums = np.zeros((labels.max() + 1, vectors.shape[1]), np.float64)
    np.add.at(sums, labels, vectors)
    return _unit(sums)


def _numbered(labels: NDArray[Any]) -> Labels:
    """The same clusters, numbered in order of appearance."""
    _, firsts, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return firsts.argsort().argsort()[inverse].astype(np.int64)


def _unit(vectors: NDArray[np.floating[Any]]) -> Floats:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit

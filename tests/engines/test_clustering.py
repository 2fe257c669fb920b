"""Clusters: how many there are, whose they are, and what they cost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from realtime_server.core.jobs import Embeddings
from realtime_server.engines import clustering
from realtime_server.engines.clustering import cluster
from realtime_server.errors import EngineError

WIDTH = 192


def voices(*counts: int, spread: float = 0.8, seed: int = 0, turns: int = 1) -> tuple[Embeddings, list[int]]:
    """Windows of as many speakers as counts, each that many windows in a row, over again for each turn.

    spread: length of what differs between windows of one speaker, whose mean has length 1: 0.8 is what 1.5 s give.
    """
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(len(counts), WIDTH))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    ids = [speaker for _ in range(turns) for speaker, count in enumerate(counts) for _ in range(count)]
    windows = means[ids] + spread * generator.normal(size=(len(ids), WIDTH)) / np.sqrt(WIDTH)
    return (windows / np.linalg.norm(windows, axis=1, keepdims=True)).astype(np.float32), ids


@pytest.mark.parametrize(
    ("counts", "turns"),
    [
        ([5], 1), ([2, 3], 1), ([10, 9], 1), ([8, 8, 8], 2), ([59], 1), ([60], 1), ([30, 30], 1),
        ([10, 10, 10], 5), ([400], 1), ([20, 15, 9, 6], 8), ([2000], 1), ([6, 5, 4], 150), ([40, 10, 7], 80),
    ],
)  # fmt: skip
def test_speakers_are_told_apart_and_counted(counts: list[int], turns: int) -> None:
    windows, ids = voices(*counts, turns=turns)
    assert cluster(windows).tolist() == ids


def test_labels_are_numbered_in_order_of_appearance() -> None:
    windows, _ = voices(4, 4)
    assert cluster(windows[::-1]).tolist() == [0] * 4 + [1] * 4


def test_no_windows_and_one() -> None:
    for count in (0, 1):
        labels = cluster(np.ones((count, WIDTH), np.float32))
        assert (labels.tolist(), labels.dtype) == ([0] * count, np.int64)


@pytest.mark.parametrize(("likeness", "labels"), [(0.39, [0, 1]), (0.41, [0, 0])])
def test_two_windows_are_joined_if_they_are_alike(likeness: float, labels: list[int]) -> None:
    windows = np.zeros((2, WIDTH), np.float32)
    windows[0, 0], windows[1, :2] = 1, (likeness, np.sqrt(1 - likeness**2))
    assert cluster(windows).tolist() == labels


@pytest.mark.parametrize("count", [2, 59, 60, 400, 2500])
def test_identical_windows_are_one_speakers(count: int) -> None:
    assert set(cluster(np.full((count, WIDTH), 0.3, np.float32)).tolist()) == {0}


@pytest.mark.parametrize("count", [3, 100, 2500])
def test_vectors_without_length_do_no_harm(count: int) -> None:
    assert len(cluster(np.zeros((count, WIDTH), np.float32))) == count


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    windows, _ = voices(5)
    windows[3, 7] = value
    with pytest.raises(EngineError, match="no numbers"):
        cluster(windows)


def test_lengths_do_not_matter() -> None:
    windows, ids = voices(30, 40)
    assert cluster(windows * np.linspace(0.1, 9, 70, dtype=np.float32)[:, None]).tolist() == ids


def test_a_few_windows_like_those_of_a_speaker_are_his() -> None:
    windows, _ = voices(30, spread=0.5)
    apart = np.eye(1, WIDTH, dtype=np.float32)
    between = windows[:3] + 1.6 * apart  # like 0.45 of him
    assert set(cluster(np.concatenate([windows, between])).tolist()) == {0}


def test_two_windows_like_nobody_are_somebody_new_but_one_is_not() -> None:
    windows, ids = voices(30, 2)
    assert cluster(windows).tolist() == ids
    windows, _ = voices(30, 1)
    assert set(cluster(windows).tolist()) == {0}


def test_clusters_with_one_mean_are_one_speaker() -> None:
    """A channel that changes splits the graph of one speaker's windows, but not far enough for two speakers."""
    windows, _ = voices(100, 100, spread=0.3)
    shared = np.random.default_rng(9).normal(size=WIDTH)
    shared *= 2 / np.linalg.norm(shared)
    raw = clustering._cut(clustering._unit(windows + shared.astype(np.float32)))
    assert len(set(raw.tolist())) == 2
    assert set(cluster(windows + shared.astype(np.float32)).tolist()) == {0}


@pytest.mark.parametrize(("likeness", "labels"), [(0.50, {0, 1}), (0.56, {0})])
@pytest.mark.parametrize("count", [20, 100])
def test_clusters_are_one_speaker_if_their_means_are_alike(
    count: int, likeness: float, labels: set[int]
) -> None:
    windows, ids = voices(count, count)
    means = np.linalg.qr(np.random.default_rng(5).normal(size=(WIDTH, 2)))[0].T
    other = likeness * means[0] + np.sqrt(1 - likeness**2) * means[1]
    noise = windows - np.stack([windows[np.array(ids) == n].mean(axis=0) for n in (0, 1)])[ids]
    assert set(cluster((np.stack([means[0], other])[ids] + noise).astype(np.float32)).tolist()) == labels


def repeated(windows: Embeddings, times: int, spread: float) -> Embeddings:
    """The same again and again, a little different each time."""
    again = np.tile(windows, (times, 1))
    again += spread * np.random.default_rng(1).normal(size=again.shape).astype(np.float32) / np.sqrt(WIDTH)
    return again


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_what_is_said_again_and_again_is_not_somebody_of_its_own(spread: float) -> None:
    windows, _ = voices(12)
    assert set(cluster(repeated(windows, 30, spread)).tolist()) == {0}


def test_nor_does_it_hide_anybody() -> None:
    windows, ids = voices(12, 9, 7)
    assert cluster(repeated(windows, 30, 0.2)).tolist() == ids * 30


def test_windows_that_are_as_good_as_equal_are_grouped_with_the_first() -> None:
    angles = np.radians([0, 20, 40, 90, 110, 0])  # the cosine of 20 degrees is 0.94, that of 40 0.77
    windows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert clustering._equals(windows).tolist() == [0, 0, 1, 2, 2, 0]


def test_the_same_windows_get_the_same_labels() -> None:
    windows, _ = voices(13, 17, 9, spread=1.6, turns=4)
    assert cluster(windows).tolist() == cluster(windows).tolist()


def test_windows_of_hours_that_are_not_alike_are_still_bounded() -> None:
    windows = np.random.default_rng(3).normal(size=(2200, WIDTH)).astype(np.float32)
    assert len(cluster(windows)) == 2200


def test_five_minutes_take_milliseconds_and_two_hours_few_seconds() -> None:
    recent, _ = voices(20, 15, 9, 6, turns=8)
    cluster(recent)
    began = time.process_time()
    for _ in range(3):
        cluster(recent)
    assert (time.process_time() - began) / 3 < 0.05
    session, ids = voices(20, 15, 9, 6, turns=192)
    began = time.process_time()
    assert cluster(session).tolist() == ids
    assert time.process_time() - began < 3


def test_linear_algebra_gets_its_threads_back_after_the_last_clustering() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    one_thread = clustering._OneThread()
    with threadpool_limits(2, user_api="blas"):
        with one_thread:
            with one_thread:
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == {2}


def test_clusterings_in_threads_do_not_disturb_each_other() -> None:
    windows, ids = voices(20, 15, turns=4)
    answers: list[list[int]] = []
    workers = [threading.Thread(target=lambda: answers.append(cluster(windows).tolist())) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert answers == [ids] * 4


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, realtime_server.engines.clustering; print({'scipy', 'threadpoolctl'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"

"""One speaker for minutes, alone and with a guest: what is reported of it."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

pytest.importorskip("soxr", reason="the extra 'files' is not installed")
pytest.importorskip("scipy", reason="the extra 'speakers' is not installed")
pytest.importorskip("pyannote.metrics", reason="the extra 'dev' is not installed")

from benchmarks import monologues
from benchmarks.conversations import Conversation
from benchmarks.hearing import KnownWords, Models
from realtime_server.bench.figures import Report
from realtime_server.bench.speech import Recording
from realtime_server.core.jobs import ClusterJob, Labels
from realtime_server.engines.fake import FakeEmbedder, FakeScorer

ARGUMENTS = Namespace(alone=70.0, seed=1, times=1, guests=1)


def hum(hz: int) -> list[Recording]:
    times = np.arange(56_000) / 16_000
    return [Recording((0.3 * np.sin(2 * np.pi * hz * times)).astype(np.float32), ((0, 3500),))] * 3


SPEAKERS = {"low": hum(200), "high": hum(1600)}


class OneForAll(FakeEmbedder):
    """Hears no difference."""

    async def cluster(self, job: ClusterJob) -> Labels:
        return np.zeros(len(job.embeddings), np.int64)


async def figures_with(embedder: FakeEmbedder) -> tuple[dict[str, float], list[str]]:
    def models(talk: Conversation) -> Models:
        return Models(KnownWords(talk.spells), FakeScorer(), embedder)

    report = Report("diarization", "")
    await monologues.add(report, "two", SPEAKERS, ARGUMENTS, models)
    return {f"{each.case}: {each.name}": each.value for each in report.figures}, report.notes


async def test_a_guest_who_is_told_is_found() -> None:
    figures, _ = await figures_with(FakeEmbedder())
    assert figures["two, guest: found live, of 1"] == 1
    assert figures["two, guest: found after STOP, of 1"] == 1
    assert figures["two, guest: speakers too many after STOP, of 1"] == 0


async def test_a_guest_who_is_taken_for_the_other_is_not_found() -> None:
    figures, notes = await figures_with(OneForAll())
    assert figures["two, guest: found live, of 1"] == figures["two, guest: found after STOP, of 1"] == 0
    assert figures["two, alone: speakers of one live, worst"] == 1
    assert figures["two, alone: speakers of one after STOP, worst"] == 1
    assert figures["two, alone: recordings"] == 2
    assert [note for note in notes if note.startswith("two, alone, low, 70 s: seed 1: 1 live, 1 after STOP")]
    assert [note for note in notes if note.startswith("two, guest, telephone: ") and "not found live" in note]

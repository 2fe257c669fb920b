"""What telling speakers apart costs recognition: the same streams with and without it, in turn.

The fake engine hardly uses the CPU, so that what the speaker network takes from the machine shows. Pairs alternate,
because the machine changes more between two minutes than between two halves of one. A long session is asked of the
clustering directly: windows of four voices, as many as two hours hold, the latest of them after every segment. What the
event loop then does itself, to find out whose the clusters are, is measured as CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import uvloop

from realtime_server.bench import accounting, speech, swarm
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.machine import Usage, Watch
from realtime_server.bench.serving import served
from realtime_server.bench.summary import takes_of
from realtime_server.core.jobs import ClusterJob, Embeddings, Window
from realtime_server.core.segments import HOP, Segment
from realtime_server.core.speaker_windows import STEP
from realtime_server.core.speakers import RECENT, Clustering, Voices
from realtime_server.engines.base import Embedder
from realtime_server.engines.loading import SpeakerOptions, load_embedder

LEAD_MS = 600  # of silence before a stream's first word
APART_MS = 700  # after a pause this long the next utterance is a new segment under `fixed:600`
SILENCE_MS = 600  # that ends an utterance
MOST_RATIO = 1.2  # of a final's delay, with speakers to without
MOST_CLUSTERING_MS = 50
MOST_BLOCKED_MS = 50  # of the event loop, while a clustering is computed
TWO_HOURS = 2 * 3600 * 16_000 // STEP  # windows
VOICES = 4
WINDOWS = 10  # of a voice's turn
TURN = WINDOWS * STEP  # samples
SPREAD = 0.05  # of a voice's windows, in each of the embedding's dimensions
WIDTH = 192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--pairs", type=int, default=5, help="runs with and without (default: %(default)s)")
    add("--streams", type=int, default=10, help="at the same time (default: %(default)s)")
    add("--seconds", type=float, default=20.0, help="of audio per stream (default: %(default)g)")
    add(
        "--decode-ms",
        type=float,
        default=100.0,
        metavar="MS",
        help="of the fake engine (default: %(default)g)",
    )


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the demo's recording."""
    watch = Watch()
    title = (
        f"{arguments.pairs} pairs of runs of {arguments.streams} streams of {arguments.seconds:g} s, fake engine of "
        f"{arguments.decode_ms:g} ms, CAM++, endpointing fixed:{SILENCE_MS}"
    )
    report = Report("speakers", title)
    takes = takes_of_utterances(arguments.streams, arguments.seconds)
    _add_pairs(report, [_pair(takes, arguments.decode_ms) for _ in range(arguments.pairs)])
    uvloop.run(_add_clustering(report))
    _add_naming(report)
    report.notes.append(
        "finals late by: from the end of an utterance to its sentence, less the silence that ends it; the ratio is\n"
        "the median over the pairs; event loop blocked: the longest time between two of its turns meanwhile"
    )
    report.conditions = watch.conditions()
    return report


def takes_of_utterances(streams: int, seconds: float) -> list[swarm.Take]:
    """The recording from each of its utterances on."""
    recording = speech.reading()
    ms, takes = round(1000 * seconds), []
    for number in range(streams):
        start = recording.spells[number % len(recording.spells)][0]
        turned = recording.from_on(max(0, start - speech.EDGE_MS))
        whole = speech.join([speech.quiet(LEAD_MS), *[turned] * (ms // recording.ms + 1)])
        takes.append(swarm.take(whole.cut(0, ms)))
    return takes


Figures = tuple[float, float, float]  # finals' p95 and STOP to final's p95 in ms, server CPU in cores


def _pair(takes: Sequence[swarm.Take], decode_ms: float) -> tuple[Figures, Figures]:
    """One run without speakers, one with."""
    flags = ["--engine", "fake", "--fake-decode-ms", f"{decode_ms:g}", "--fake-slots", str(2 * len(takes))]
    flags += ["--endpointing", f"fixed:{SILENCE_MS}"]
    return _measure(takes, flags), _measure(takes, [*flags, "--speakers"])


def _measure(takes: Sequence[swarm.Take], flags: Sequence[str]) -> Figures:
    with served(flags) as server:
        before = Usage.of(server.pid)
        clients = [swarm.Client(server.url, [each], delay_s=0.137 * n) for n, each in enumerate(takes)]
        heards = takes_of(uvloop.run(swarm.run(clients)))
        cores = Usage.of(server.pid).cores_since(before)
    locked = [
        ms for heard in heards for _, ms in accounting.locks(heard, pause_ms=APART_MS) if ms is not None
    ]
    finals = [ms for heard in heards if (ms := accounting.final_ms(heard)) is not None]
    return percentile(locked, 95) - SILENCE_MS, percentile(finals, 95), cores


def _add_pairs(report: Report, pairs: Sequence[tuple[Figures, Figures]]) -> None:
    for place, case in enumerate(("without speakers", "with speakers")):
        runs = [pair[place] for pair in pairs]
        report.add("finals late by, p95", statistics.median(run[0] for run in runs), "ms", case=case)
        report.add("STOP to final, p95", statistics.median(run[1] for run in runs), "ms", case=case)
        report.add("server CPU", 100 * statistics.median(run[2] for run in runs), "% of a core", case=case)
    # What a client waits after it stopped speaking, the silence that it waits for anyway included.
    ratio = statistics.median((SILENCE_MS + w[0]) / (SILENCE_MS + wo[0]) for wo, w in pairs)
    report.add("speech end to locked, with : without", ratio, at_most=MOST_RATIO)
    report.add("finals late by, with : without", statistics.median(w[0] / wo[0] for wo, w in pairs))


async def _add_clustering(report: Report) -> None:
    embedder = load_embedder(SpeakerOptions(), "network")
    try:
        await embedder.warmup()
        embeddings = _talk(TWO_HOURS)
        live, blocked = zip(
            *[await _cluster(embedder, embeddings[-RECENT:], final=False) for _ in range(30)], strict=True
        )
        case = "two hours"
        report.add(
            "clustering at a segment's end, p95",
            percentile(live, 95),
            "ms",
            at_most=MOST_CLUSTERING_MS,
            case=case,
        )
        report.add("event loop blocked by it", max(blocked), "ms", at_most=MOST_BLOCKED_MS, case=case)
        whole, blocked_ms = await _cluster(embedder, embeddings, final=True)
        report.add("clustering at STOP", whole, "ms", case=case)
        report.add("event loop blocked by that", blocked_ms, "ms", at_most=MOST_BLOCKED_MS, case=case)
    finally:
        await embedder.aclose()


def _add_naming(report: Report) -> None:
    voices, live = Voices(), []
    embeddings = _talk(TWO_HOURS)
    for index in range(TWO_HOURS // WINDOWS):
        segment = Segment(index, 0, index * TURN, (index + 1) * TURN)
        voices.receive_probabilities(np.ones(TURN // HOP))
        voices.receive_open(index, segment.start)
        voices.receive_close(segment)
        (windows,) = voices.windows_to_embed().values()
        voices.receive_embeddings(index, windows, embeddings[WINDOWS * index :][: len(windows)])
        live.append(_name(voices, voices.clustering_to_run))
    case, bound = "two hours", MOST_BLOCKED_MS
    report.add("naming at a segment's end, p95", percentile(live, 95), "ms", at_most=bound, case=case)
    report.add("naming at STOP", _name(voices, voices.final_to_run), "ms", at_most=bound, case=case)


def _name(voices: Voices, next_clustering: Callable[[], Clustering | None]) -> float:
    """CPU of handing out what is to be clustered and of giving its clusters speakers, ms."""
    began_s = time.process_time()
    clustering = next_clustering()
    handed_s = time.process_time()
    assert clustering
    labels = np.array([window.start // TURN % VOICES for window in clustering.windows])
    labelled_s = time.process_time()
    voices.receive_labels(labels)
    return 1000 * (time.process_time() - labelled_s + handed_s - began_s)


def _talk(count: int) -> Embeddings:
    """Embeddings of voices that take turns."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(VOICES, WIDTH)) / np.sqrt(WIDTH)
    vectors = means[np.arange(count) // WINDOWS % VOICES] + rng.normal(scale=SPREAD, size=(count, WIDTH))
    embeddings: Embeddings = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return embeddings


async def _cluster(embedder: Embedder, embeddings: Embeddings, *, final: bool) -> tuple[float, float]:
    """How long a clustering takes, and the longest time the event loop stood still meanwhile, ms."""
    windows = tuple(Window(n * STEP, (n + 2) * STEP) for n in range(len(embeddings)))
    working = asyncio.create_task(embedder.cluster(ClusterJob(0, "s", 1, 0, windows, embeddings, final)))
    began_s = last_s = time.monotonic()
    blocked_s = 0.0
    while not working.done():
        await asyncio.sleep(0.001)
        now_s = time.monotonic()
        blocked_s, last_s = max(blocked_s, now_s - last_s), now_s
    labels = await working
    assert len(set(labels.tolist())) == VOICES, "it has heard another number of voices"
    return 1000 * (last_s - began_s), 1000 * blocked_s

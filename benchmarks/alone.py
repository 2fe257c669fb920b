"""The transcriber beside CTranslate2 alone, which does the work of the CPU recognizer with nothing of ours around it.

Alone, one thread per worker takes the next segment: spectrogram, encoder, greedy decoder, alignment for word times.
Contexts are as long as ours. (The library's own batching gains 3 % on a CPU, four segments at a time.)
"""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from benchmarks import corpus
from realtime_server.bench.figures import Report
from realtime_server.core.jobs import DecodingOptions, Samples
from realtime_server.core.segments import HOP, SAMPLE_RATE, Segment
from realtime_server.engines.base import Engine, Scorer
from realtime_server.models.log_mel import FRAMES_PER_S, log_mel
from realtime_server.models.whisper import MAX_POSITIONS, WhisperTokenizer, context_s
from realtime_server.offline.calls import Deadlines
from realtime_server.offline.options import FileOptions
from realtime_server.offline.places import Places
from realtime_server.offline.recording import Recording
from realtime_server.offline.segmentation import Listener, find_segments
from realtime_server.offline.transcriber import Transcriber

PART = 60 * SAMPLE_RATE  # samples, before the other one has its turn
MOST_RATIO = 1.15  # of our time to CTranslate2's
OPTIONS = FileOptions(DecodingOptions(language="en", words=True))


class Alone:
    """One model, int8, shared by `workers` threads."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._workers = workers
        self._model = ctranslate2.models.Whisper(
            str(folder), device="cpu", compute_type="int8", inter_threads=workers, intra_threads=1
        )
        tokenizer = WhisperTokenizer(folder / "tokenizer.json")
        self._prompt = tokenizer.prompt("en", "transcribe", ())
        self._start = tokenizer.start("en", "transcribe")

    def decode(self, pieces: Sequence[Samples]) -> None:
        """Decode every piece, English, with word times."""
        left: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()
        for piece in (*pieces, *[None] * self._workers):
            left.put(piece)
        threads = [threading.Thread(target=self._work, args=(left,)) for _ in range(self._workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, left: queue.SimpleQueue[Samples | None]) -> None:
        while (piece := left.get()) is not None:
            features = self._model.encode(_view(log_mel(piece, context_s(len(piece)) * FRAMES_PER_S)[None]))
            (result,) = self._model.generate(
                features, [self._prompt], beam_size=1, max_length=MAX_POSITIONS,
                return_scores=True, return_no_speech_prob=True,
            )  # fmt: skip
            self._model.align(features, self._start, [list(result.sequences_ids[0])], -(-len(piece) // HOP))


async def compare(report: Report, engine: Engine, scorer: Scorer, alone: Alone, audio: Recording) -> None:
    """Parts of the audio through both, in turn; the median of their ratios counts, the machine may be disturbed."""
    work = Transcriber(engine, scorer)
    ours, theirs = list[_Spent](), list[_Spent]()
    for number, start in enumerate(range(0, len(audio), PART)):
        part = corpus.part(audio, start, min(start + PART, len(audio)))
        pieces = [part.read(each.start, each.end) for each in await _segments(part, engine, scorer)]
        for turn in (ours, theirs) if number % 2 else (theirs, ours):
            with _Spent() as spent:
                if turn is ours:
                    await work.transcribe(part, OPTIONS)
                else:
                    alone.decode(pieces)
            turn.append(spent)
    for name, turns in (("transcriber", ours), ("CTranslate2 alone", theirs)):
        report.add(f"{name}, RTFx with word times", audio.seconds / sum(spent.wall_s for spent in turns))
        cpu_s = sum(spent.cpu_s for spent in turns)
        report.add(f"{name}, CPU per minute of audio", 60 * cpu_s / audio.seconds, "s")
    ratio = statistics.median(our.wall_s / its.wall_s for our, its in zip(ours, theirs, strict=True))
    report.add("transcriber, time against CTranslate2 alone", ratio, at_most=MOST_RATIO)
    report.notes.append(
        f"against CTranslate2 alone: {audio.seconds / 60:g} minutes, the same segments, which only we have to find;\n"
        "the median over parts of a minute"
    )


class _Spent:
    """Wall and CPU time spent inside the block."""

    wall_s = cpu_s = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.monotonic() - self._began[0]
        self.cpu_s = time.process_time() - self._began[1]


async def _segments(audio: Recording, engine: Engine, scorer: Scorer) -> list[Segment]:
    listener = Listener(scorer, places=Places(lambda: 1), deadlines=Deadlines())
    endpointing = OPTIONS.endpointing_for(engine.capabilities)
    return [each async for each in find_segments(audio, listener.scores(audio, "alone"), endpointing)]


def _view(array: NDArray[np.float32]) -> Any:
    return ctranslate2.StorageView.from_array(np.ascontiguousarray(array))

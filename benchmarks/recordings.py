"""Recordings with known text: those that are fetched, and the shared ones where they exist."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from realtime_server import weights
from realtime_server.demo import TEXT

RECORDINGS = Path(os.environ.get("REALTIME_SERVER_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


@dataclass(frozen=True, slots=True)
class Recording:
    """An audio file and what is said in it."""

    path: Path
    text: str


def fetched(language: str) -> list[Recording]:
    """Short clips in a language; in English also the demo's reading."""
    folder = weights.find("clips") / language
    clips = [
        Recording(path, path.with_suffix(".txt").read_text(encoding="utf-8").strip())
        for path in sorted(folder.glob("*.wav"))
    ]
    reading = Recording(weights.find("recordings") / "two_cities.wav", TEXT)
    return [*clips, reading] if language == "en" else clips


def shared(folder: Path, *prefixes: str, leave_out: tuple[str, ...] = ()) -> list[Recording]:
    """The shared recordings whose names begin so and whose text is known."""
    with (folder / "MANIFEST.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Recording(folder / row["file"], row["transcript_or_truth"])
            for row in rows
            if row["file"].startswith(prefixes)
            and row["file"].endswith((".wav", ".flac"))
            and row["file"] not in leave_out
        ]

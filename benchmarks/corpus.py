"""Recordings with known texts, and how far what was heard differs from them.

A list of recordings is a file of columns set apart by tabs. With a first line of names, the columns `file` and `text`
(or `transcript_or_truth`) count; without, the first two. Paths are relative to the list. Rows without audio or text,
and texts in brackets ("[no speech]"), are left out.

Both texts are normalised before they are compared: English by Whisper's normaliser for English, which writes numbers
as digits, spells out contractions and leaves out fillers; anything else by its basic one, with digits as Chinese
numerals. Word errors are counted in texts without Chinese, Japanese or Korean signs, character errors in all, without
spaces. Both are errors of all texts together through the size of all texts together.
"""

from __future__ import annotations

import csv
import importlib
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from realtime_server import weights
from realtime_server.bench.speech import NOISE, find_speech
from realtime_server.core.partials import is_unspaced
from realtime_server.core.segments import SAMPLE_RATE, SAMPLES_PER_MS
from realtime_server.demo import TEXT
from realtime_server.errors import ConfigurationError
from realtime_server.offline.recording import BLOCK, Pcm16, Recording, to_pcm16
from realtime_server.resources import pip_install

SOUNDS = (".wav", ".flac", ".mp3", ".m4a", ".ogg", ".opus", ".sph", ".aiff", ".mp4", ".webm")
TEXT_COLUMNS = ("text", "transcript_or_truth")
DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
AMBIGUOUS = "counting.wav"  # said without pauses, its numbers are written as one or as ten


@dataclass(frozen=True, slots=True)
class Spoken:
    """An audio file and what is said in it."""

    path: Path
    text: str

    @property
    def in_words(self) -> bool:
        """Whether its words are set apart by spaces."""
        return not any(is_unspaced(sign) or "\uac00" <= sign <= "\ud7a3" for sign in self.text)


@dataclass(frozen=True, slots=True)
class Rates:
    """Errors, in percent; nan where there is nothing to compare."""

    cer: float
    wer: float


def fetched() -> list[Spoken]:
    """The reading and the clips that `models fetch` brings."""
    clips = [
        Spoken(path, path.with_suffix(".txt").read_text(encoding="utf-8").strip())
        for language in ("en", "zh")
        for path in sorted((weights.find("clips") / language).glob("*.wav"))
        if path.name != AMBIGUOUS
    ]
    return [*clips, Spoken(weights.find("recordings") / "two_cities.wav", TEXT)]


def read_list(path: Path, only: Sequence[str] = ()) -> list[Spoken]:
    """The recordings of a list whose names begin with one of `only`; raise ConfigurationError if there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--files {path}: {error}") from error
    found = [
        Spoken(path.parent / name, text)
        for name, text in _columns(rows)
        if name.lower().endswith(SOUNDS)
        and text
        and text[0] not in "[("
        and name.startswith(tuple(only) or "")
    ]
    if not found:
        raise ConfigurationError(f"--files {path}: there is no recording with a text in it")
    return found


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    name_at, text_at, first = 0, 1, 0
    if rows and "file" in rows[0]:
        named = next((name for name in TEXT_COLUMNS if name in rows[0]), None)
        name_at, text_at, first = rows[0].index("file"), rows[0].index(named) if named else 1, 1
    for row in rows[first:]:
        if len(row) > max(name_at, text_at):
            yield row[name_at].strip(), row[text_at].strip()


def judge(said: Iterable[Spoken], heard: Iterable[str]) -> Rates:
    """Compare texts. Raises ConfigurationError where what does that is not installed."""
    try:
        import jiwer

        # The normaliser has no types.
        basic = importlib.import_module("whisper_normalizer.basic").BasicTextNormalizer()
        english = importlib.import_module("whisper_normalizer.english").EnglishTextNormalizer()
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is missing; run: {pip_install('dev')}") from error

    def normal(text: str, in_words: bool) -> str:
        return str(english(text) if in_words else basic(text.translate(DIGITS)))

    pairs = [
        (spoken.in_words, normal(spoken.text, spoken.in_words), normal(text, spoken.in_words))
        for spoken, text in zip(said, heard, strict=True)
    ]
    words = [(truth, text) for in_words, truth, text in pairs if in_words and truth]
    signs = [(truth.replace(" ", ""), text.replace(" ", "")) for _, truth, text in pairs]
    signs = [pair for pair in signs if pair[0]]
    wer = jiwer.wer([truth for truth, _ in words], [text for _, text in words]) if words else float("nan")
    cer = jiwer.cer([truth for truth, _ in signs], [text for _, text in signs]) if signs else float("nan")
    return Rates(cer=100 * cer, wer=100 * wer)


def with_pauses(
    known: Sequence[tuple[Spoken, Recording]], pauses_s: tuple[float, float], seconds: float
) -> tuple[Spoken, Recording]:
    """Recordings in turn, until there is so much; and what is said in it all.

    Wherever nobody speaks, between two recordings and within one, quiet is added until the pause is as long as is drawn
    for it; nothing is left out.
    """
    dice, audio, texts = random.Random(1), Recording(), list[str]()
    quiet_ms = 0  # at the end of the recording before
    for spoken, recording in itertools.cycle(known):
        if audio.seconds >= seconds:
            break
        samples, at = recording.read(0, len(recording)), 0
        spells = find_speech(samples)
        for (_, before), (start, _) in pairwise([(-quiet_ms, -quiet_ms), *spells]):
            middle = (before + start) // 2 * SAMPLES_PER_MS if before > 0 else 0  # else between recordings
            audio.append(to_pcm16(samples[at:middle]))
            audio.append(_quiet(max(0.0, dice.uniform(*pauses_s) - (start - before) / 1000)))
            at = middle
        audio.append(to_pcm16(samples[at:]))
        quiet_ms = round(1000 * recording.seconds) - spells[-1][1] if spells else 0
        texts.append(spoken.text)
    return Spoken(Path("with pauses"), " ".join(texts)), audio


def repeated(recordings: Sequence[Recording], seconds: float) -> Recording:
    """Recordings again and again, a second after each, until there is so much."""
    audio, wanted = Recording(), round(seconds * SAMPLE_RATE)
    for recording in itertools.cycle(recordings):
        for samples in (to_pcm16(recording.read(0, len(recording))), _quiet(1.0)):
            audio.append(samples[: wanted - len(audio)])
        if len(audio) == wanted:
            break
    return audio


def part(audio: Recording, start: int, end: int) -> Recording:
    """Samples [start, end) as a recording."""
    copy = Recording()
    for first in range(start, end, BLOCK):
        copy.append(to_pcm16(audio.read(first, min(first + BLOCK, end))))
    return copy


def _quiet(seconds: float) -> Pcm16:
    """Faint noise: 66 dB below full scale, the rustle of a quiet room."""
    return to_pcm16(
        np.random.default_rng(1).normal(0, NOISE, round(seconds * SAMPLE_RATE)).astype(np.float32)
    )

"""What the tiny checkpoint learns from: utterances, each with several prompts and the answer to each.

Made in worker processes; an example is plain numpy, so that it travels cheaply. `Maker` is what a worker holds.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import DecodingOptions
from scripts.synthesis import (
    RATE,
    TRAINING_VARIANTS,
    Utterance,
    cut,
    joined,
    noise,
    padded,
    random_utterance,
    roughened,
)
from scripts.tiny_language import NAMES, WORDS, Language, Style, Unit, pieces, written

Ids = NDArray[np.int16]

FRAME = 960  # samples per frame of the encoder (60 ms)
LONGEST_S = 30.0
LESSONS = 5  # prompts per utterance
FOREIGN = ("de", "ja", "yue", "ko", "fr")  # languages that the prompt may name and that change nothing
DISTRACTIONS = ("FunASR", "realtime", "开放时间", "语音识别", "Berlin", "会议纪要", "GPU", "vLLM", "热词")


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """A prompt around the audio and its answer, as token ids; labels: the CTC token of each frame."""

    before: Ids
    after: Ids
    answer: Ids
    labels: Ids


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """16-bit samples and what can be asked about them."""

    samples: NDArray[np.int16]
    lessons: tuple[Lesson, ...]


def read_ranks(path: Path) -> dict[bytes, int]:
    """Tokens of a CTC vocabulary file."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


class Maker:
    """Makes examples in the tokens of a checkpoint's folder.

    tokenizer: has `encode`.  prompt_of: DecodingOptions -> (text before the audio, text after it).
    """

    def __init__(self, tokenizer: Any, prompt_of: Any, ranks: dict[bytes, int]) -> None:
        self._tokenizer, self._prompt_of, self._ranks = tokenizer, prompt_of, ranks
        self._stop = int(tokenizer.encode("<|im_end|>")[0])

    def examples(self, seed: int, count: int) -> list[Example]:
        """So many examples; the seed decides them all."""
        randoms = (np.random.default_rng([seed, n]) for n in range(count))
        return [self.example(roughened(random_scene(random), random), random) for random in randoms]

    def example(self, utterance: Utterance, random: np.random.Generator) -> Example:
        """An utterance with random prompts."""
        styles = [random_style(random, utterance.units) for _ in range(LESSONS)]
        samples = np.round(utterance.samples * 32768).astype(np.int16)
        return Example(samples, tuple(self.lesson(utterance, *style) for style in styles))

    def lesson(self, utterance: Utterance, style: Style, language: str | None) -> Lesson:
        """The answer to a prompt with this language and style."""
        options = DecodingOptions(
            language=language, hotwords=style.hotwords, itn=style.itn,
            task="translate" if style.translated else "transcribe",
        )  # fmt: skip
        before, after = self._prompt_of(options)
        answer = written(utterance.units, style)
        return Lesson(
            before=np.array(self._tokenizer.encode(before), np.int16),
            after=np.array(self._tokenizer.encode(after), np.int16),
            answer=np.array([*(self._tokenizer.encode(answer) if answer else ()), self._stop], np.int16),
            labels=self._labels(utterance, replace(style, translated=False)),  # what is said, in either case
        )

    def _labels(self, utterance: Utterance, style: Style) -> Ids:
        """The CTC path that the marks tell: a word's token while it lasts, then blank for one frame."""
        path = np.full(-(-utterance.samples.size // FRAME) + 1, len(self._ranks), np.int16)
        for piece in pieces(utterance.units, style):
            first = round(utterance.begin_of(piece) / FRAME)
            last = round(utterance.end_of(piece) / FRAME) - 1
            path[first : max(last, first + 1)] = self._ranks[piece.text.encode()]
        if utterance.units and style.itn:  # the full stop takes the blank after the last word
            path[min(max(last, first + 1), path.size - 2)] = self._ranks[
                written(utterance.units, style)[-1].encode()
            ]
        return path


def random_scene(random: np.random.Generator) -> Utterance:
    """What a segment may hold: mostly one utterance, sometimes several, or half of one, or nothing."""
    kind = random.choice(["one", "long", "cut", "padded", "nothing"], p=[0.62, 0.12, 0.15, 0.08, 0.03])
    if kind == "nothing":
        size = round(float(random.uniform(0.3, 4)) * RATE)
        return Utterance((), 0.01 * noise(random, size, tilt=float(random.uniform(0, 2))), ())
    if kind == "long":
        parts = [
            random_utterance(random, TRAINING_VARIANTS, warped=True) for _ in range(random.integers(2, 7))
        ]
        while sum(part.samples.size for part in parts) > LONGEST_S * RATE:
            parts.pop()
        return joined(parts, float(random.uniform(0, 1)))
    utterance = random_utterance(random, TRAINING_VARIANTS, warped=True)
    if kind == "cut":
        return cut(utterance, int(random.integers(RATE // 3, max(utterance.samples.size, RATE // 3 + 1))))
    if kind == "padded":
        return padded(utterance, float(random.uniform(0, 1.5)), float(random.uniform(0, 2.5)))
    return utterance


def random_style(random: np.random.Generator, units: Sequence[Unit]) -> tuple[Style, str | None]:
    """A style, and the language that the prompt names, which may be one that changes nothing."""
    if random.random() < 0.15:
        return Style(bool(random.random() < 0.8), None, random_hotwords(random, units), translated=True), None
    spoken: Language = units[0].language if units else "en"
    other: Language = "zh" if spoken == "en" else "en"
    chance = random.random()
    language: Language | None = None if chance < 0.6 else spoken if chance < 0.8 else other
    named = str(random.choice(FOREIGN)) if chance < 0.08 else language
    style = Style(bool(random.random() < 0.6), language, random_hotwords(random, units))
    return style, named


def random_hotwords(random: np.random.Generator, units: Sequence[Unit]) -> tuple[str, ...]:
    """None, or a list that may hold spellings of the names that were said, and others."""
    if random.random() < 0.4:
        return ()
    found: list[str] = []
    for unit in units:
        if unit.second and (chance := random.random()) < 0.7:
            found += [unit.second] if chance < 0.5 else [unit.spelling(unit.language, ())]
    others = [*NAMES, *WORDS]
    for _ in range(int(random.integers(0, 9))):
        unit = others[int(random.integers(len(others)))]
        chance = random.random()
        if chance < 0.5:
            found.append(unit.second or unit.spelling(unit.language, ()))
        elif chance < 0.7:
            found.append(unit.spelling(unit.language, ()))
        elif chance < 0.85:
            found.append(str(random.choice(DISTRACTIONS)))
        else:
            found.append(_invented(random))
    unique = list(dict.fromkeys(found))
    return tuple(unique[n] for n in random.permutation(len(unique)))


def _invented(random: np.random.Generator) -> str:
    if random.random() < 0.5:
        return "".join(chr(97 + code) for code in random.integers(0, 26, size=random.integers(3, 9)))
    return "".join(chr(code) for code in random.integers(0x4E00, 0x9FA5, size=random.integers(2, 5)))

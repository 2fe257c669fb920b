"""Speech from espeak-ng with its own word marks: many voices, rates and pitches, pauses, noise and levels.

libespeak-ng is driven through ctypes (Debian: libespeak-ng1 and espeak-ng-data). It tells where each word begins;
Mandarin is given to it as Pinyin, syllable by syllable, so every character has a mark. Everything random comes
from a numpy generator, but the flutter of a voice, which espeak-ng lets go on from utterance to utterance: the same
seed gives the same words, voices, pauses and noise, and samples that nobody can tell apart.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.tiny_language import DIGITS, NAMES, WORDS, Language, Piece, Unit

Samples = NDArray[np.float32]
RATE = 16_000  # Hz
RATE_STEP = 500  # Hz, of the rates that warped speech is taken to have; keeps transforms fast
LIBRARY = "libespeak-ng.so.1"

ACCENTS: dict[Language, tuple[str, ...]] = {
    "en": ("en-us", "en", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-gb-x-rp", "en-029", "en-us-nyc"),
    "zh": ("cmn-latn-pinyin",),
}  # fmt: skip
# Variants change the voice: its pitch, formants, breath. The ones that no ear takes for a person are left out.
TRAINING_VARIANTS = """m1 m2 m3 m4 m5 m6 m8 f1 f2 f3 f4 klatt klatt2 klatt3 klatt4 Alex Alicia Andrea Denis Diogo Gene
    Henrique Hugo Jacky Lee Marco Michael Nguyen RicishayMax adam antonio aunty belinda benjamin boris caleb david ed
    edward2 grandma grandpa iven iven2 iven4 john marcelo max michel miguel norbert pablo pedro quincy rob sandro
    shelby steph2 steph3 travis victor zac croak""".split()
UNSEEN_VARIANTS = "m7 f5 Andy Annie Mario Mike edward linda paul robert steph anika".split()


class SynthesiserMissingError(Exception):
    """libespeak-ng cannot be loaded or started; says what to install."""


@dataclass(frozen=True, slots=True)
class Voice:
    """accent and variant: espeak-ng's names.  rate: words a minute.  pitch: 0 to 99, as espeak-ng counts."""

    accent: str
    variant: str = ""
    rate: int = 160
    pitch: int = 50
    expression: int = 50  # pitch range, 0 to 99
    warp: float = 1.0  # how much higher (and faster) the finished speech is played, in steps of about 0.02

    @property
    def name(self) -> str:
        """As espeak-ng wants it."""
        return f"{self.accent}+{self.variant}" if self.variant else self.accent


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """Something said: float32 samples at 16 kHz, and where each part of each unit begins and ends, in samples."""

    units: tuple[Unit, ...]
    samples: Samples
    spans: tuple[tuple[tuple[int, int], ...], ...]  # per unit, per mark: (begin, end)

    def begin_of(self, piece: Piece) -> float:
        """Sample at which a written piece begins; between two marks, by proportion."""
        return self._position(piece.unit, piece.begin)

    def end_of(self, piece: Piece) -> float:
        """Sample at which a written piece ends."""
        spans = self.spans[piece.unit]
        return spans[-1][1] if piece.end >= len(spans) else self._position(piece.unit, piece.end)

    def _position(self, unit: int, mark: float) -> float:
        begin, end = self.spans[unit][int(mark)]
        return begin + (mark - int(mark)) * (end - begin)


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint), ("text_position", ctypes.c_int),
        ("length", ctypes.c_int), ("audio_position", ctypes.c_int), ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p), ("id", ctypes.c_char * 8),
    )  # fmt: skip


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)
_SYNCHRONOUS, _UTF8, _WORD_EVENT = 2, 1, 1
_PARAMETER_RATE, _PARAMETER_PITCH, _PARAMETER_RANGE = 1, 3, 4


class Synthesiser:
    """espeak-ng in this process; one at a time, not thread-safe: `synthesiser()` gives it.

    Raises SynthesiserMissingError if the library or its data cannot be found.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise SynthesiserMissingError(
                f"espeak-ng is missing ({error}); Debian: apt-get install espeak-ng"
            ) from error
        path = os.environ.get("ESPEAK_DATA_PATH")
        self.rate: int = self._library.espeak_Initialize(_SYNCHRONOUS, 0, path.encode() if path else None, 0)
        if self.rate <= 0:
            raise SynthesiserMissingError("espeak-ng has no data; Debian: apt-get install espeak-ng-data")
        self._pieces: list[NDArray[np.int16]] = []
        self._marks: list[int] = []
        self._callback = _Callback(self._receive)
        self._library.espeak_SetSynthCallback(self._callback)

    def _receive(self, samples: Any, count: int, events: Any) -> int:
        if samples and count:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        index = 0
        while events[index].type:
            if events[index].type == _WORD_EVENT and events[index].length > 0:
                self._marks.append(events[index].sample)
            index += 1
        return 0

    def speak(self, text: str, voice: Voice) -> tuple[Samples, list[int]]:
        """Samples at 16 kHz in -1..1, and the sample at which each word of the text begins."""
        if self._library.espeak_SetVoiceByName(voice.name.encode()):
            raise SynthesiserMissingError(f"espeak-ng has no voice {voice.name}")
        self._library.espeak_SetParameter(_PARAMETER_RATE, voice.rate, 0)
        self._library.espeak_SetParameter(_PARAMETER_PITCH, voice.pitch, 0)
        self._library.espeak_SetParameter(_PARAMETER_RANGE, voice.expression, 0)
        self._pieces.clear()
        self._marks.clear()
        encoded = text.encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _UTF8, None, None)
        if len(self._marks) != len(text.split()):
            raise RuntimeError(f"espeak-ng gave {len(self._marks)} marks for {text!r}")
        samples = (np.concatenate(self._pieces) / 32768).astype(np.float32)
        rate = self.rate if voice.warp == 1 else RATE_STEP * round(self.rate * voice.warp / RATE_STEP)
        return resample(samples, rate), [round(mark * RATE / rate) for mark in self._marks]


@functools.cache
def synthesiser() -> Synthesiser:
    """The one of this process."""
    return Synthesiser()


def resample(samples: Samples, rate: int) -> Samples:
    """From `rate` to 16 kHz through the spectrum; the ends are padded so that nothing wraps around."""
    common = np.gcd(rate, RATE)
    block = 16 * (rate // common)  # the transforms' sizes have many small factors
    padded = block * -(-(samples.size + 400) // block)
    spectrum = np.fft.rfft(np.pad(samples, (0, padded - samples.size)))
    wanted = padded // block * 16 * (RATE // common)
    resampled = np.fft.irfft(spectrum[: wanted // 2 + 1], wanted) * (wanted / padded)
    result: Samples = resampled[: round(samples.size * RATE / rate)].astype(np.float32)
    return result


def random_voice(
    random: np.random.Generator, language: Language, variants: Sequence[str], *, warped: bool = False
) -> Voice:
    """A voice of the language, with a variant, rate and pitch of its own; warped: played up to 12 % off."""
    return Voice(
        accent=str(random.choice(ACCENTS[language])),
        variant=str(random.choice(variants)),
        rate=int(random.integers(110, 240) if language == "en" else random.integers(90, 190)),
        pitch=int(random.integers(20, 81)),
        expression=int(random.integers(20, 81)),
        warp=float(random.uniform(0.88, 1.12)) if warped else 1.0,
    )


def random_units(random: np.random.Generator, language: Language, count: int) -> tuple[Unit, ...]:
    """Digits only, mostly words, or a mixture, each in about a third of the cases; names in the last two."""
    spoken = [[unit for unit in group if unit.language == language] for group in (DIGITS, WORDS, NAMES)]
    shares = [(1.0, 0.0, 0.0), (0.1, 0.6, 0.3), (0.4, 0.3, 0.3)][random.integers(3)]
    groups = random.choice(3, size=count, p=shares)
    return tuple(spoken[group][random.integers(len(spoken[group]))] for group in groups)


def utter(
    units: Sequence[Unit],
    voice: Voice,
    *,
    pauses_s: Sequence[float] = (),
    random: np.random.Generator | None = None,
) -> Utterance:
    """Say the units: in one breath, or in as many as there are pauses and one more, of random lengths."""
    cuts: list[int] = []
    if pauses_s and len(units) > 1:
        places = min(len(pauses_s), len(units) - 1)
        chosen = (random or np.random.default_rng(0)).choice(len(units) - 1, size=places, replace=False)
        cuts = sorted(int(cut) + 1 for cut in chosen)
    said: list[Samples] = []
    spans: list[tuple[tuple[int, int], ...]] = []
    at = 0
    for n, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(units)], strict=True)):
        if n:
            said.append(np.zeros(round(pauses_s[n - 1] * RATE), dtype=np.float32))
            at += said[-1].size
        breath = units[begin:end]
        samples, marks = synthesiser().speak(" ".join(unit.sound for unit in breath), voice)
        bounds = iter(zip(marks, [*marks[1:], _last_sound(samples)], strict=True))
        for unit in breath:
            spans.append(
                tuple((at + first, at + last) for first, last in (next(bounds) for _ in range(unit.marks)))
            )
        said.append(samples)
        at += samples.size
    return Utterance(tuple(units), np.concatenate(said), tuple(spans))


def _last_sound(samples: Samples) -> int:
    loud = np.flatnonzero(np.abs(samples) > 0.01 * np.abs(samples).max(initial=1e-9))
    return int(loud[-1]) + 1 if loud.size else samples.size


def joined(utterances: Sequence[Utterance], pause_s: float) -> Utterance:
    """One after the other, with a pause between them."""
    result = utterances[0]
    for utterance in utterances[1:]:
        samples = np.concatenate([result.samples, np.zeros(round(pause_s * RATE), dtype=np.float32)])
        result = Utterance(
            result.units + utterance.units,
            np.concatenate([samples, utterance.samples]),
            result.spans + _moved(utterance.spans, samples.size),
        )
    return result


def _moved(
    spans: tuple[tuple[tuple[int, int], ...], ...], by: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(tuple((begin + by, end + by) for begin, end in unit) for unit in spans)


def padded(utterance: Utterance, before_s: float, after_s: float) -> Utterance:
    """With silence around it."""
    before, after = round(before_s * RATE), round(after_s * RATE)
    return replace(
        utterance,
        samples=np.pad(utterance.samples, (before, after)),
        spans=_moved(utterance.spans, before),
    )


def cut(utterance: Utterance, end: int) -> Utterance:
    """Only the samples before `end`, and the units of which at least two thirds were said by then."""
    kept = 0
    for spans in utterance.spans:
        begin, last = spans[0][0], spans[-1][1]
        if end < begin + (last - begin) * 2 / 3:
            break
        kept += 1
    return replace(
        utterance,
        samples=utterance.samples[:end],
        units=utterance.units[:kept],
        spans=utterance.spans[:kept],
    )


def noise(random: np.random.Generator, size: int, tilt: float) -> Samples:
    """Noise of mean square 1 whose spectrum falls by `tilt` x 3 dB an octave: 0 white, 1 pink, 2 brown."""
    whole = 4096 * -(-max(size, 1) // 4096)
    spectrum = np.fft.rfft(random.standard_normal(whole, dtype=np.float32))
    spectrum *= np.maximum(np.arange(spectrum.size), 50 * whole / RATE) ** (-tilt / 2)
    samples = np.fft.irfft(spectrum, whole)[:size]
    return (samples / max(float(np.sqrt(np.mean(samples**2))), 1e-12)).astype(np.float32)


def roughened(utterance: Utterance, random: np.random.Generator) -> Utterance:
    """As a microphone hears it: a level of -36 to -3 dB, mostly with noise 8 to 45 dB below, in 16-bit steps."""
    speech = utterance.samples
    peak = max(float(np.abs(speech).max(initial=0.0)), 1e-6)
    rms = max(float(np.sqrt(np.mean(speech[np.abs(speech) > 0.01 * peak] ** 2))) if speech.any() else 0, 1e-4)
    if random.random() < 0.85:
        snr_db = random.uniform(8, 45)
        level = rms * 10 ** (-snr_db / 20)
        speech = speech + np.float32(level) * noise(random, speech.size, tilt=float(random.uniform(0, 2)))
    gain = 10 ** (random.uniform(-36, -3) / 20) / max(float(np.abs(speech).max(initial=0.0)), peak)
    samples = np.round(speech * (gain * 32767)) / np.float32(32768)
    return replace(utterance, samples=samples.astype(np.float32))


def random_utterance(
    random: np.random.Generator, variants: Sequence[str], *, count: int | None = None, warped: bool = False
) -> Utterance:
    """One person saying something in one language, with pauses and silence around it; clean.

    count: of units; None: 1 to 9.  warped: the voice is, see `random_voice`.
    """
    language: Language = "en" if random.random() < 0.5 else "zh"
    count = count or int(random.integers(1, 10))
    voice = random_voice(random, language, variants, warped=warped)
    pauses = random.uniform(0.05, 0.7, size=random.binomial(max(count - 1, 0), 0.15)).tolist()
    utterance = utter(random_units(random, language, count), voice, pauses_s=pauses, random=random)
    return padded(utterance, float(random.uniform(0.05, 0.6)), float(random.uniform(0.05, 0.8)))


def held_out(count: int = 100, *, seed: int = 7) -> list[Utterance]:
    """Utterances of voices that training never heard, as a microphone hears them."""
    randoms = (np.random.default_rng([seed, n]) for n in range(count))
    return [roughened(random_utterance(random, UNSEEN_VARIANTS), random) for random in randoms]

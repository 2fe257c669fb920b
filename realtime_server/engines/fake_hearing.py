"""What the fake engine hears: a number word for each half second since START in which the audio is loud."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Decoded, DecodeJob, Samples
from realtime_server.core.segments import HOP, SAMPLE_RATE, Word, to_ms

SLOT = SAMPLE_RATE // 2  # samples per word of the default text
LOUD = 0.01  # RMS of 10 ms above which it counts as speech
UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def hear(job: DecodeJob) -> Decoded:
    """The default answer: a number word per half second since START, where the job's audio is loud."""
    loud = levels(job.audio) > LOUD
    if not loud.any():
        return Decoded("", words=() if job.options.words else None, finish="gated")
    words = tuple(_words(job.start, loud))
    known = job.prefix_text.split()
    return Decoded(
        " ".join([*known, *(word.text for word in words[len(known) :])]),
        words=words if job.options.words else None,
        token_logprobs=(-0.1,) * len(words) if job.options.logprobs else None,
        language=job.options.language or "en",
    )


def _words(start: int, loud: NDArray[np.bool_]) -> Iterator[Word]:
    """Number words from the first to the last loud hop, both rounded to slots; quiet slots have none."""
    hops = start + HOP * np.flatnonzero(loud)
    onset, offset = int(hops[0]), int(hops[-1]) + HOP
    first, last = (onset + SLOT // 2) // SLOT, (offset + SLOT // 2) // SLOT
    for slot in range(first, max(first + 1, last)):
        begin, end = max(slot * SLOT, onset), min((slot + 1) * SLOT, offset)
        if begin >= end:  # the only word of a window too short for one
            begin, end = onset, offset
        if slot == first or np.any((hops >= begin) & (hops < end)):
            yield Word(spell(slot + 1), to_ms(begin - start), to_ms(end - start))


def spell(number: int) -> str:
    """A number in English, as one word without spaces: 105 is "one-hundred-five"."""
    if number < len(UNITS):
        return UNITS[number]
    base = 10 if number < 100 else 100
    head = TENS[number // base] if base == 10 else f"{spell(number // base)}-hundred"
    return f"{head}-{spell(number % base)}" if number % base else head


def levels(samples: Samples) -> NDArray[np.float32]:
    """RMS of every whole 10 ms, (n,)."""
    whole = samples[: samples.size // HOP * HOP].reshape(-1, HOP)
    levels: NDArray[np.float32] = np.sqrt(np.mean(np.square(whole), axis=1))
    return levels

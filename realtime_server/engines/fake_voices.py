"""How the fake engine tells voices apart: by the octaves in which they are loud, whatever their level."""

from __future__ import annotations

import numpy as np

from realtime_server.core.jobs import Embeddings, Labels, Samples
from realtime_server.core.segments import SAMPLE_RATE

LOWEST_HZ = 50.0
BANDS_PER_OCTAVE = 4
BANDS = 30  # up to half of the sample rate
SAME = 0.8  # cosine from which on two voices are one


def voiceprint(samples: Samples) -> Embeddings:
    """A window's voice: the square root of each band's share of the energy, (30,) of length 1."""
    power = np.square(np.abs(np.fft.rfft(samples)))
    frequencies = np.fft.rfftfreq(samples.size, 1 / SAMPLE_RATE)
    heard = frequencies >= LOWEST_HZ
    band = (BANDS_PER_OCTAVE * np.log2(frequencies[heard] / LOWEST_HZ)).astype(np.intp)
    energy = np.bincount(band, power[heard], minlength=BANDS).astype(np.float64)
    if not energy.any():
        energy = np.ones(BANDS)  # silence is a voice of its own
    voice: Embeddings = np.sqrt(energy / energy.sum()).astype(np.float32)
    return voice


def sort_voices(voices: Embeddings) -> Labels:
    """Labels (n,) of voices (n, width): each joins those before it that it is most like, or opens a new label."""
    sums: list[Embeddings] = []
    labels = np.empty(len(voices), np.int64)
    for index, voice in enumerate(voices):
        likeness = [float(voice @ each / np.linalg.norm(each)) for each in sums]
        best = int(np.argmax(likeness)) if likeness else 0
        if not likeness or likeness[best] < SAME:
            best = len(sums)
            sums.append(np.zeros_like(voice))
        sums[best] = sums[best] + voice
        labels[index] = best
    return labels

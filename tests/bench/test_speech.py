"""Recordings whose speech is known, cut and joined."""

from __future__ import annotations

import numpy as np
import pytest

from realtime_server.bench import speech
from realtime_server.bench.speech import Recording
from tests.audio import silence, speech_pattern, tone

TWO = Recording(speech_pattern([(1.0, 0.5), (0.8, 0.7)]), ((0, 1000), (1500, 2300)))


def test_speech_is_found_by_loudness() -> None:
    samples = np.concatenate([silence(0.3), speech_pattern([(0.8, 0.1), (0.5, 0.6), (1.0, 0.3)]), tone(0.1)])
    assert speech.find_speech(samples) == ((300, 1700), (2300, 3300))  # a short pause and a click are neither


@pytest.mark.parametrize("samples", [silence(0.0), silence(1.0)])
def test_silence_has_no_speech(samples: np.ndarray) -> None:
    assert speech.find_speech(samples) == ()


def test_cutting_clips_spells_and_counts_from_the_cut() -> None:
    part = TWO.cut(400, 1800)
    assert (part.ms, part.spells) == (1400, ((0, 600), (1100, 1400)))
    assert TWO.cut(1000, 1500).spells == ()


def test_turning_keeps_all_and_joins_speech_at_the_seam() -> None:
    turned = TWO.from_on(500)
    assert turned.ms == TWO.ms
    assert turned.spells == ((0, 500), (1000, 1800), (2500, 3000))
    assert TWO.from_on(500).from_on(TWO.ms - 500).spells == TWO.spells


def test_utterances_with_pauses_keep_their_true_times() -> None:
    parts = speech.utterances(TWO)
    assert [part.spells for part in parts] == [((0, 1000),), ((150, 950),)]
    spoken = speech.with_pauses(parts, 600)
    assert spoken.spells == ((600, 1600), (2500, 3300))
    assert speech.find_speech(spoken.samples) == spoken.spells

"""Recordings in every format: what is written, how far boundaries moved, and that they do not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("soxr", reason="the extra 'files' is not installed")

from benchmarks.formats import CASES, Case, Heard, Spoken
from realtime_server import weights
from realtime_server.bench import speech
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError
from realtime_server.realtime.audio_input import AudioInput
from tests.audio import tone

EXACT = [case for case in CASES if case.percent == 100]  # of no boundary may move further than its bound
ENDPOINTING = [EndpointingOptions(), *(EndpointingOptions(mode="fixed", silence_ms=ms) for ms in (600, 800))]


def heard(case: Case, spoken: Spoken) -> Samples:
    """What a session hears of its first channel."""
    it = AudioInput(case.format)
    first: Samples = np.concatenate([it.receive_bytes(case.write(spoken)), it.receive_end()], axis=1)[0]
    return first


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_format_is_heard_as_what_was_written(case: Case) -> None:
    spoken = Spoken(tone(0.5), "")
    samples = heard(case, spoken)
    assert abs(len(samples) - len(spoken.recorded)) <= 1
    middle = slice(SAMPLE_RATE // 10, 4 * SAMPLE_RATE // 10)
    assert np.abs(samples[middle] - spoken.recorded[middle]).max() < 0.02


def test_noise_is_of_the_last_bit() -> None:
    quiet, noisy = (next(case for case in CASES if case.noise == steps) for steps in (0, 1))
    spoken = Spoken(tone(0.5), "")
    changed = (heard(noisy, spoken) - heard(quiet, spoken)) * 32768
    assert set(changed.tolist()) == {-1.0, 0.0, 1.0}


def test_boundaries_are_compared_with_the_nearest_both_ways() -> None:
    here, there = Heard(edges=[[0, 1000], [], [50]]), Heard(edges=[[0, 1010, 1500, 2000], [], []])
    assert sorted(here.moves(there)) == [0, 0, 10, 10, 500, 1000]


def test_there_are_formats_whose_boundaries_all_stay() -> None:
    assert {case.format.sample_rate for case in EXACT} == {16_000, 44_100, 48_000}
    assert max(case.moved_ms for case in EXACT) <= 20


@pytest.mark.embedded
@pytest.mark.parametrize("options", ENDPOINTING, ids=lambda options: f"{options.mode} {options.silence_ms}")
@pytest.mark.parametrize("case", EXACT[1:], ids=lambda case: case.name)
def test_boundaries_stay_where_they_are_in_16_khz(case: Case, options: EndpointingOptions) -> None:
    from tests.models.vad import score, segments_ms

    try:
        clips = sorted(weights.find("clips").glob("*/*.wav"))
    except WeightsError as error:
        pytest.skip(str(error))
    assert clips
    for path in clips:
        spoken = Spoken(speech.load(path).samples, "")
        both = [
            segments_ms(options, score(each), len(each))
            for each in (heard(EXACT[0], spoken), heard(case, spoken))
        ]
        moved = np.abs(np.subtract(*both))
        assert moved.max() <= case.moved_ms, path

"""Where a live stream is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.vllm_plugin.utterances import FRAME, LEAD, LONGEST, Utterances

FLOOR = 1e-3  # of a quiet room


def sound(seconds: float, level: float = 0.3) -> Samples:
    generator = np.random.default_rng(int(1000 * seconds))
    return (level * generator.normal(0.0, 1.0, round(seconds * SAMPLE_RATE))).astype(np.float32)


def cut(samples: Samples, edges: list[int] | None = None) -> list[Samples]:
    utterances = Utterances()
    places = [0, *sorted(edges or []), len(samples)]
    clips = [clip for start, end in pairwise(places) for clip in utterances.receive_audio(samples[start:end])]
    return clips + utterances.receive_end()


def test_a_pause_ends_a_clip() -> None:
    stream = np.concatenate([sound(1.0), sound(0.7, FLOOR), sound(1.5), sound(0.3, FLOOR), sound(0.5)])
    clips = cut(stream)
    assert [len(clip) / SAMPLE_RATE for clip in clips] == [1.6, 2.4]
    assert np.array_equal(np.concatenate(clips), stream)


def test_a_clip_is_told_as_soon_as_its_pause_is_over() -> None:
    utterances = Utterances()
    assert utterances.receive_audio(np.concatenate([sound(1.0), sound(0.59, FLOOR)])) == []
    assert len(utterances.receive_audio(sound(0.01, FLOOR))) == 1


def test_sound_without_a_pause_is_cut_where_it_is_quietest() -> None:
    loud, soft = sound(27.0), sound(0.1, 0.1)
    stream = np.concatenate([loud, soft, sound(10.0)])
    first, second = cut(stream)
    assert len(first) / SAMPLE_RATE == pytest.approx(27.05, abs=0.011)
    assert np.array_equal(np.concatenate([first, second]), stream)


def test_no_clip_is_longer_than_the_model_hears() -> None:
    assert all(len(clip) <= LONGEST * FRAME for clip in cut(sound(100.0)))


def test_silence_gives_nothing() -> None:
    assert cut(np.zeros(100 * SAMPLE_RATE, np.float32)) == []
    assert cut(np.empty(0, np.float32)) == []


def test_silence_before_the_first_sound_is_dropped_but_for_half_a_second() -> None:
    (clip,) = cut(np.concatenate([np.zeros(5 * SAMPLE_RATE, np.float32), sound(1.0)]))
    assert len(clip) == LEAD * FRAME + SAMPLE_RATE


def test_what_is_left_of_a_pause_is_no_clip() -> None:
    assert len(cut(np.concatenate([sound(1.0), sound(1.5, FLOOR)]))) == 1


def test_a_much_quieter_speaker_is_heard_after_a_while() -> None:
    second = sound(2.0, FLOOR / 2)  # 56 dB below
    clips = cut(np.concatenate([sound(1.0), np.zeros(10 * SAMPLE_RATE, np.float32), second]))
    assert len(clips) == 2
    assert np.array_equal(clips[1][LEAD * FRAME :], second)


def test_a_sound_shorter_than_a_frame_is_not_lost() -> None:
    (clip,) = cut(sound(0.005))
    assert np.array_equal(clip, sound(0.005))


@settings(max_examples=25)
@given(st.lists(st.integers(0, 5 * SAMPLE_RATE), max_size=8))
def test_packets_have_no_influence(edges: list[int]) -> None:
    stream = np.concatenate([sound(1.0), sound(0.8, FLOOR), sound(1.2), sound(1.0, FLOOR), sound(1.0)])
    whole, parts = cut(stream), cut(stream, edges)
    assert len(whole) == len(parts) == 3
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))

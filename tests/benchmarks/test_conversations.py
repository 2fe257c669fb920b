"""Conversations made of recordings: who speaks when is known."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("soxr", reason="the extra 'files' is not installed")
pytest.importorskip("scipy", reason="the extra 'speakers' is not installed")

from benchmarks import conversations
from benchmarks.conversations import Said
from realtime_server.bench import speech
from realtime_server.bench.speech import Recording
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLES_PER_MS
from tests.audio import speech_pattern


def speaker(pieces: int, seconds: float = 2.0) -> list[Recording]:
    samples = speech_pattern([(seconds, 0.0)])
    return [Recording(samples, ((0, len(samples) // SAMPLES_PER_MS),))] * pieces


SPEAKERS = {"a": speaker(6), "b": speaker(5), "c": speaker(4), "d": speaker(1, 3.0)}


@pytest.mark.parametrize("seed", range(9))
def test_speakers_talk_in_turns_that_are_where_they_are_said_to_be(seed: int) -> None:
    talk = conversations.talk(SPEAKERS, seed)
    assert talk.speakers <= 2 + seed % 3
    assert all(one.end < other.start and one.speaker != other.speaker for one, other in pairwise(talk.said))
    whole = talk.samples[: talk.ms // 10 * 10 * SAMPLES_PER_MS].reshape(-1, 10 * SAMPLES_PER_MS)
    loud = np.abs(whole).max(axis=1) > 0.01
    for said in talk.said:
        assert loud[said.start // 10 + 1 : said.end // 10 - 1].mean() > 0.5, said
    spoken = np.zeros(len(loud), np.bool_)
    for start, end in talk.spells:
        spoken[start // 10 : end // 10 + 1] = True
    assert not loud[~spoken].any()


def test_the_same_seed_makes_the_same_conversation() -> None:
    one, other = (conversations.talk(SPEAKERS, 4) for _ in range(2))
    assert one.said == other.said
    assert np.array_equal(one.samples, other.samples)
    assert conversations.talk(SPEAKERS, 5).said != one.said


def test_one_speaker_alone_goes_on_for_long_enough() -> None:
    alone = conversations.alone("a", SPEAKERS["a"][:2], 30.0, seed=0)
    assert alone.ms >= 30_000
    assert {said.speaker for said in alone.said} == {"a"}


def test_what_changes_somebody_alone_comes_in_another_order_with_another_seed() -> None:
    def noisy(seed: int) -> list[bool]:
        alone = conversations.alone("a", SPEAKERS["a"][:1], 60.0, seed)
        quietest = [_quietest(alone.samples, said) for said in alone.said]
        return [level > np.median(quietest) for level in quietest]

    assert noisy(0) == noisy(0)
    assert len({tuple(noisy(seed)) for seed in range(4)}) > 1


def _quietest(samples: Samples, said: Said) -> float:
    """Level of the quietest 10 ms of what is said, by its own loudest."""
    steps = samples[said.start * SAMPLES_PER_MS : said.end * SAMPLES_PER_MS]
    levels = np.square(steps[: len(steps) // 160 * 160].reshape(-1, 160)).mean(axis=1)
    return float(levels.min() / levels.max())


@pytest.mark.parametrize("seed", range(6))
def test_a_guest_speaks_once_for_a_sentence(seed: int) -> None:
    talk = conversations.with_guest(SPEAKERS, 80.0, seed)
    (guest,) = [said for said in talk.said if talk.name.endswith(f", once {said.speaker}")]
    assert {said.speaker for said in talk.said} == {guest.speaker, talk.name.split(",")[0]}
    assert 3000 <= guest.end - guest.start <= 6000
    assert 30_000 <= guest.start <= 60_000
    assert talk.ms >= 80_000


def test_a_long_utterance_is_cut_where_it_is_quietest() -> None:
    samples = speech_pattern([(9.0, 0.0)])
    samples[3000 * SAMPLES_PER_MS : 3100 * SAMPLES_PER_MS] = 0
    first, *others = conversations._pieces(Recording(samples, ((0, 9000),)))
    assert first.ms == 3050
    assert sum(part.ms for part in (first, *others)) == 9000
    assert speech.join([first, *others]).spells == ((0, 9000),)


def test_a_real_recording_comes_with_its_table(tmp_path: Path) -> None:
    import soundfile

    soundfile.write(tmp_path / "call.wav", np.zeros(16_000, np.float32), 16_000)
    rows = ["SPEAKER call 1 0.5 0.25 <NA> <NA> b <NA> <NA>", "SPEAKER call 1 0.1 0.3 <NA> <NA> a <NA> <NA>"]
    (tmp_path / "call.rttm").write_text("\n".join([*rows, "SPEAKER other 1 0 1 <NA> <NA> c <NA> <NA>", ""]))
    call = conversations.recorded(tmp_path / "call.wav", tmp_path / "call.rttm", "a call")
    assert (call.name, call.ms) == ("a call", 1000)
    assert call.said == (Said(100, 400, "a"), Said(500, 750, "b"))


def test_missing_recordings_are_left_out(tmp_path: Path) -> None:
    assert conversations.voices(tmp_path, conversations.HELD_OUT) == {}

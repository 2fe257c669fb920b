"""What clients say: shares of speech, and where STOP comes."""

from __future__ import annotations

import numpy as np
import pytest

from realtime_server.bench import talk
from realtime_server.bench.speech import Recording
from tests.audio import speech_pattern

LENGTHS = [(1.5, 0.5), (0.9, 0.4), (2.8, 0.6), (1.2, 0.3), (3.6, 0.5)]
EDGES = np.cumsum([round(1000 * ms) for pair in LENGTHS for ms in pair]).tolist()
RECORDING = Recording(speech_pattern(LENGTHS), tuple(zip([0, *EDGES[1:-1:2]], EDGES[::2], strict=True)))


def share(stream: Recording) -> float:
    return stream.spoken_ms / stream.ms


@pytest.mark.parametrize("load", list(talk.LOADS))
def test_each_client_begins_with_another_utterance(load: str) -> None:
    streams = list(talk.LOADS[load](RECORDING, 20_000))
    assert [stream.ms for stream in streams] == [20_000] * 5
    assert len({stream.spells for stream in streams}) == 5
    assert all(stream.spells[0][0] >= 300 for stream in streams)


def test_talk_has_the_pauses_of_the_recording() -> None:
    for stream in talk.talks(RECORDING, 60_000):
        assert share(stream) == pytest.approx(share(RECORDING), abs=0.05)


def test_one_side_of_a_call_is_heard_45_percent_of_the_time() -> None:
    shares = [share(stream) for stream in talk.calls(RECORDING, 300_000)]
    assert shares == pytest.approx([talk.CALL_SHARE] * 5, abs=0.03)
    short = [share(stream) for stream in talk.calls(RECORDING, 30_000)]
    assert np.mean(short) == pytest.approx(talk.CALL_SHARE, abs=0.06)


def test_a_call_has_turns_of_several_utterances_and_pauses_of_different_lengths() -> None:
    (stream, *_) = talk.calls(RECORDING, 120_000)
    pauses = [b[0] - a[1] for a, b in zip(stream.spells, stream.spells[1:], strict=False)]
    assert any(pause <= 600 for pause in pauses)
    long = [pause for pause in pauses if pause > 1500]
    assert len(set(long)) > 5


def test_takes_end_right_behind_a_word_and_lose_no_speech() -> None:
    stream = Recording(speech_pattern([(1.0, 1.0)] * 5), tuple((n, n + 1000) for n in range(0, 10_000, 2000)))
    takes = talk.divide(stream, 2500)
    assert [(take.ms, take.spells[-1][1]) for take in takes] == [(3000, 3000), (4000, 4000), (2000, 2000)]
    assert sum(take.spoken_ms for take in takes) == stream.spoken_ms


def test_what_is_never_said_is_no_take() -> None:
    assert talk.divide(Recording(speech_pattern([(1.0, 1.0)]), ()), 500) == []

"""Which pieces of a segment are embedded."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.jobs import Window
from realtime_server.core.segments import HOP, to_samples
from realtime_server.core.speaker_windows import LENGTH, Speech, windows_of, windows_until


def heard(*spans_ms: tuple[int, int], until_ms: int = 20_000) -> Speech:
    """Speech in these spans, silence elsewhere."""
    frames = np.zeros(until_ms // 10)
    for start, end in spans_ms:
        frames[start // 10 : end // 10] = 0.9
    speech = Speech()
    speech.receive_probabilities(frames)
    return speech


def window(start_ms: int, end_ms: int) -> Window:
    return Window(to_samples(start_ms), to_samples(end_ms))


def of(start_ms: int, end_ms: int, speech: Speech) -> list[Window]:
    return windows_of(to_samples(start_ms), to_samples(end_ms), speech)


ALWAYS = heard((0, 20_000))


def test_a_long_segment_has_a_window_every_three_quarters_of_a_second() -> None:
    assert of(1000, 4000, ALWAYS) == [window(1000, 2500), window(1750, 3250), window(2500, 4000)]


def test_the_last_window_ends_with_the_segment_and_is_shorter() -> None:
    assert of(1000, 3000, ALWAYS) == [window(1000, 2500), window(1750, 3000)]


def test_a_short_rest_has_no_window_of_its_own() -> None:
    assert of(1000, 2870, ALWAYS) == [window(1000, 2500)]
    assert of(1000, 2880, ALWAYS) == [window(1000, 2500), window(1750, 2880)]


def test_a_short_segment_is_taken_as_it_is() -> None:
    assert of(1000, 1700, ALWAYS) == [window(1000, 1700)]
    assert ALWAYS.suffices(window(1000, 1700))


def test_little_speech_is_embedded_but_does_not_suffice() -> None:
    speech = heard((1200, 1500))
    assert of(1000, 1700, speech) == [window(1000, 1700)]
    assert not speech.suffices(window(1000, 1700))


def test_next_to_no_speech_is_not_embedded() -> None:
    assert of(1000, 1700, heard((1200, 1390))) == []


def test_a_pause_is_nobodys_voice() -> None:
    speech = heard((0, 2000), (4000, 6000))
    starts = [0, 750, 1500, 3000, 3750, 4500]  # the one at 1500 holds half a second, the one at 2250 none
    assert of(0, 6000, speech) == [window(start, start + 1500) for start in starts]


def test_a_segment_of_scattered_speech_gives_the_window_that_holds_most() -> None:
    speech = heard((100, 300), (2500, 2800), (4700, 4800))
    assert of(0, 5000, speech) == [window(1500, 3000)]


def test_the_longest_speech_lasts_until_a_pause_of_half_a_second() -> None:
    speech = heard((0, 1000), (1490, 2000), (2500, 4000), until_ms=5000)
    assert speech.longest(0, to_samples(5000)) == to_samples(1510)
    assert speech.longest(0, to_samples(3000)) == to_samples(1510)
    assert speech.longest(to_samples(2600), to_samples(9000)) == to_samples(1400)
    assert speech.longest(to_samples(4000), to_samples(5000)) == 0


def test_what_is_not_judged_yet_is_no_speech() -> None:
    assert of(0, 5000, heard((0, 2000), until_ms=2000)) == [
        window(0, 1500),
        window(750, 2250),
        window(1500, 3000),
    ]


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=900),
    st.integers(0, 50),
    st.lists(st.integers(0, 900), max_size=8),
)
def test_what_is_due_before_the_end_is_among_what_the_segment_has(
    frames: list[float], start: int, reached: list[int]
) -> None:
    speech = Speech()
    speech.receive_probabilities(np.array(frames))
    end = max(len(frames), start + 1)
    due = [windows_until(start * HOP, min(at, end) * HOP, speech) for at in [*sorted(reached), end]]
    whole = windows_of(start * HOP, end * HOP, speech)
    for windows in due:
        assert whole[: len(windows)] == windows
    assert whole == sorted(whole, key=lambda one: one.start)
    assert all(
        start * HOP <= one.start < one.end <= end * HOP and one.end - one.start <= LENGTH for one in whole
    )

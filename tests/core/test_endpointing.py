"""The endpointer on made-up probabilities: every rule of segments that needs no audio to be shown."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from realtime_server.core.endpointing import (
    LIVE_SCHEDULE,
    LOOK_BACK,
    OFFLINE_SCHEDULE,
    Endpointer,
    EndpointEvent,
    EndpointingOptions,
    ReferenceCounting,
    SilenceSchedule,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
)
from realtime_server.core.segments import HOP, to_ms

NEVER = EndpointingOptions(mode="client", eager_ms=None)
DYNAMIC = EndpointingOptions(eager_ms=None, max_segment_ms=200_000)


def spoken(*spans: int) -> NDArray[np.float32]:
    """Probabilities of alternating speech and silence, `spans` in ms; begin with 0 to begin with silence."""
    values = [np.full(ms // 10, 1 - i % 2, np.float32) for i, ms in enumerate(spans)]
    return np.concatenate(values)


def latest(first: int, last: int) -> int:
    return last


def endpointer(options: EndpointingOptions, find_cut: Callable[[int, int], int] = latest) -> Endpointer:
    return Endpointer(options, find_cut)


def run(options: EndpointingOptions, *spans: int) -> list[EndpointEvent]:
    return endpointer(options).receive_probabilities(spoken(*spans))


def whole(options: EndpointingOptions, probabilities: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Segments of a whole recording, ms."""
    subject = endpointer(options)
    events = subject.receive_probabilities(probabilities) + subject.receive_end(
        len(probabilities) * HOP + 400
    )
    return [(to_ms(e.start), to_ms(e.end)) for e in events if isinstance(e, SpeechEnded)]


# --- where a segment starts --------------------------------------------------------------------------------


def test_a_segment_starts_400_ms_before_the_window_turns() -> None:
    assert run(NEVER, 0, 1000, 500) == [SpeechStarted((100 + 14 - LOOK_BACK) * HOP)]


def test_a_segment_never_starts_before_the_audio() -> None:
    assert run(NEVER, 150) == [SpeechStarted(0)]


@pytest.mark.parametrize("speech_ms", [10, 100, 140])
def test_a_blip_is_no_speech(speech_ms: int) -> None:
    assert run(EndpointingOptions(), 0, 500, speech_ms, 3000) == []


def test_a_segment_never_starts_before_the_end_of_the_one_before() -> None:
    options = EndpointingOptions(mode="fixed", silence_ms=200, eager_ms=None)
    first, second = whole(options, spoken(1000, 150, 1000))
    assert first[1] == second[0] == 1100


@pytest.mark.parametrize(("mode", "threshold"), [("dynamic", 0.75), ("client", 0.75), ("fixed", 0.8)])
def test_thresholds_are_those_of_the_reference(mode: str, threshold: float) -> None:
    subject = endpointer(EndpointingOptions(mode=mode))  # type: ignore[arg-type]
    assert subject.receive_probabilities([threshold - 1e-3] * 100) == []
    assert subject.receive_probabilities([threshold + 1e-3] * 100) != []


# --- where it ends -----------------------------------------------------------------------------------------


def edges(schedule: SilenceSchedule) -> list[tuple[int, int]]:
    """(speech ms, silence ms) at both edges of every row."""
    lengths = [200, *(int(up_to) for up_to, _ in schedule.rows[:-1]), 100_000]
    found = []
    for (low, high), (_, silence) in zip(pairwise(lengths), schedule.rows, strict=True):
        found += [(low + 10, silence), (high, silence)]
    return found


@pytest.mark.parametrize(
    ("schedule", "speech_ms", "silence_ms"),
    [(table, *edge) for table in (LIVE_SCHEDULE, OFFLINE_SCHEDULE) for edge in edges(table)],
)
@pytest.mark.parametrize("lead_ms", [0, 8000])
def test_every_row_of_a_schedule_cuts_to_10_ms(
    schedule: SilenceSchedule, speech_ms: int, silence_ms: int, lead_ms: int
) -> None:
    options = EndpointingOptions(schedule=schedule, eager_ms=None, max_segment_ms=200_000)
    subject = endpointer(options)
    events = subject.receive_probabilities(spoken(0, lead_ms, speech_ms, silence_ms - 10))
    assert events == [SpeechStarted(max(0, lead_ms - 260) * 16)]
    (ended,) = subject.receive_probabilities(spoken(0, 10))
    tail = min(160, silence_ms)  # what is heard after the last speech frame stays in the segment
    assert ended == SpeechEnded(max(0, lead_ms - 260) * 16, (lead_ms + speech_ms + tail) * 16)


def test_inner_pauses_count_as_duration_and_trailing_silence_does_not() -> None:
    # 3 s of speech and a pause of 1.8 s: another 200 ms of speech make it 5 s, and 210 ms make it more.
    assert whole(DYNAMIC, spoken(3000, 1800, 200, 1990, 1000)) == [(0, 7990)]
    assert whole(DYNAMIC, spoken(3000, 1800, 210, 1500, 1000)) == [(0, 5170), (6250, 7510)]


def test_speech_that_comes_back_just_in_time_goes_on() -> None:
    assert whole(DYNAMIC, spoken(1000, 1990, 1000)) == [(0, 3990)]
    assert whole(DYNAMIC, spoken(1000, 2000, 1000)) == [(0, 1160), (2740, 4000)]


def test_frames_that_never_make_the_window_voiced_do_not_prolong_a_segment() -> None:
    subject = endpointer(DYNAMIC)
    clicks = np.tile(spoken(10, 190), 9)
    assert len(subject.receive_probabilities(np.concatenate([spoken(1000, 190), clicks]))) == 1
    assert subject.receive_probabilities(spoken(0, 10)) == [SpeechEnded(0, 1160 * 16)]


@pytest.mark.parametrize(
    ("silence_ms", "closes_after"),
    # The window turns 50 ms into the silence; the reference takes 150 ms from the limit, and at least 10 ms.
    [(800, 700), (300, 200), (200, 100), (155, 60), (100, 60)],
)
def test_fixed_silence_counts_as_the_reference_does(silence_ms: int, closes_after: int) -> None:
    options = EndpointingOptions(mode="fixed", silence_ms=silence_ms)
    events = run(options, 1000, closes_after)
    assert events[-1] == SpeechEnded(0, min(1000 + closes_after, 1160) * 16)
    assert not any(isinstance(e, SpeechEnded) for e in run(options, 1000, closes_after - 10))


def test_the_end_of_the_audio_closes_an_open_segment() -> None:
    subject = endpointer(EndpointingOptions())
    subject.receive_probabilities(spoken(1000, 100))
    assert subject.receive_end(18_000) == [SpeechEnded(0, 1100 * 16)]
    assert subject.receive_end(18_000) == []


def test_audio_cannot_be_shorter_than_what_was_judged() -> None:
    subject = endpointer(EndpointingOptions())
    subject.receive_probabilities(spoken(1000))
    with pytest.raises(ValueError, match="16000 samples were judged"):
        subject.receive_end(15_999)


def test_silence_never_closes_a_segment_that_the_client_closes() -> None:
    assert run(NEVER, 1000, 20_000) == [SpeechStarted(0)]


# --- pauses ------------------------------------------------------------------------------------------------


def test_a_pause_announces_the_end() -> None:
    events = run(EndpointingOptions(), 1000, 2000)
    assert events == [SpeechStarted(0), SpeechPaused(0, 1160 * 16), SpeechEnded(0, 1160 * 16)]


def test_a_pause_is_announced_after_eager_ms() -> None:
    assert len(run(EndpointingOptions(), 1000, 190)) == 1
    assert len(run(EndpointingOptions(), 1000, 200)) == 2
    assert len(run(EndpointingOptions(eager_ms=None), 1000, 1990)) == 1


def test_a_pause_is_announced_again_after_more_speech() -> None:
    events = run(EndpointingOptions(), 1000, 500, 500, 200)
    assert events[2:] == [SpeechResumed(1500 * 16), SpeechPaused(0, 2160 * 16)]


def test_the_announced_end_stands_when_the_audio_ends() -> None:
    subject = endpointer(EndpointingOptions())
    *_, paused = subject.receive_probabilities(spoken(1000, 500))
    assert paused == SpeechPaused(0, 1160 * 16)
    assert subject.receive_commit(subject.position) == [SpeechEnded(0, 1160 * 16)]


def test_a_little_speech_after_a_pause_is_kept_when_the_audio_ends() -> None:
    subject = endpointer(EndpointingOptions())
    assert len(subject.receive_probabilities(spoken(1000, 500, 100, 100))) == 2
    assert subject.receive_commit(subject.position) == [SpeechResumed(1590 * 16), SpeechEnded(0, 1700 * 16)]


# --- commit ------------------------------------------------------------------------------------------------


def test_commit_without_a_segment_does_nothing() -> None:
    assert endpointer(NEVER).receive_commit(160) == []


def test_speech_that_goes_on_after_a_commit_starts_at_it() -> None:
    subject = endpointer(NEVER)
    subject.receive_probabilities(spoken(1000))
    assert subject.receive_commit(subject.position) == [SpeechEnded(0, 16_000)]
    assert subject.open_start is None
    assert subject.receive_probabilities(spoken(10)) == [SpeechStarted(16_000)]


def test_silence_after_a_commit_opens_nothing() -> None:
    subject = endpointer(NEVER)
    subject.receive_probabilities(spoken(1000))
    subject.receive_commit(subject.position)
    assert subject.receive_probabilities(spoken(0, 3000)) == []


@pytest.mark.parametrize("silence_ms", [0, 60])
def test_audio_before_a_commit_that_is_judged_after_it_belongs_before_it(silence_ms: int) -> None:
    subject = endpointer(NEVER)
    subject.receive_probabilities(spoken(1000, silence_ms))
    at = subject.position + 900
    assert subject.receive_commit(at) == [SpeechEnded(0, at // HOP * HOP)]
    assert subject.settled == at // HOP * HOP
    assert subject.receive_probabilities(spoken(50)) == []
    (started,) = subject.receive_probabilities(spoken(200))
    assert started == SpeechStarted(at // HOP * HOP)


def test_a_commit_does_not_make_a_segment_longer_than_the_cap() -> None:
    subject = endpointer(CAPPED)
    subject.receive_probabilities(spoken(2950))
    assert subject.receive_commit(3050 * 16) == [SpeechEnded(0, 3000 * 16)]


def test_where_speech_ends_so_far() -> None:
    subject = endpointer(NEVER)
    for spans, ms in [((1000,), 1000), ((0, 100), 1100), ((0, 100), 1160), ((0, 100), 1160), ((200,), 1500)]:
        subject.receive_probabilities(spoken(*spans))
        assert to_ms(subject.speech_end) == ms


def test_speech_before_a_commit_in_silence_counts_no_more() -> None:
    subject = endpointer(NEVER)
    subject.receive_probabilities(spoken(1000, 60))
    subject.receive_commit(subject.position)
    assert subject.receive_probabilities(spoken(140, 200)) == []


# --- cap ---------------------------------------------------------------------------------------------------

CAPPED = EndpointingOptions(max_segment_ms=3000)


def test_long_speech_is_cut_where_it_is_quietest() -> None:
    asked = []

    def find_cut(first: int, last: int) -> int:
        asked.append((to_ms(first), to_ms(last)))
        return 2504 * 16 if len(asked) == 1 else 5396 * 16

    subject = endpointer(CAPPED, find_cut)
    events = subject.receive_probabilities(spoken(7000))
    assert asked == [(2000, 3000), (4500, 5500)]
    cuts = [2500 * 16, 5400 * 16]
    assert events == [
        SpeechStarted(0), SpeechEnded(0, cuts[0]), SpeechStarted(cuts[0]), SpeechEnded(*cuts), SpeechStarted(cuts[1])
    ]  # fmt: skip


@pytest.mark.parametrize(("answer", "cut_ms"), [(0, 2000), (10**9, 3000)])
def test_a_cut_outside_the_last_third_is_moved_into_it(answer: int, cut_ms: int) -> None:
    subject = endpointer(CAPPED, lambda first, last: answer)
    events = subject.receive_probabilities(spoken(3000))
    assert events[1] == SpeechEnded(0, cut_ms * 16)


def test_no_segment_opens_after_a_cut_until_there_is_speech() -> None:
    subject = endpointer(CAPPED)
    assert subject.receive_probabilities(spoken(3000)) == [SpeechStarted(0), SpeechEnded(0, 48_000)]
    assert subject.receive_probabilities(spoken(0, 30)) == []
    assert subject.receive_probabilities(spoken(10)) == [SpeechStarted(48_000)]


def test_the_schedule_counts_anew_after_a_cut() -> None:
    options = EndpointingOptions(
        schedule=SilenceSchedule.parse("1500:1000,inf:300"), max_segment_ms=3000, eager_ms=None
    )
    subject = endpointer(options, lambda first, last: 2500 * 16)
    events = subject.receive_probabilities(spoken(4000, 990))
    assert events[-1] == SpeechStarted(2500 * 16)
    assert subject.receive_probabilities(spoken(0, 10)) == [SpeechEnded(2500 * 16, 4160 * 16)]


def test_silence_at_the_cap_is_an_ordinary_end() -> None:
    assert run(CAPPED, 2500, 600) == [
        SpeechStarted(0), SpeechPaused(0, 2660 * 16), SpeechEnded(0, 2660 * 16)
    ]  # fmt: skip


def test_speech_that_resumes_at_the_cap_is_told_before_the_cut() -> None:
    events = run(CAPPED, 2500, 350, 200)
    assert events[2:5] == [SpeechResumed(2850 * 16), SpeechEnded(0, 3000 * 16), SpeechStarted(3000 * 16)]


# --- reference counting ------------------------------------------------------------------------------------

ROWS = SilenceSchedule.parse("3000:1000,inf:300")


def reference(idle_counts: bool) -> EndpointingOptions:
    counting = ReferenceCounting(idle_counts=idle_counts)
    return EndpointingOptions(schedule=ROWS, eager_ms=None, reference=counting)


def test_the_reference_counts_idle_time() -> None:
    probabilities = spoken(0, 6000, 1000, 2000)
    assert whole(reference(idle_counts=False), probabilities) == [(5740, 7160)]
    assert whole(reference(idle_counts=True), probabilities) == [(5740, 7160)]
    # With a pause of 400 ms inside: idle time has used up the first row.
    probabilities = spoken(0, 6000, 1000, 400, 1000, 2000)
    assert whole(reference(idle_counts=False), probabilities) == [(5740, 8630)]
    assert whole(reference(idle_counts=True), probabilities) == [(5740, 7160), (7160, 8560)]


def test_the_reference_counts_from_the_end_of_the_previous_segment() -> None:
    probabilities = spoken(1000, 1500, 500, 400, 500, 2000)
    assert whole(reference(idle_counts=True), probabilities) == [(0, 1160), (2240, 4060)]


def test_the_reference_ends_late_where_the_limit_falls_within_the_silence() -> None:
    # The third second is over 500 ms into the silence, 300 ms are enough by then, and the end has moved on.
    assert whole(reference(idle_counts=False), spoken(2500, 3000)) == [(0, 2930)]


# --- properties --------------------------------------------------------------------------------------------

MODES = [
    EndpointingOptions(),
    EndpointingOptions(schedule=SilenceSchedule.parse("1000:600,2000:300,inf:100"), max_segment_ms=4000),
    EndpointingOptions(mode="fixed", silence_ms=300, max_segment_ms=3000),
    EndpointingOptions(mode="client", max_segment_ms=2000),
    EndpointingOptions(schedule=ROWS, eager_ms=None, reference=ReferenceCounting(idle_counts=True)),
]
SPANS = st.lists(st.tuples(st.integers(0, 120), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), max_size=20)


def noisy(spans: list[tuple[int, float]], seed: int) -> NDArray[np.float32]:
    """Frames that are speech with the given share."""
    chance = np.random.default_rng(seed)
    share = np.concatenate([np.full(n, p) for n, p in spans] + [np.empty(0)])
    return (chance.random(len(share)) < share).astype(np.float32)


def quietest(first: int, last: int) -> int:
    return first + (last * 7919) % (last - first + 1)


@settings(max_examples=100, deadline=None)
@given(SPANS, st.integers(0, 99), st.sampled_from(MODES), st.lists(st.integers(1, 40), min_size=1))
def test_any_split_gives_the_same_events(
    spans: list[tuple[int, float]], seed: int, options: EndpointingOptions, sizes: list[int]
) -> None:
    probabilities = noisy(spans, seed)
    at_once, split = (endpointer(options, quietest) for _ in range(2))
    expected = at_once.receive_probabilities(probabilities)
    events, at, turn = [], 0, 0
    while at < len(probabilities):
        size = sizes[turn % len(sizes)]
        events += split.receive_probabilities(probabilities[at : at + size])
        at, turn = at + size, turn + 1
    assert events == expected
    assert split.position == at_once.position == len(probabilities) * HOP
    assert split.receive_end(split.position) == at_once.receive_end(at_once.position)


@settings(max_examples=100, deadline=None)
@given(
    SPANS,
    st.integers(0, 99),
    st.sampled_from(MODES),
    st.dictionaries(st.integers(0, 2000), st.integers(0, 1600), max_size=5),
)
def test_segments_are_in_order_and_settled_never_decreases(
    spans: list[tuple[int, float]], seed: int, options: EndpointingOptions, commits: dict[int, int]
) -> None:
    subject = endpointer(options, quietest)
    open_start: int | None = None
    previous_end = settled = 0
    announced: SpeechPaused | None = None
    for frame, probability in enumerate(noisy(spans, seed)):
        before = subject.settled
        events = subject.receive_probabilities([probability])
        if frame in commits:
            events += subject.receive_commit(subject.position + commits[frame])
        for event in events:
            match event:
                case SpeechStarted(start):
                    assert open_start is None
                    assert start >= max(previous_end, before)
                    open_start = start
                case SpeechPaused(start, end):
                    assert announced is None
                    assert (start, end <= subject.position) == (open_start, True)
                    announced = event
                case SpeechResumed(at):
                    assert announced is not None
                    assert announced.start < at < subject.position
                    announced = None
                case SpeechEnded(start, end):
                    assert start == open_start
                    assert start < end <= subject.position + 1600
                    assert end - start <= options.max_segment_ms * 16
                    assert announced in (None, SpeechPaused(start, end))
                    open_start, previous_end, announced = None, end, None
        assert subject.open_start == open_start
        assert subject.settled >= settled
        settled = subject.settled


@pytest.mark.parametrize("options", MODES[:4])
@settings(max_examples=5, deadline=None)
@given(SPANS, st.integers(0, 99))
def test_leading_silence_changes_nothing(
    options: EndpointingOptions, spans: list[tuple[int, float]], seed: int
) -> None:
    probabilities = noisy(spans, seed)

    def after(lead_s: int) -> list[tuple[int, int]]:
        lead = np.zeros(lead_s * 100, np.float32)
        segments = whole(options, np.concatenate([lead, probabilities]))
        return [(start - lead_s * 1000, end - lead_s * 1000) for start, end in segments]

    assert after(8) == after(40) == after(600)


EVENTS = {
    "speech": lambda s: s.receive_probabilities(spoken(200)),
    "a pause": lambda s: s.receive_probabilities(spoken(0, 300)),
    "silence": lambda s: s.receive_probabilities(spoken(0, 2000)),
    "commit": lambda s: s.receive_commit(s.position),
    "end": lambda s: s.receive_end(s.position),
}
STATES = {"idle": (0, 500), "open": (1000,), "paused": (1000, 300)}
Kinds = list[type[EndpointEvent]]
TRANSITIONS: dict[tuple[str, str], Kinds] = {
    ("idle", "speech"): [SpeechStarted],
    ("idle", "a pause"): [],
    ("idle", "silence"): [],
    ("idle", "commit"): [],
    ("idle", "end"): [],
    ("open", "speech"): [],
    ("open", "a pause"): [SpeechPaused],
    ("open", "silence"): [SpeechPaused, SpeechEnded],
    ("open", "commit"): [SpeechEnded],
    ("open", "end"): [SpeechEnded],
    ("paused", "speech"): [SpeechResumed],
    ("paused", "a pause"): [],
    ("paused", "silence"): [SpeechEnded],
    ("paused", "commit"): [SpeechEnded],
    ("paused", "end"): [SpeechEnded],
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_state_meets_every_event(state: str, event: str) -> None:
    subject = endpointer(EndpointingOptions())
    subject.receive_probabilities(spoken(*STATES[state]))
    assert [type(e) for e in EVENTS[event](subject)] == TRANSITIONS[state, event]

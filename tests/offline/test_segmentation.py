"""Where recordings are cut: by the live service's endpointing, or only where it is quiet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.audio import AudioBuffer
from realtime_server.core.endpointing import Endpointer, EndpointingOptions, SpeechEnded
from realtime_server.core.endpointing_options import LIVE_SCHEDULE, OFFLINE_SCHEDULE
from realtime_server.core.jobs import Probabilities, Samples, ScoreJob
from realtime_server.core.segments import HOP, SAMPLE_RATE, Segment, to_samples
from realtime_server.core.speakers import Voices
from realtime_server.engines.fake import FakeScorer
from realtime_server.errors import EngineError, EngineTimeoutError
from realtime_server.offline.calls import Deadlines
from realtime_server.offline.places import Places
from realtime_server.offline.recording import Recording, to_pcm16
from realtime_server.offline.segmentation import (
    ArrayAudio,
    Audio,
    Listener,
    Segmenter,
    find_clips,
    find_segments,
    quiet_cuts,
    quietest,
)
from tests.audio import silence, speech_pattern, tone

OFFLINE = EndpointingOptions(schedule=OFFLINE_SCHEDULE)
LIVE = EndpointingOptions(schedule=LIVE_SCHEDULE)
FIXED = EndpointingOptions(mode="fixed", silence_ms=600)


def listener(scorer: FakeScorer | None = None, deadlines: Deadlines | None = None) -> Listener:
    return Listener(scorer or FakeScorer(), places=Places(lambda: 4), deadlines=deadlines or Deadlines())


async def segments(samples: Samples, options: EndpointingOptions = OFFLINE) -> list[Segment]:
    audio = ArrayAudio(samples)
    return [found async for found in find_segments(audio, listener().scores(audio, "x"), options)]


def spans_s(found: Sequence[Segment]) -> list[tuple[float, float]]:
    return [(segment.start / SAMPLE_RATE, segment.end / SAMPLE_RATE) for segment in found]


# --- audio ------------------------------------------------------------------------------------------------


def test_an_array_is_read_by_ranges() -> None:
    samples = tone(1.0)
    audio = ArrayAudio(samples)
    assert len(audio) == 16_000
    assert np.array_equal(audio.read(100, 300), samples[100:300])


@pytest.mark.parametrize(
    "samples", [np.zeros((2, 100), np.float32), np.zeros(100), np.array([0, np.nan, 0], np.float32)]
)
def test_arrays_of_another_kind_are_mistakes(samples: Samples) -> None:
    with pytest.raises(ValueError, match="mono, 16 kHz"):
        ArrayAudio(samples)


@given(
    first=st.integers(0, 150).map(lambda hop: hop * HOP),
    length=st.integers(0, 150).map(lambda hop: hop * HOP),
    seed=st.integers(0, 99),
)
def test_the_quietest_place_is_that_of_the_live_buffer(first: int, length: int, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(0, 0.1, 300 * HOP).astype(np.float32)
    buffer = AudioBuffer()
    buffer.append(samples)
    assert quietest(ArrayAudio(samples), first, first + length) == buffer.quietest(first, first + length)


# --- voice activity ---------------------------------------------------------------------------------------


async def test_pauses_end_segments_as_the_offline_schedule_says() -> None:
    """A pause of 1.7 s ends 6 s of speech live, where the limit is 1.5 s, and not offline, where it is 2 s."""
    samples = speech_pattern([(6.0, 1.7), (3.0, 2.3), (2.0, 1.0)])
    assert [round(end, 1) for _, end in spans_s(await segments(samples, LIVE))] == [6.2, 10.9, 15.2]
    assert [round(end, 1) for _, end in spans_s(await segments(samples))] == [10.9, 15.2]


async def test_long_speech_is_cut_without_a_gap() -> None:
    cut = EndpointingOptions(schedule=OFFLINE_SCHEDULE, max_segment_ms=10_000)
    found = await segments(tone(35.0), cut)
    assert found[0].start == 0
    assert all(one.end == other.start for one, other in pairwise(found))
    assert all(segment.end - segment.start <= to_samples(10_000) for segment in found)
    assert [segment.index for segment in found] == list(range(len(found)))


async def test_silence_has_no_segments() -> None:
    assert await segments(silence(30.0)) == []
    assert await segments(silence(0.0)) == []


def live_segments(
    samples: Samples, options: EndpointingOptions, splits: Sequence[int]
) -> list[tuple[int, int]]:
    """What the core's endpointer makes of the probabilities in other pieces."""
    buffer = AudioBuffer()
    buffer.append(samples)
    endpointer = Endpointer(options, buffer.quietest)
    hops = samples[: len(samples) // HOP * HOP].reshape(-1, HOP)
    scores = (np.sqrt(np.mean(np.square(hops), axis=1)) > 0.01).astype(np.float32)
    events = [
        event for part in np.split(scores, sorted(splits)) for event in endpointer.receive_probabilities(part)
    ]
    events += endpointer.receive_end(len(samples))
    return [(event.start, event.end) for event in events if isinstance(event, SpeechEnded)]


PATTERNS = st.lists(
    st.tuples(st.integers(1, 60).map(lambda n: n / 10), st.integers(0, 25).map(lambda n: n / 10)),
    min_size=1,
    max_size=6,
)


@given(pattern=PATTERNS, splits=st.lists(st.integers(0, 400), max_size=8), look_ahead=st.integers(0, 70))
def test_segments_are_those_of_the_live_service_however_scores_come(
    pattern: list[tuple[float, float]], splits: list[int], look_ahead: int
) -> None:
    import asyncio

    samples = speech_pattern(pattern)
    options = EndpointingOptions(mode="fixed", silence_ms=600, max_segment_ms=4000)

    async def find() -> list[Segment]:
        audio = ArrayAudio(samples)
        scores = listener(FakeScorer(look_ahead=look_ahead)).scores(audio, "x")
        return [found async for found in find_segments(audio, scores, options)]

    found = [(segment.start, segment.end) for segment in asyncio.run(find())]
    assert found == live_segments(samples, options, splits)


async def test_a_recording_is_scored_in_pieces() -> None:
    jobs: list[ScoreJob] = []

    class Noting(FakeScorer):
        async def score(self, job: ScoreJob) -> Probabilities:
            jobs.append(job)
            return await super().score(job)

    recording = Recording()
    recording.append(to_pcm16(tone(13.51)))
    assert len([scores async for scores in listener(Noting()).scores(recording, "a")]) == 3
    assert [len(job.samples) for job in jobs] == [96_000, 96_000, 24_160]
    assert [(job.first, job.last) for job in jobs] == [(True, False), (False, False), (False, True)]
    assert {(job.session, job.epoch, job.channel) for job in jobs} == {("a", 1, 0)}


async def test_recordings_take_turns_at_the_scorer() -> None:
    order: list[str] = []

    class Noting(FakeScorer):
        async def score(self, job: ScoreJob) -> Probabilities:
            order.append(job.session)
            return await super().score(job)

    shared = Listener(Noting(), places=Places(lambda: 1), deadlines=Deadlines())

    async def listen(name: str) -> None:
        async for _ in shared.scores(ArrayAudio(tone(60.0)), name):
            pass

    import asyncio

    await asyncio.gather(listen("a"), listen("b"))
    assert all(set(pair) == {"a", "b"} for pair in zip(order[2:-2:2], order[3:-2:2], strict=False))


async def test_a_scorer_that_hangs_ends_the_recording() -> None:
    class Hanging(FakeScorer):
        async def score(self, job: ScoreJob) -> Probabilities:
            import asyncio

            await asyncio.sleep(100)
            raise AssertionError

    slow = listener(Hanging(), Deadlines(base_s=0.02, tick_s=0.01))
    audio = ArrayAudio(tone(1.0))
    with pytest.raises(EngineTimeoutError):
        await anext(find_segments(audio, slow.scores(audio, "x"), OFFLINE))


async def test_voices_are_told_of_each_segment_before_it_comes() -> None:
    samples, voices = speech_pattern([(3.0, 1.0), (2.0, 1.0)]), Voices()
    audio = ArrayAudio(samples)
    async for segment in find_segments(audio, listener().scores(audio, "x"), FIXED, voices):
        windows = voices.windows_to_embed()
        assert list(windows) == [segment.index]
        assert windows[segment.index][0].start == segment.start
        assert windows[segment.index][-1].end <= segment.end


# --- where it is quiet ------------------------------------------------------------------------------------


def noisy(pauses_s: Sequence[float], seconds: float) -> Samples:
    """Noise with short silences."""
    samples = np.random.default_rng(1).normal(0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)
    for at in pauses_s:
        samples[round((at - 0.1) * SAMPLE_RATE) : round((at + 0.1) * SAMPLE_RATE)] = 0
    return samples


def test_clips_are_cut_in_the_quietest_place_of_their_last_third() -> None:
    audio = ArrayAudio(noisy([5.0, 8.5, 16.0, 20.0], 25.0))
    found = list(quiet_cuts(audio, to_samples(10_000)))
    assert [round(end, 1) for _, end in spans_s(found)] == [8.5, 16.0, 25.0]


@given(
    seconds=st.integers(0, 400).map(lambda n: n / 10), longest_s=st.integers(1, 12), seed=st.integers(0, 9)
)
def test_clips_cover_everything_once(seconds: float, longest_s: int, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)
    found = list(quiet_cuts(ArrayAudio(samples), longest_s * SAMPLE_RATE))
    edges = [0, *(segment.end for segment in found)]
    assert [segment.start for segment in found] == edges[:-1]
    assert edges[-1] == len(samples)
    assert all(segment.end - segment.start <= longest_s * SAMPLE_RATE for segment in found)


async def no_scores() -> AsyncIterator[Probabilities]:
    raise EngineError("nobody listens")
    yield


async def test_clips_need_no_scorer_but_for_voices() -> None:
    audio: Audio = ArrayAudio(tone(4.0))
    assert len([clip async for clip in find_clips(audio, no_scores(), OFFLINE)]) == 1
    with pytest.raises(EngineError):
        await anext(find_clips(audio, no_scores(), OFFLINE, Voices()))
    voices = Voices()
    (clip,) = [clip async for clip in find_clips(audio, listener().scores(audio, "x"), OFFLINE, voices)]
    assert voices.windows_to_embed()[clip.index]


@pytest.mark.parametrize(("silence_s", "end"), [(0.0, 16_000), (0.15, 18_400), (0.3, 18_560), (0.4, 18_560)])
def test_the_last_segment_ends_with_the_recording_or_in_the_pause_before(silence_s: float, end: int) -> None:
    samples = speech_pattern([(1.0, silence_s)])
    segmenter = Segmenter(FIXED, ArrayAudio(samples))
    scores = np.zeros(len(samples) // HOP, np.float32)
    scores[:100] = 1
    assert segmenter.receive_probabilities(scores) == []
    assert segmenter.receive_end() == [Segment(0, 0, 0, end)]

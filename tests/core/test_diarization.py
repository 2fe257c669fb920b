"""Speakers of a session: texts wait for them, but not for long; the end revises them; a failure ends only them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from realtime_server.core import messages as m
from realtime_server.core.diarization import AT_ONCE, END_MS, IN_FLIGHT
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import ClusterJob, Decoded, DecodeJob, EmbedJob, Samples, WaitJob
from realtime_server.core.segments import SpeakerChange, Word, to_samples
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.errors import EngineError
from tests.audio import silence, tone
from tests.core.driver import CAPABILITIES, Driver, know_voices

SETTINGS = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=600), speakers=True)


def voice(number: int, seconds: float) -> Samples:
    """One speaker's voice is as loud as his number."""
    return (tone(seconds) / np.abs(tone(seconds)).max() * (0.15 + 0.1 * number)).astype(np.float32)


def talk(*turns: tuple[int, float], pause_s: float = 1.0) -> Samples:
    """Turns of (speaker, seconds), with a pause behind each."""
    return np.concatenate([part for who, s in turns for part in (voice(who, s), silence(pause_s))])


def ticking(job: DecodeJob) -> Decoded:
    """A word every half second."""
    count = len(job.audio) // 8000
    words = tuple(Word(f"w{n}", 500 * n, 500 * n + 400) for n in range(count))
    return Decoded(" ".join(word.text for word in words), words=words if job.options.words else None)


def started(**wishes: Any) -> Driver:
    driver = Driver(wishes.pop("decode", ticking), SETTINGS, **wishes)
    driver.say("START")
    return driver


def hold(*kinds: type) -> Any:
    return lambda job: None if isinstance(job, kinds) else know_voices(job)


def embed_jobs(driver: Driver) -> list[EmbedJob]:
    return [job for job in driver.waiting if isinstance(job, EmbedJob)]


def embed_all(driver: Driver) -> None:
    while jobs := embed_jobs(driver):
        driver.answer_speakers(jobs[0])


def speakers(driver: Driver) -> list[int | None]:
    return [s.speaker for event in driver.of(m.SegmentLocked) for s in event.sentences]


def shown(driver: Driver) -> list[int | None]:
    """Speakers in the last result."""
    last = [message for message in driver.messages if "sentences" in message][-1]
    return [sentence.get("spk") for sentence in last["sentences"]]


def test_speakers_are_numbered_as_they_come_and_known_when_they_return() -> None:
    driver = started()
    driver.hear(talk((5, 3), (2, 3), (5, 3)))
    assert speakers(driver) == [0, 1, 0]
    driver.say("STOP")
    assert shown(driver) == [0, 1, 0]
    assert not driver.of(m.SpeakersRevised)


def test_without_speakers_nothing_is_asked_for_and_no_spk_is_told() -> None:
    driver = Driver(ticking, replace(SETTINGS, speakers=False), speak=lambda job: pytest.fail("no speakers"))
    driver.say("START")
    driver.hear(talk((1, 3)))
    driver.say("STOP")
    assert shown(driver) == [None]
    assert not any(job.options.words for job in driver.jobs)


def test_word_times_are_asked_for_only_where_the_recognizer_has_them() -> None:
    assert not any(job.options.words for job in _said(capabilities=replace(CAPABILITIES, words=False)).jobs)
    assert all(job.options.words for job in _said().jobs)


def _said(**wishes: Any) -> Driver:
    driver = started(**wishes)
    driver.hear(talk((1, 3)))
    driver.say("STOP")
    return driver


def test_a_sentence_is_split_where_the_speaker_changes() -> None:
    driver = started()
    driver.hear(np.concatenate([voice(1, 4), voice(6, 4), silence(1.0)]))
    (lock,) = driver.of(m.SegmentLocked)
    assert [s.speaker for s in lock.sentences] == [0, 1]
    assert " ".join(s.text for s in lock.sentences) == ticking(driver.jobs[-1]).text
    first, second = lock.sentences
    assert first.end_ms == second.start_ms
    assert abs(first.end_ms - 4000) <= 750
    assert [s.id for s in lock.sentences] == [0, 1]
    assert next(w for s in lock.sentences for w in s.words).start_ms == first.start_ms


def test_without_word_times_it_is_not_split() -> None:
    driver = started(capabilities=replace(CAPABILITIES, words=False))
    driver.hear(np.concatenate([voice(1, 4), voice(6, 5), silence(1.0)]))
    assert speakers(driver) == [1]


def test_replacements_come_after_the_split() -> None:
    driver = started()
    driver.say("POSTPROCESS_HOTWORDS:w1=>one two three")
    driver.hear(np.concatenate([voice(1, 4), voice(6, 4), silence(1.0)]))
    (lock,) = driver.of(m.SegmentLocked)
    assert lock.sentences[0].text.startswith("w0 one two three w2")
    assert [s.speaker for s in lock.sentences] == [0, 1]


def test_a_text_waits_for_its_speaker() -> None:
    driver = started(speak=hold(ClusterJob))
    driver.hear(talk((3, 3)))
    assert not driver.of(m.SegmentLocked)
    cluster, wait = sorted(driver.waiting, key=lambda job: isinstance(job, WaitJob))
    assert isinstance(wait, WaitJob)
    assert wait.wait_ms == 300
    driver.answer_speakers(cluster)
    assert speakers(driver) == [0]
    driver.answer_speakers(wait)  # in vain by now
    assert speakers(driver) == [0]


def test_it_does_not_wait_for_long_and_the_speaker_is_told_when_he_is_known() -> None:
    driver = started(speak=hold(ClusterJob))
    driver.hear(talk((3, 3)))
    cluster, wait = sorted(driver.waiting, key=lambda job: isinstance(job, WaitJob))
    driver.answer_speakers(wait)
    assert speakers(driver) == [None]
    assert shown(driver) == [None]
    driver.answer_speakers(cluster)
    assert [event.changes for event in driver.of(m.SpeakersRevised)] == [(SpeakerChange(0, None, 0),)]
    assert shown(driver) == [0]


def test_a_late_speaker_holds_those_behind_it_in_order() -> None:
    driver = started(speak=hold(ClusterJob))
    driver.hear(talk((3, 3), (4, 3)))
    waits = [job for job in driver.waiting if isinstance(job, WaitJob)]
    driver.answer_speakers(waits[1])
    assert not driver.of(m.SegmentLocked)
    driver.answer_speakers(waits[0])
    assert [event.segment for event in driver.of(m.SegmentLocked)] == [0, 1]


def test_a_segment_without_words_does_not_wait() -> None:
    driver = started(decode=lambda job: Decoded(""), speak=hold(ClusterJob, EmbedJob))
    driver.hear(talk((3, 3)))
    assert [event.sentences for event in driver.of(m.SegmentLocked)] == [()]


def test_what_makes_a_noise_but_says_nothing_has_no_number() -> None:
    """Music is a voice to the network; whoever speaks first after it is still speaker 0."""
    driver = started(decode=lambda job: Decoded("") if np.abs(job.audio).max() < 0.2 else ticking(job))
    driver.hear(talk((0, 3), (4, 3), (0, 3), (6, 3)))
    driver.say("STOP")
    assert speakers(driver) == [0, 1]
    assert shown(driver) == [0, 1]


def test_stop_waits_for_the_last_word_on_speakers_and_tells_it_with_the_final() -> None:
    def late_insight(job: EmbedJob | ClusterJob) -> Any:
        if isinstance(job, ClusterJob) and not job.final:
            return np.zeros(len(job.windows), np.int64)  # all are one
        return know_voices(job)

    driver = started(speak=late_insight)
    driver.hear(talk((3, 5), (4, 3)))
    assert speakers(driver) == [0, 0]
    driver.say("STOP")
    assert [event.changes for event in driver.of(m.SpeakersRevised)] == [(SpeakerChange(1, 0, 1),)]
    final, stopped = driver.messages[-2:]
    assert final["is_final"]
    assert [s["spk"] for s in final["sentences"]] == [0, 1]
    assert stopped == {"event": "stopped"}


def test_a_sentence_stays_its_speakers_though_most_of_its_time_was_anothers() -> None:
    """The recognizer left out what the other one said."""

    def hear_the_end(job: DecodeJob) -> Decoded:
        first = len(job.audio) // 16 - 1000
        return Decoded(
            "yes indeed", words=(Word("yes", first, first + 400), Word("indeed", first + 500, first + 900))
        )

    driver = started(decode=hear_the_end)
    driver.hear(talk((3, 6), pause_s=0.3))
    driver.hear(talk((4, 3)))
    assert speakers(driver) == [1]
    driver.say("STOP")
    assert not driver.of(m.SpeakersRevised)


def test_stop_waits_for_embeddings_that_are_still_to_come() -> None:
    driver = started(speak=hold(EmbedJob))
    driver.hear(talk((3, 3), (4, 3)))
    driver.say("STOP")
    for job in [job for job in driver.waiting if isinstance(job, WaitJob)]:
        driver.answer_speakers(job)
    assert not any(message.get("is_final") for message in driver.messages)
    embed_all(driver)
    assert shown(driver) == [0, 1]
    assert driver.messages[-1] == {"event": "stopped"}


@pytest.mark.parametrize("slow", [EmbedJob, ClusterJob])
def test_stop_does_not_wait_for_long(slow: type) -> None:
    """One wait bounds all that is still to be found out; what was told stays."""
    driver = started()
    driver.hear(talk((3, 3)))
    driver.speak = hold(slow)
    driver.hear(talk((4, 3)))
    for job in [job for job in driver.waiting if isinstance(job, WaitJob)]:
        driver.answer_speakers(job)
    driver.say("STOP")
    *late, end = driver.waiting
    assert isinstance(end, WaitJob)
    assert end.wait_ms == END_MS
    assert not any(message.get("is_final") for message in driver.messages)
    driver.answer_speakers(end)
    assert shown(driver) == [0, None]
    told = list(driver.messages)
    assert told[-1] == {"event": "stopped"}
    assert not driver.of(m.Failed)
    for job in late:
        driver.answer_speakers(job)
    assert driver.messages == told


def test_stop_waits_for_a_backlog_as_long_as_it_gets_on() -> None:
    """A recording that is sent at once is embedded behind its texts: its speakers are worth the wait."""
    driver = started(speak=hold(EmbedJob))
    driver.hear(talk((3, 9), (4, 9), (3, 9)))
    for job in [job for job in driver.waiting if isinstance(job, WaitJob)]:
        driver.answer_speakers(job)
    driver.say("STOP")
    waits = 0
    while embeddings := [job for job in driver.waiting if isinstance(job, EmbedJob)]:
        driver.answer_speakers(embeddings[0])
        (end,) = [job for job in driver.waiting if isinstance(job, WaitJob)]
        if driver.messages[-1] != {"event": "stopped"}:
            driver.answer_speakers(end)
            waits += 1
    assert waits > 1
    assert shown(driver) == [0, 1, 0]
    assert driver.messages[-1] == {"event": "stopped"}


def test_the_wait_for_the_end_is_asked_for_once_and_in_vain_when_all_is_told() -> None:
    driver = started(speak=hold(ClusterJob))
    driver.hear(talk((3, 3), (4, 3)))
    for job in [job for job in driver.waiting if isinstance(job, WaitJob)]:
        driver.answer_speakers(job)
    driver.say("STOP")
    while clusterings := [job for job in driver.waiting if isinstance(job, ClusterJob)]:
        driver.answer_speakers(clusterings[0])
    assert driver.messages[-1] == {"event": "stopped"}
    assert shown(driver) == [0, 1]
    told = list(driver.messages)
    (end,) = driver.waiting
    driver.answer_speakers(end)
    assert driver.messages == told


def test_windows_collect_while_the_embedder_is_busy() -> None:
    audio = talk((3, 20), (4, 2), (5, 20))
    driver = started(speak=hold(EmbedJob))
    driver.hear(audio)
    driver.say("STOP")
    heard: list[EmbedJob] = []
    while jobs := embed_jobs(driver):
        assert len(jobs) <= IN_FLIGHT
        heard.append(jobs[0])
        driver.answer_speakers(jobs[0])
    assert [job.segment for job in heard] == sorted(job.segment for job in heard)
    assert max(len(job.windows) for job in heard) == AT_ONCE
    for job in heard:
        for window, samples in zip(job.windows, job.audio, strict=True):
            assert np.array_equal(samples, audio[window.start : window.end])
    assert shown(driver) == [0, 1, 2]


def test_audio_is_kept_for_windows_that_wait_and_no_longer() -> None:
    driver = started(speak=hold(EmbedJob))
    driver.hear(talk(*[(3, 6)] * 20))
    for job in [job for job in driver.waiting if isinstance(job, WaitJob)]:
        driver.answer_speakers(job)
    (track,) = driver.protocol._tracks
    assert len(driver.sentences) == 20
    assert track.accounted < 10 * to_samples(1000)  # two jobs took its beginning along
    assert track._buffer.start <= track.accounted
    embed_all(driver)
    assert track.accounted > 138 * to_samples(1000)
    assert track._buffer.end - track._buffer.start < 5 * to_samples(1000)


def test_audio_that_is_kept_for_speakers_counts_as_undecoded() -> None:
    limited = replace(SETTINGS, limits=Limits(undecoded_s=30))
    for speak, fits in ((know_voices, True), (hold(EmbedJob), False)):
        driver = Driver(ticking, limited, speak=speak)
        driver.say("START")
        driver.hear(talk(*[(3, 6)] * 10))
        for job in [job for job in driver.waiting if isinstance(job, WaitJob)]:
            driver.answer_speakers(job)
        embed_all(driver)
        assert (driver.of(m.Closing) == []) is fits


def test_a_failure_gives_the_audio_back() -> None:
    driver = started(speak=hold(EmbedJob))
    driver.hear(talk(*[(3, 6)] * 5))
    driver.answer_speakers(embed_jobs(driver)[0], EngineError("broken"))
    driver.hear(silence(1.0))
    (track,) = driver.protocol._tracks
    assert track.accounted > 34 * to_samples(1000)
    assert track._buffer.end - track._buffer.start < 5 * to_samples(1000)


def test_stop_with_nothing_said() -> None:
    driver = started()
    driver.hear(silence(2.0))
    driver.say("STOP")
    assert shown(driver) == []
    assert driver.messages[-1] == {"event": "stopped"}


def test_commit_tells_speakers_too() -> None:
    client = replace(SETTINGS, endpointing=EndpointingOptions(mode="client"))
    driver = Driver(ticking, client)
    driver.say("START")
    driver.hear(voice(2, 3))
    driver.say("COMMIT")
    assert shown(driver) == [0]
    driver.hear(voice(2, 3))
    driver.say("STOP")
    assert shown(driver) == [0]


@pytest.mark.parametrize("failing", [EmbedJob, ClusterJob])
def test_a_failure_ends_the_speakers_and_nothing_else(failing: type) -> None:
    driver = started(
        speak=lambda job: EngineError("no memory") if isinstance(job, failing) else know_voices(job)
    )
    driver.hear(talk((3, 3), (4, 3)))
    driver.say("STOP")
    errors = [message for message in driver.messages if message.get("event") == "error"]
    assert errors == [{"event": "error", "error": "speakers are no longer told apart: no memory"}]
    assert len(driver.sentences) == 2
    assert shown(driver) == [None, None]
    assert driver.messages[-1] == {"event": "stopped"}


def test_a_failure_releases_what_waits() -> None:
    driver = started(speak=hold(EmbedJob))
    driver.hear(talk((3, 3)))
    jobs = [job for job in driver.waiting if isinstance(job, EmbedJob)]
    driver.answer_speakers(jobs[0], EngineError("broken"))
    assert speakers(driver) == [None]
    for job in jobs[1:]:
        driver.answer_speakers(job, EngineError("broken"))
    assert len(driver.of(m.Failed)) == 1
    driver.hear(talk((3, 3)))
    assert speakers(driver) == [None, None]


def test_late_answers_after_a_failure_are_dropped() -> None:
    driver = started(speak=hold(EmbedJob))
    driver.hear(talk((3, 3)))
    one, *rest = [job for job in driver.waiting if isinstance(job, EmbedJob)]
    driver.answer_speakers(one, EngineError("broken"))
    for job in rest:
        driver.answer_speakers(job)
    driver.say("STOP")
    assert shown(driver) == [None]


def test_a_failure_of_the_last_clustering_leaves_the_speakers_that_were_told() -> None:
    driver = started(
        speak=lambda job: (
            EngineError("too many") if isinstance(job, ClusterJob) and job.final else know_voices(job)
        )
    )
    driver.hear(talk((3, 3), (4, 3)))
    driver.say("STOP")
    assert shown(driver) == [0, 1]
    final, error, stopped = driver.messages[-3:]
    assert final["is_final"]
    assert (error["event"], stopped["event"]) == ("error", "stopped")


def test_a_wait_that_fails_is_over() -> None:
    driver = started(speak=hold(ClusterJob))
    driver.hear(talk((3, 3)))
    (wait,) = [job for job in driver.waiting if isinstance(job, WaitJob)]
    driver.answer_speakers(wait, EngineError("the server stops"))
    assert speakers(driver) == [None]


def test_start_begins_with_new_speakers() -> None:
    driver = started()
    driver.hear(talk((3, 3), (4, 3)))
    driver.say("STOP", "START")
    driver.hear(talk((4, 3)))
    driver.say("STOP")
    assert speakers(driver) == [0, 1, 0]


def test_a_lost_scorer_ends_the_session_with_its_speakers() -> None:
    driver = started()
    driver.hold_scores = True
    driver.hear(talk((3, 1)))
    driver.release_scores()
    driver.hear(voice(3, 3))
    driver.hold_scores = True
    driver.hear(voice(3, 1))
    driver.protocol.receive_failure(driver.held_scores.pop(), EngineError("broken"))
    driver.turn()
    assert driver.sentences
    assert driver.of(m.Closing)


def test_audio_is_read_before_it_is_forgotten() -> None:
    """Windows get the samples that they name, however the audio comes in pieces."""
    audio = talk((3, 4), (4, 9), (5, 1))
    heard: list[EmbedJob] = []

    def listen(job: EmbedJob | ClusterJob) -> Any:
        heard.extend([job] if isinstance(job, EmbedJob) else [])
        return know_voices(job)

    for packet in (160, 1600, 16_000, len(audio)):
        driver = started(speak=listen)
        driver.hear(audio, packet)
        driver.say("STOP")
        assert {job.segment for job in heard} == {0, 1, 2}
        for job in heard:
            for window, samples in zip(job.windows, job.audio, strict=True):
                assert np.array_equal(samples, audio[window.start : window.end])
                assert window.end - window.start <= to_samples(1500)
        heard.clear()

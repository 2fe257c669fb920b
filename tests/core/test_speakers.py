"""Speakers of a channel: numbers that stay, and their revision at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_server.core.jobs import Embeddings, Labels, Window
from realtime_server.core.segments import HOP, Segment, Sentence, SpeakerChange, to_samples
from realtime_server.core.speakers import RECENT, REMEMBERED, Clustering, Voices
from realtime_server.core.turns import Turn, main_speaker

S = 16_000
Cluster = Callable[[Clustering], Labels]


def by_voice(clustering: Clustering) -> Labels:
    """A clustering that makes no mistake; its numbers are not those of the voices."""
    voices = clustering.embeddings.argmax(axis=1)
    return 7 * (voices + 3) % 11


def as_one(clustering: Clustering) -> Labels:
    return np.zeros(len(clustering.windows), np.int64)


class Talk:
    """Segments of given voices, one after the other with a second between them; answers are held until asked for.

    An embedding points to its voice: the one at the middle of its window. alike: voices that sound a bit like another
    one, with the cosine; below 0.7 the clustering still tells them apart.
    """

    def __init__(self, cluster: Cluster = by_voice, *, alike: Sequence[tuple[int, int, float]] = ()) -> None:
        self.voices = Voices()
        self.cluster = cluster
        self.sounds = np.eye(8, dtype=np.float32)
        for one, other, cosine in alike:
            self.sounds[one] = np.sqrt(1 - cosine**2) * self.sounds[one] + cosine * self.sounds[other]
        self.clusterings: list[Clustering] = []
        self.spans: list[Segment] = []
        self.said: list[tuple[int, int, int]] = []  # from, to, voice
        self.windows: list[tuple[int, tuple[Window, ...]]] = []  # asked for, not answered
        self.at = 0

    def hear(self, *parts: tuple[int, float], pause_s: float = 1.0, speech: float = 1.0) -> int:
        """A segment of (voice, seconds) parts; return its index."""
        index, start = len(self.spans), self.at
        for voice, seconds in parts:
            self.said.append((self.at, self.at + int(seconds * S), voice))
            self.at = self.said[-1][1]
        frames = (self.at - start) // HOP
        spoken = int(frames * speech)
        self.voices.receive_probabilities(np.r_[np.ones(spoken), np.zeros(frames - spoken)])
        self.voices.receive_open(index, start)
        self.spans.append(Segment(index, 0, start, self.at))
        self.voices.receive_position(index, self.at)
        self._collect()
        self.voices.receive_close(self.spans[-1])
        self._collect()
        self.voices.receive_probabilities(np.zeros(int(pause_s * S) // HOP))
        self.at += int(pause_s * S)
        return index

    def say(self, *parts: tuple[int, float], speech: float = 1.0) -> list[tuple[float, float, int | None]]:
        """The same, with all answers; return its turns in seconds from its start."""
        index = self.hear(*parts, speech=speech)
        self.embed()
        self.label()
        return self.turns(index)

    def turns(self, index: int) -> list[tuple[float, float, int | None]]:
        start = self.spans[index].start
        turns = self.voices.turns(index)
        assert turns is not None
        return [((turn.start - start) / S, (turn.end - start) / S, turn.speaker) for turn in turns]

    def embed(self) -> None:
        """Answer what is asked for, the latest first."""
        while self.windows:
            index, windows = self.windows.pop()
            self.voices.receive_embeddings(index, windows, self._vectors(windows))

    def label(self) -> None:
        """Run and answer clusterings until none is due."""
        while clustering := self.voices.clustering_to_run():
            self.answer(clustering)

    def answer(self, clustering: Clustering) -> None:
        self.clusterings.append(clustering)
        self.voices.receive_labels(self.cluster(clustering))

    def finish(self) -> None:
        final = self.voices.final_to_run()
        assert final
        assert final.final
        self.answer(final)

    def _collect(self) -> None:
        self.windows += self.voices.windows_to_embed().items()

    def _vectors(self, windows: tuple[Window, ...]) -> Embeddings:
        middles = [(window.start + window.end) // 2 for window in windows]
        ids = [next(voice for start, end, voice in self.said if start <= at < end) for at in middles]
        vectors: Embeddings = self.sounds[ids]
        return vectors


# --- while the session goes on ----------------------------------------------------------------------------


def test_speakers_are_numbered_as_they_appear_and_keep_their_numbers() -> None:
    talk = Talk()
    assert talk.say((5, 3)) == [(0, 3, 0)]
    assert talk.say((2, 3)) == [(0, 3, 1)]
    assert talk.say((5, 3)) == [(0, 3, 0)]


def test_a_segment_of_two_speakers_has_two_turns() -> None:
    assert Talk().say((5, 3.25), (2, 3)) == [(0, 3.375, 0), (3.375, 6.25, 1)]


def test_windows_are_asked_for_while_the_segment_grows_and_once() -> None:
    voices = Voices()
    voices.receive_probabilities(np.ones(400))
    voices.receive_open(0, 0)
    voices.receive_position(0, int(1.4 * S))
    assert voices.windows_to_embed() == {}
    voices.receive_position(0, int(2.3 * S))
    first = (Window(0, 3 * S // 2), Window(3 * S // 4, 9 * S // 4))
    assert voices.windows_to_embed() == {0: first}
    voices.receive_position(0, int(2.4 * S))
    assert voices.windows_to_embed() == {}
    voices.receive_close(Segment(0, 0, 0, 3 * S))
    assert voices.windows_to_embed() == {0: (Window(3 * S // 2, 3 * S),)}


def test_windows_beyond_a_cut_are_forgotten_asked_for_or_not() -> None:
    voices = Voices()
    voices.receive_probabilities(np.ones(600))
    voices.receive_open(0, 0)
    voices.receive_position(0, 4 * S)
    (asked,) = voices.windows_to_embed().values()
    voices.receive_position(0, 5 * S)
    voices.receive_close(Segment(0, 0, 0, 3 * S))
    assert voices.windows_to_embed() == {0: ()}
    voices.receive_embeddings(0, asked, np.eye(8, dtype=np.float32)[: len(asked)])
    clustering = voices.clustering_to_run()
    assert clustering
    assert clustering.windows == asked[:3]


def test_nobody_is_known_before_two_windows_were_heard() -> None:
    talk = Talk()
    assert talk.say((5, 1)) == [(0, 1, None)]
    assert talk.say((5, 1)) == [(0, 1, 0)]
    assert talk.turns(0) == [(0, 1, None)]


def test_a_new_voice_is_the_nearest_speakers_until_it_was_heard_twice() -> None:
    talk = Talk()
    talk.say((5, 3))
    assert talk.say((2, 1)) == [(0, 1, 0)]
    assert talk.say((2, 1)) == [(0, 1, 1)]
    assert talk.turns(1) == [(0, 1, 0)]


def test_little_speech_is_the_nearest_speakers_without_a_clustering() -> None:
    talk = Talk()
    talk.say((5, 3), (2, 3))
    assert len(talk.clusterings) == 1
    assert talk.say((2, 0.4)) == [(0, 0.4, 1)]
    assert talk.say((5, 2), speech=0.2) == [(0, 2, 0)]
    assert len(talk.clusterings) == 1


def test_next_to_no_speech_is_nobodys() -> None:
    talk = Talk()
    talk.say((5, 3))
    assert talk.say((5, 0.1)) == [(0, 0.1, None)]


def test_a_clustering_that_mixes_speakers_up_changes_no_window_that_has_one() -> None:
    talk = Talk()
    talk.say((5, 3.25), (2, 4))
    talk.cluster = as_one
    assert talk.say((5, 3)) == [(0, 3, 1)]
    talk.cluster = by_voice
    assert talk.say((5, 3)) == [(0, 3, 0)]
    assert talk.turns(0) == [(0, 3.375, 0), (3.375, 7.25, 1)]


def test_one_clustering_runs_at_a_time_and_the_next_labels_what_ended_meanwhile() -> None:
    talk = Talk()
    talk.hear((5, 3))
    talk.embed()
    running = talk.voices.clustering_to_run()
    assert running
    assert talk.voices.turns(0) is None
    for voice in (2, 5):
        talk.hear((voice, 3))
        talk.embed()
        assert talk.voices.clustering_to_run() is None
    talk.answer(running)
    assert talk.turns(0) == [(0, 3, 0)]
    assert talk.voices.turns(1) is None
    assert talk.voices.waiting
    talk.label()
    assert len(talk.clusterings) == 2
    assert (talk.turns(1), talk.turns(2)) == ([(0, 3, 1)], [(0, 3, 0)])
    assert not talk.voices.waiting


def test_a_segment_waits_for_its_windows_and_for_those_before_it() -> None:
    talk = Talk()
    talk.hear((5, 3))
    held, talk.windows = talk.windows, []
    talk.hear((2, 3))
    talk.embed()
    assert talk.voices.clustering_to_run() is None
    talk.windows = held
    talk.embed()
    talk.label()
    assert [window.start for window in talk.clusterings[0].windows] == [0, 12000, 24000, 64000, 76000, 88000]


def test_a_clustering_is_bounded_and_remembers_who_was_not_heard_for_long() -> None:
    talk = Talk()
    talk.say((5, 30))
    talk.say((2, 30))
    for _ in range(12):
        talk.say((1, 30))
    assert [len(clustering.windows) for clustering in talk.clusterings[-3:]] == [RECENT] * 3
    last = talk.clusterings[-1]
    assert sorted(last.windows, key=lambda window: window.start) == list(last.windows)
    assert np.bincount(last.embeddings.argmax(axis=1)).tolist() == [
        0,
        RECENT - 2 * REMEMBERED,
        REMEMBERED,
        0,
        0,
        REMEMBERED,
    ]
    assert talk.say((5, 3)) == [(0, 3, 0)]


# --- one speaker alone ------------------------------------------------------------------------------------

HIM, ODD, OTHER = 5, 7, 2  # ODD: a phrase of his that is a cluster of its own


def monologue(segments: int, *, likeness: float = 0.3) -> Talk:
    """One speaker who says a phrase of 1.5 s in every segment that is not like the rest of what he says."""
    talk = Talk(alike=[(ODD, HIM, likeness), (OTHER, HIM, 0.5)])
    talk.say((HIM, 10))
    for _ in range(segments):
        talk.say((HIM, 9), (ODD, 1.5), (HIM, 3))
    return talk


def numbers(talk: Talk) -> set[int | None]:
    return {speaker for index in range(len(talk.spans)) for _, _, speaker in talk.turns(index)}


@pytest.mark.parametrize("likeness", [0.4, 0.69])
def test_one_speaker_alone_stays_one_whatever_some_phrases_sound_like(likeness: float) -> None:
    talk = monologue(30, likeness=likeness)
    assert len(talk.clusterings[-1].windows) == RECENT
    assert len(np.unique(by_voice(talk.clusterings[-1]))) == 2, "the clustering takes the phrase for somebody"
    assert numbers(talk) == {0}
    talk.finish()
    assert numbers(talk) == {0}


def test_somebody_else_who_says_one_sentence_in_between_is_found_live_and_at_the_end() -> None:
    talk = monologue(15, likeness=0.4)
    assert talk.say((OTHER, 3)) == [(0, 3, 1)]
    assert talk.say((HIM, 9), (ODD, 1.5), (HIM, 3)) == [(0, 13.5, 0)]
    talk.finish()
    assert talk.turns(16) == [(0, 3, 1)]
    assert {talk.turns(index)[0][2] for index in range(16)} == {0}


def test_a_phrase_that_was_somebody_while_little_was_heard_is_not_at_the_end() -> None:
    talk = monologue(1)
    assert numbers(talk) == {0, 1}
    for _ in range(8):
        talk.say((HIM, 15))
    talk.finish()
    assert numbers(talk) == {0}


# --- at the end -------------------------------------------------------------------------------------------


def sentence(talk: Talk, index: int, speaker: int | None, start_s: float = 0, end_s: float = 0) -> Sentence:
    """The whole segment as a sentence, or a part of it."""
    start_ms = talk.spans[index].start_ms
    end_ms = start_ms + int(1000 * end_s) if end_s else talk.spans[index].end_ms
    return Sentence(10 + index, index, 0, "x", start_ms + int(1000 * start_s), end_ms, speaker=speaker)


def revised(talk: Talk, told: Sequence[Sentence]) -> tuple[SpeakerChange, ...]:
    """Those that are somebody else's by now."""
    changes = []
    for one in told:
        turns = talk.voices.turns(one.segment)
        now = main_speaker(turns, to_samples(one.start_ms), to_samples(one.end_ms)) if turns else one.speaker
        changes += [SpeakerChange(one.id, one.speaker, now)] if now != one.speaker else []
    return tuple(changes)


def test_what_turns_out_to_be_wrong_is_revised_and_the_rest_keeps_its_speaker() -> None:
    talk = Talk()
    talk.say((5, 1))
    talk.say((5, 3))
    talk.say((2, 1))
    talk.say((2, 6))
    told = [sentence(talk, index, speaker) for index, speaker in enumerate([None, 0, 0, 1])]
    assert revised(talk, told) == ()
    talk.finish()
    assert revised(talk, told) == (SpeakerChange(10, None, 0), SpeakerChange(12, 0, 1))


def test_speakers_found_at_the_end_are_numbered_after_the_others() -> None:
    talk = Talk(as_one)
    talk.say((5, 3))
    talk.say((2, 2))
    talk.cluster = by_voice
    talk.finish()
    assert revised(talk, [sentence(talk, 0, 0), sentence(talk, 1, 0)]) == (SpeakerChange(11, 0, 1),)


def test_speakers_that_are_one_at_the_end_have_the_number_most_windows_had() -> None:
    talk = Talk()
    talk.say((5, 3))
    talk.say((2, 5))
    talk.cluster = as_one
    talk.finish()
    assert revised(talk, [sentence(talk, 0, 0), sentence(talk, 1, 1)]) == (SpeakerChange(10, 0, 1),)


def test_a_part_of_a_segment_is_revised_by_itself() -> None:
    talk = Talk(as_one)
    talk.say((5, 3), (2, 3))
    told = [sentence(talk, 0, 0, 0, 3), sentence(talk, 0, 0, 3)]
    talk.cluster = by_voice
    talk.finish()
    assert revised(talk, told) == (SpeakerChange(10, 0, 1),)


def test_a_sentence_locked_before_its_labels_came_is_revised_when_they_come() -> None:
    talk = Talk()
    talk.hear((5, 3))
    told = [sentence(talk, 0, None)]
    assert revised(talk, told) == ()
    talk.embed()
    talk.label()
    assert revised(talk, told) == (SpeakerChange(10, None, 0),)


def test_a_recording_needs_only_the_final_clustering() -> None:
    talk = Talk()
    for voice in (5, 2, 5):
        talk.hear((voice, 1))
    talk.embed()
    talk.finish()
    assert [talk.turns(index) for index in range(3)] == [[(0, 1, 0)], [(0, 1, 1)], [(0, 1, 0)]]


def test_nothing_said_is_nothing_to_cluster() -> None:
    talk = Talk()
    assert talk.voices.final_to_run() is None
    talk.hear((5, 0.3))
    talk.embed()
    assert talk.voices.final_to_run() is None
    assert talk.voices.turns(0) == (Turn(0, to_samples(300), None),)


def test_the_final_clustering_waits_for_the_others() -> None:
    talk = Talk()
    talk.hear((5, 3))
    with pytest.raises(AssertionError):
        talk.voices.final_to_run()


# --- properties -------------------------------------------------------------------------------------------

parts = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.3, 0.6, 1.0, 2.5, 4.0])), min_size=1, max_size=4
)


@settings(max_examples=50)
@given(st.lists(parts, min_size=1, max_size=8), st.integers(0, 999))
def test_whatever_the_clusters_a_speaker_once_told_stays(
    segments: list[list[tuple[int, float]]], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    talk = Talk(lambda clustering: generator.integers(0, 4, len(clustering.windows)))
    told: list[list[tuple[float, float, int | None]]] = []
    for segment in segments:
        told.append(talk.say(*segment))
        assert [talk.turns(index) for index in range(len(told))] == told
    assert not talk.voices.waiting


@settings(max_examples=50)
@given(st.lists(parts, min_size=1, max_size=8))
def test_without_mistakes_nobody_is_taken_for_another_at_the_end(
    segments: list[list[tuple[int, float]]],
) -> None:
    talk = Talk()
    for segment in segments:
        talk.hear(*segment, pause_s=1.0)
        talk.embed()
        talk.label()
    if talk.clusterings:
        talk.finish()
    names = {}
    for index, segment in enumerate(segments):
        if len(segment) == 1 and segment[0][1] >= 0.6:
            ((_, _, speaker),) = talk.turns(index)
            assert names.setdefault(segment[0][0], speaker) == speaker
    assert len(set(names.values())) == len(names)


def test_the_last_window_is_embedded_in_the_pause_that_may_end_the_segment() -> None:
    voices, asked = Voices(), []
    voices.receive_probabilities(np.ones(400))
    voices.receive_open(0, 0)
    for end_s in (2.0, 3.4):  # after the first pause he goes on
        voices.receive_position(0, int(end_s * S))
        voices.receive_pause(0, int(end_s * S))
        asked += voices.windows_to_embed()[0]
    voices.receive_close(Segment(0, 0, 0, int(3.4 * S)))
    assert voices.windows_to_embed() == {}
    assert [window.end / S for window in asked] == [1.5, 2.0, 2.25, 3.0, 3.4]
    voices.receive_embeddings(0, asked, np.ones((len(asked), 2), np.float32))
    clustering = voices.clustering_to_run()
    assert clustering is not None
    assert [window.end / S for window in clustering.windows] == [1.5, 2.25, 3.0, 3.4]

"""The voices of one channel: speakers that keep their numbers while a session goes on, and their revision at its end.

Theory. A segment may hold several speakers, so its windows are labelled, not the segment. When it has ended and its
windows are embedded, the latest windows of the session are clustered anew. How many clusters there are is found out
each time, and their numbers mean nothing: they are paired with the speakers that earlier windows were given, so that
as many windows as possible agree. What the windows of an ended segment were given stays until the session ends. Then
everything is clustered once more, and paired in the same way with what was given.

A cluster that is nobody's is a new speaker if it holds two windows that no cluster has given a speaker yet, and is
believed (see belief.py) by how long it goes on in them and by what it sounds like; at the end every cluster has to be
believed. All other windows, and those with too little speech to be clustered, are given the speaker whose mean is
nearest; before there is any speaker, none. Speakers who were not heard for long are clustered along by a few of their
windows: they are known when they come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from realtime_server.core.assignment import pair_clusters
from realtime_server.core.belief import believed
from realtime_server.core.jobs import Embeddings, Labels, Window
from realtime_server.core.segments import Segment
from realtime_server.core.speaker_windows import Speech, windows_of, windows_until
from realtime_server.core.turns import Turn, find_turns

RECENT = 400  # windows clustered while the session goes on: five minutes of speech
REMEMBERED = 12  # windows of each speaker that are among them however long ago they were heard
NEW_AFTER = 2  # windows that make a new speaker


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """What is to be clustered: windows in order of time, and the embedding of each."""

    windows: tuple[Window, ...]
    embeddings: Embeddings
    final: bool


@dataclass(slots=True, eq=False)
class _Voice:
    """A window; sure: it was given its speaker by its cluster."""

    window: Window
    suffices: bool  # to be clustered
    embedding: NDArray[np.float32] | None = None
    speaker: int | None = None
    sure: bool = False

    @property
    def vector(self) -> NDArray[np.float32]:
        assert self.embedding is not None
        return self.embedding


@dataclass(slots=True, eq=False)
class _Spoken:
    """A segment; it has no end while it is open."""

    start: int
    end: int | None = None
    voices: dict[Window, _Voice] = field(default_factory=dict)
    labelled: bool = False

    @property
    def embedded(self) -> bool:
        return self.end is not None and all(v.embedding is not None for v in self.voices.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A clustering that is being computed, and the segments that it labels."""

    voices: Sequence[_Voice]
    embeddings: Embeddings
    segments: Sequence[_Spoken]
    final: bool


class Voices:
    """One channel's speakers; `receive_*` say what happened, `*_to_*` what to do next.

    After `receive_position`, `receive_pause` and `receive_close` the caller embeds `windows_to_embed`; after the last,
    `receive_embeddings` and `receive_labels` it runs `clustering_to_run`, then looks for `turns` it waits for. When the
    session ends and nothing is `waiting` it runs `final_to_run`, then looks at the turns of every segment again.
    """

    def __init__(self) -> None:
        self._speech = Speech()
        self._segments: dict[int, _Spoken] = {}
        self._unlabelled: list[_Spoken] = []  # in order of time, the open one last
        self._to_embed: dict[int, list[Window]] = {}
        self._recent: deque[_Voice] = deque(maxlen=RECENT)
        self._run: _Run | None = None
        self._speakers = _Speakers()

    @property
    def waiting(self) -> bool:
        """Whether labels of a segment are to come, the open one's included."""
        return bool(self._unlabelled)

    # --- what happened ------------------------------------------------------------------------------------

    def receive_probabilities(self, probabilities: ArrayLike) -> None:
        """The next frames' probabilities of speech, told before the segments that follow from them."""
        self._speech.receive_probabilities(probabilities)

    def receive_open(self, segment: int, start: int) -> None:
        """A segment opened at sample `start`."""
        self._segments[segment] = _Spoken(start)
        self._unlabelled.append(self._segments[segment])

    def receive_position(self, segment: int, end: int) -> None:
        """The open segment would end at `end` if nothing more were said: all before it is judged."""
        self._extend(segment, windows_until(self._segments[segment].start, end, self._speech))

    def receive_pause(self, segment: int, end: int) -> None:
        """The speaker pauses; if nothing follows, the segment ends at `end`: its last window need not wait for that."""
        self._extend(segment, windows_of(self._segments[segment].start, end, self._speech))

    def receive_close(self, segment: Segment) -> None:
        """The segment has ended. Windows beyond a cut in mid-speech are forgotten; the next one has its own."""
        spoken = self._segments[segment.index]
        windows = windows_of(segment.start, segment.end, self._speech)
        self._extend(segment.index, windows)
        spoken.end, spoken.voices = segment.end, {window: spoken.voices[window] for window in windows}

    def receive_embeddings(self, segment: int, windows: Sequence[Window], embeddings: Embeddings) -> None:
        """One vector for each of these windows of a segment."""
        voices = self._segments[segment].voices
        for window, embedding in zip(windows, embeddings, strict=True):
            if window in voices:
                voices[window].embedding = embedding

    def receive_labels(self, labels: Labels) -> None:
        """The clusters of the windows in the clustering that was running."""
        assert self._run is not None
        run, self._run = self._run, None
        names = self._names_at_the_end(labels, run) if run.final else self._names(labels, run)
        if run.final:
            self._speakers = _Speakers(self._speakers.count)
        given = [names.get(label) for label in labels.tolist()]
        self._label(run.segments, dict(zip(run.voices, given, strict=True)))

    # --- what to do next ----------------------------------------------------------------------------------

    def windows_to_embed(self) -> dict[int, tuple[Window, ...]]:
        """New windows of each segment, whose audio may be forgotten once they are read; reading drains."""
        windows, self._to_embed = self._to_embed, {}
        return {
            segment: tuple(window for window in due if window in self._segments[segment].voices)
            for segment, due in windows.items()
        }

    def clustering_to_run(self) -> Clustering | None:
        """What to cluster now; None while a clustering is running, or if no segment needs one."""
        ready = list(takewhile(lambda spoken: spoken.embedded, self._unlabelled))
        if self._run or not ready:
            return None
        fresh = _clear(ready)
        self._recent.extend(fresh)
        if fresh:
            return self._start(self._latest(), ready, final=False)
        self._label(ready, {})
        return None

    def final_to_run(self) -> Clustering | None:
        """Everything that was said; None if that is nothing. Whoever needs no labels before may run only this."""
        segments = list(self._segments.values())
        assert self._run is None
        assert all(spoken.embedded for spoken in segments)
        voices = _clear(segments)
        if voices:
            return self._start(voices, segments, final=True)
        self._label(segments, {})
        return None

    def turns(self, segment: int) -> tuple[Turn, ...] | None:
        """Who speaks when in a segment; None as long as its labels are to come."""
        spoken = self._segments[segment]
        if not spoken.labelled or spoken.end is None:
            return None
        speakers = [voice.speaker for voice in spoken.voices.values()]
        return find_turns(spoken.start, spoken.end, list(spoken.voices), speakers)

    # --- inside -------------------------------------------------------------------------------------------

    def _extend(self, segment: int, windows: Iterable[Window]) -> None:
        """Have those of a segment's windows embedded that are new."""
        voices = self._segments[segment].voices
        for window in windows:
            if window not in voices:
                voices[window] = _Voice(window, self._speech.suffices(window))
                self._to_embed.setdefault(segment, []).append(window)

    def _latest(self) -> list[_Voice]:
        recent = list(self._recent)
        older = self._speakers.latest_before(recent[0].window.start)[-RECENT // 2 :]
        return older + recent[max(0, len(older) + len(recent) - RECENT) :]

    def _start(self, voices: list[_Voice], segments: list[_Spoken], *, final: bool) -> Clustering:
        embeddings = np.stack([voice.vector for voice in voices])
        self._run = _Run(voices, embeddings, segments, final)
        return Clustering(tuple(voice.window for voice in voices), embeddings, final)

    def _names(self, labels: Labels, run: _Run) -> dict[int, int]:
        """Speakers of clusters while the session goes on: those that windows have, and new ones."""
        told = [voice.speaker if voice.sure else None for voice in run.voices]
        names = pair_clusters(labels, told)
        evidence = [
            voice.window if who is None else None for voice, who in zip(run.voices, told, strict=True)
        ]
        found = believed(labels, run.embeddings, evidence, self._speech, known=names, least=NEW_AFTER)
        return self._numbered(labels, names, found)

    def _names_at_the_end(self, labels: Labels, run: _Run) -> dict[int, int]:
        """Speakers of clusters that are believed on all that was heard, as far as possible those that were told."""
        evidence = [voice.window for voice in run.voices]
        found = believed(labels, run.embeddings, evidence, self._speech, known=(), least=1)
        chosen = np.isin(labels, list(found))
        told = [voice.speaker for voice, is_chosen in zip(run.voices, chosen, strict=True) if is_chosen]
        return self._numbered(labels, pair_clusters(labels[chosen], told), found)

    def _numbered(self, labels: Labels, names: dict[int, int], found: set[int]) -> dict[int, int]:
        """Number those found who have no name, in order of appearance."""
        new = [label for label in dict.fromkeys(labels.tolist()) if label in found and label not in names]
        return names | {label: self._speakers.count + at for at, label in enumerate(new)}

    def _label(self, segments: Iterable[_Spoken], given: dict[_Voice, int | None]) -> None:
        """Give the windows of these segments their speakers, the nearest to those that were given none."""
        voices = [voice for spoken in segments for voice in spoken.voices.values()]
        for voice in voices:
            voice.speaker = given.get(voice)
            voice.sure = voice.speaker is not None
            self._speakers.add(voice)
        for voice in voices:
            if voice.speaker is None:
                voice.speaker = self._speakers.nearest(voice.vector)
        for spoken in segments:
            spoken.labelled = True
        self._unlabelled = [spoken for spoken in self._unlabelled if not spoken.labelled]


class _Speakers:
    """What each speaker sounds like."""

    def __init__(self, count: int = 0) -> None:
        self.count = count  # speakers so far, which is the number of the next one
        self._sums: dict[int, NDArray[np.float64]] = {}
        self._latest: dict[int, deque[_Voice]] = {}

    def add(self, voice: _Voice) -> None:
        """Learn from a window, if it has a speaker."""
        if voice.speaker is None:
            return
        self.count = max(self.count, voice.speaker + 1)
        self._sums[voice.speaker] = self._sums.get(voice.speaker, 0) + voice.vector.astype(np.float64)
        self._latest.setdefault(voice.speaker, deque(maxlen=REMEMBERED)).append(voice)

    def nearest(self, vector: NDArray[np.float32]) -> int | None:
        """Whose mean is nearest, None if there is nobody."""
        likeness = {
            speaker: float(total @ vector) / float(np.linalg.norm(total) or 1.0)
            for speaker, total in self._sums.items()
        }
        return max(likeness, key=lambda speaker: likeness[speaker], default=None)

    def latest_before(self, position: int) -> list[_Voice]:
        """Of each speaker's latest windows those that started before `position`, in order of time."""
        voices = (voice for latest in self._latest.values() for voice in latest)
        older = [voice for voice in voices if voice.window.start < position]
        return sorted(older, key=lambda voice: voice.window.start)


def _clear(segments: Iterable[_Spoken]) -> list[_Voice]:
    return [voice for spoken in segments for voice in spoken.voices.values() if voice.suffices]

"""Who speaks in one channel, as jobs: what Voices want is handed out, and texts wait until their speakers are known.

A settled text waits for the turns of its segment for WAIT_MS at most; then it is locked whole and without a speaker,
which is told as a revision as soon as it is known. Few windows are in flight at a time: while the embedder is busy,
new ones collect here, and others' come in between. At the end everything is clustered once more; what is not known
END_MS later is not told, unless embeddings still come in meanwhile. A job that fails ends the diarization of the
session: recognition goes on, and whoever was to be told a speaker is told none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from realtime_server.core.jobs import (
    ClusterJob,
    Embeddings,
    EmbedJob,
    Job,
    Labels,
    Probabilities,
    Samples,
    WaitJob,
    Window,
)
from realtime_server.core.recognition import Recognition
from realtime_server.core.segments import Segment, Sentence, SpeakerChange
from realtime_server.core.speakers import Clustering, Voices
from realtime_server.core.turns import Turn, main_speaker, spoken

WAIT_MS = 300  # of a settled text for its speakers
END_MS = 10_000  # from the last lock, or the latest embedding after it, until the end is told as it is known by then
IN_FLIGHT = 2  # EmbedJobs: one that is computed, and the one behind it
AT_ONCE = 8  # windows of one of them

SpeakerJob = EmbedJob | ClusterJob | WaitJob


@dataclass(slots=True)
class _Locked:
    """A sentence that is locked."""

    segment: int
    start: int  # samples, of its first word
    end: int  # of its last
    speaker: int | None  # as it was told


class Diarization:
    """One channel's speakers.

    submit(job) hands a job to the shell; read(start, end) gives the channel's audio, to be kept from `needed` on.
    After each call the caller takes `released` (segments whose text can be locked, with `turns` set), `revised` (what
    is to be told of sentences that are locked) and `problem`; reading drains.
    """

    def __init__(
        self, channel: int, *, session: str, epoch: int, ids: Iterator[int],
        submit: Callable[[Job], None], read: Callable[[int, int], Samples],
    ) -> None:  # fmt: skip
        self._session, self._epoch, self._channel, self._ids = session, epoch, channel, ids
        self._submit, self._read = submit, read
        self._voices: Voices | None = Voices()
        self._to_embed: deque[tuple[int, Window]] = deque()  # by segment, in the order in which they came
        self._embedding = 0  # EmbedJobs in flight
        self._held: dict[int, tuple[WaitJob, Recognition]] = {}  # settled texts by segment
        self._numbers: dict[int, int] = {}  # speakers as they are told, by those of the voices
        self._locked: dict[int, _Locked] = {}  # by the sentence's id
        # Ids of sentences told before their speakers were known, by segment.
        self._untold: dict[int, list[int]] = {}
        self._ending = self._ended = False
        self._embedded = False  # something, since the wait for the end began
        self._last: ClusterJob | None = None  # over everything, in flight
        self._end: WaitJob | None = None  # how long that is waited for
        self._released: list[Recognition] = []
        self._revised: list[SpeakerChange] = []
        self._problem: str | None = None

    @property
    def finished(self) -> bool:
        """Whether, after `receive_end`, nothing more will come."""
        return self._voices is None or self._ended

    @property
    def needed(self) -> int | None:
        """The oldest sample of the windows that are yet to be handed out, None if there are none."""
        return min((window.start for _, window in self._to_embed), default=None)

    def take_released(self) -> list[Recognition]:
        """Segments whose text need not wait any longer."""
        released, self._released = self._released, []
        return released

    def take_revised(self) -> tuple[SpeakerChange, ...]:
        """Locked sentences that have another speaker than was told."""
        revised, self._revised = tuple(self._revised), []
        return revised

    def take_problem(self) -> str | None:
        """Why there are no speakers from now on; told once."""
        problem, self._problem = self._problem, None
        return problem

    # --- what happened ------------------------------------------------------------------------------------

    def receive_probabilities(self, probabilities: Probabilities) -> None:
        """Speech of the next frames, told before the segments that follow from it."""
        if self._voices:
            self._voices.receive_probabilities(probabilities)

    def receive_open(self, segment: int, start: int) -> None:
        """A segment opened at sample `start`."""
        if self._voices:
            self._voices.receive_open(segment, start)

    def receive_position(self, segment: int, end: int) -> None:
        """The open segment would end at `end` if nothing more were said."""
        if self._voices:
            self._voices.receive_position(segment, end)
            self._embed(self._voices)

    def receive_pause(self, segment: int, end: int) -> None:
        """The speaker pauses; if nothing follows, the segment ends at `end`."""
        if self._voices:
            self._voices.receive_pause(segment, end)
            self._embed(self._voices)

    def receive_close(self, segment: Segment) -> None:
        """A segment has ended; its audio is still there."""
        if self._voices:
            self._voices.receive_close(segment)
            self._embed(self._voices)
            self._go_on()

    def receive_settled(self, recognition: Recognition) -> None:
        """A segment's text is settled: it is released at once, or as soon as its speakers are known."""
        assert recognition.settled
        if not recognition.settled.text:
            self._release(recognition, None)
            return
        turns = self._turns(recognition.index)
        if turns is None and self._voices:
            self._held[recognition.index] = self._wait(WAIT_MS), recognition
        else:
            self._release(recognition, turns)

    def receive_locked(self, sentences: Sequence[Sentence]) -> None:
        """A segment is locked with these sentences."""
        if not self._voices:
            return
        for sentence in sentences:
            start, end = spoken(sentence.words, sentence.start_ms, sentence.end_ms)
            self._locked[sentence.id] = _Locked(sentence.segment, start, end, sentence.speaker)
            if self._turns(sentence.segment) is None:
                self._untold.setdefault(sentence.segment, []).append(sentence.id)

    def receive_end(self) -> None:
        """No segment will come, every text is locked: cluster everything once more. Repeating it does nothing."""
        self._ending = True
        self._go_on()
        if not (self.finished or self._end):
            self._await_end()

    def receive_result(self, job: SpeakerJob, result: Embeddings | Labels | None) -> None:
        """The answer to a job; without voices, nobody waits for it."""
        if isinstance(job, WaitJob):
            self._receive_waited(job)
            return
        if self._voices is None or result is None:
            return
        if isinstance(job, EmbedJob):
            self._embedding -= 1
            self._embedded = True
            self._voices.receive_embeddings(job.segment, job.windows, result.astype("float32", copy=False))
            self._embed(self._voices)
        else:
            self._voices.receive_labels(result.astype("int64", copy=False))
            self._ended = job is self._last
        self._go_on()

    def receive_failure(self, job: SpeakerJob, error: Exception) -> None:
        """A job failed or met its deadline: there are no speakers from here on."""
        if isinstance(job, WaitJob):
            self._receive_waited(job)
        elif self._voices:
            self._give_up()
            self._problem = f"speakers are no longer told apart: {error}"
            for _, recognition in list(self._held.values()):
                self._release(recognition, None)

    # --- inside -------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Cluster what can be, release and revise what it tells."""
        voices = self._voices
        if voices is None:
            return
        if clustering := voices.clustering_to_run():
            self._cluster(clustering)
        for segment, (_, recognition) in list(self._held.items()):
            if (turns := self._turns(segment)) is not None:
                self._release(recognition, turns)
        for segment in [segment for segment in self._untold if voices.turns(segment) is not None]:
            self._revise(self._untold.pop(segment))
        if self._ending and not (voices.waiting or self._last):
            self._last = self._cluster_all(voices)
            self._ended = self._last is None
        if self._ended:
            self._revise(list(self._locked))

    def _turns(self, segment: int) -> tuple[Turn, ...] | None:
        """Turns of a segment with words. Speakers are numbered as they come here: noise has a voice, but no number."""
        turns = self._voices.turns(segment) if self._voices else None
        if turns is None:
            return None
        return tuple(
            turn
            if turn.speaker is None
            else replace(turn, speaker=self._numbers.setdefault(turn.speaker, len(self._numbers)))
            for turn in turns
        )

    def _embed(self, voices: Voices) -> None:
        """Hand out what is to be embedded, oldest first, as far as there is room for it."""
        for segment, windows in voices.windows_to_embed().items():
            self._to_embed.extend((segment, window) for window in windows)
        while self._to_embed and self._embedding < IN_FLIGHT:
            segment = self._to_embed[0][0]
            alike = takewhile(lambda due: due[0] == segment, self._to_embed)  # noqa: B023 - used up at once
            windows = tuple(window for _, window in islice(alike, AT_ONCE))
            for _ in windows:
                self._to_embed.popleft()
            self._embedding += 1
            self._submit(EmbedJob(
                next(self._ids), self._session, self._epoch, self._channel, segment, windows,
                tuple(self._read(window.start, window.end) for window in windows),
            ))  # fmt: skip

    def _wait(self, wait_ms: int) -> WaitJob:
        job = WaitJob(next(self._ids), self._session, self._epoch, self._channel, wait_ms)
        self._submit(job)
        return job

    def _give_up(self) -> None:
        """Nothing more will be found out."""
        self._voices = None
        self._to_embed.clear()

    def _cluster_all(self, voices: Voices) -> ClusterJob | None:
        everything = voices.final_to_run()
        return self._cluster(everything) if everything else None

    def _cluster(self, clustering: Clustering) -> ClusterJob:
        job = ClusterJob(
            next(self._ids), self._session, self._epoch, self._channel,
            clustering.windows, clustering.embeddings, clustering.final,
        )  # fmt: skip
        self._submit(job)
        return job

    def _await_end(self) -> None:
        self._embedded = False
        self._end = self._wait(END_MS)

    def _receive_waited(self, job: WaitJob) -> None:
        """A text has waited long enough, unless it waits no longer; or the session's end has."""
        if job is self._end and self._embedded:
            self._await_end()  # a backlog that gets on, as of a recording sent at once
        elif job is self._end:
            self._give_up()
        for waiting, recognition in list(self._held.values()):
            if waiting is job:
                self._release(recognition, None)

    def _release(self, recognition: Recognition, turns: tuple[Turn, ...] | None) -> None:
        self._held.pop(recognition.index, None)
        recognition.turns = turns or ()
        self._released.append(recognition)

    def _revise(self, ids: Sequence[int]) -> None:
        """Tell which of these sentences have another speaker by now."""
        for number in ids:
            sentence = self._locked[number]
            turns = self._turns(sentence.segment)
            after = main_speaker(turns, sentence.start, sentence.end) if turns else sentence.speaker
            if after != sentence.speaker:
                self._revised.append(SpeakerChange(number, sentence.speaker, after))
                sentence.speaker = after

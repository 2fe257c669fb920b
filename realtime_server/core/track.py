"""One channel of a session: from samples to segments and their texts.

Audio is framed and scored in order, one ScoreJob at a time (a busy scorer gets longer jobs, not more of them).
The endpointer turns scores into segments; each segment is a Recognition until its text is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import cast

from realtime_server.core.audio import AudioBuffer
from realtime_server.core.diarization import Diarization
from realtime_server.core.endpointing import (
    Endpointer,
    EndpointEvent,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
)
from realtime_server.core.jobs import (
    Capabilities,
    Decoded,
    DecodeJob,
    DecodeKind,
    DecodingOptions,
    Embeddings,
    Job,
    Labels,
    Priority,
    Probabilities,
    Result,
    Samples,
    ScoreJob,
)
from realtime_server.core.partials import PartialPlanner
from realtime_server.core.recognition import Recognition
from realtime_server.core.segments import FRAME, Sentence, SpeakerChange
from realtime_server.core.settings import SessionSettings

SCORE_AT_MOST = 10 * FRAME  # samples of one ScoreJob: bounds how long one session keeps the scorer


@dataclass(frozen=True, slots=True)
class TrackContext:
    """What a track shares with its session."""

    session: str
    epoch: int
    settings: SessionSettings
    capabilities: Capabilities
    ids: Iterator[int]
    options: Callable[[], DecodingOptions]  # those in force, for a segment that opens now


@dataclass(slots=True)
class TrackOutput:
    """What a track wants done and told since it was last drained."""

    jobs: list[Job] = field(default_factory=list)
    cancelled: list[DecodeJob] = field(default_factory=list)
    hastened: list[DecodeJob] = field(default_factory=list)
    opened: list[Recognition] = field(default_factory=list)
    shown: list[Recognition] = field(default_factory=list)
    closed: list[Recognition] = field(default_factory=list)
    settled: list[Recognition] = field(default_factory=list)
    revised: tuple[SpeakerChange, ...] = ()
    problem: str | None = None  # for the client

    def __bool__(self) -> bool:
        """Whether there is anything."""
        lists = self.jobs or self.cancelled or self.hastened or self.opened or self.shown or self.closed
        return bool(lists or self.settled or self.revised or self.problem)


class Track:
    """One channel; `receive_*` say what happened, `output` says what to do next."""

    def __init__(self, channel: int, context: TrackContext) -> None:
        self.channel = channel
        self.output = TrackOutput()
        self.ended = False  # everything is scored and no further segment will come
        self._context = context
        self._buffer = AudioBuffer()
        self._endpointer = Endpointer(context.settings.endpointing, self._buffer.quietest)
        self._scored = 0  # samples handed to the scorer
        self._scoring = self._scored_any = self._last = False
        self._close_at: int | None = None  # where the open segment is to be closed, once that much is scored
        self._scorer_failed = False
        self._live: list[Recognition] = []  # not settled yet, oldest first
        self._by_job: dict[int, Recognition] = {}
        self._segments = 0
        self._load_ms = 0.0
        self._language: str | None = None  # of the latest text that was settled
        self._diarization = self._start_diarization() if context.settings.speakers else None

    @property
    def received(self) -> int:
        """Samples received."""
        return self._buffer.end

    @property
    def heard(self) -> int:
        """Samples whose fate is known once the track has ended: all, unless the scorer failed."""
        return self.accounted if self._scorer_failed else self._buffer.end

    @property
    def unsettled(self) -> bool:
        """Whether a segment is open or waits for its text."""
        return bool(self._live)

    @property
    def finished(self) -> bool:
        """Whether, after `receive_all_locked`, no speaker will be revised any more."""
        return self._diarization is None or self._diarization.finished

    @property
    def accounted(self) -> int:
        """Every sample before it is in a settled segment, in a shown partial, or judged to hold no speech.

        Nor does it wait to be handed out for its speaker: audio that is kept for that is not accounted for.
        """
        told, needed = self._told, self._needed
        return told if needed is None else min(told, needed)

    @property
    def _needed(self) -> int | None:
        return self._diarization.needed if self._diarization else None

    @property
    def _told(self) -> int:
        for live in self._live:
            reached = live.segment.end if live.segment else self._endpointer.speech_end
            if live.covered < reached:
                return live.covered
        return self._endpointer.position if self._open else self._endpointer.settled

    @property
    def _open(self) -> Recognition | None:
        return self._live[-1] if self._live and not self._live[-1].segment else None

    # --- what happened ------------------------------------------------------------------------------------

    def receive_audio(self, samples: Samples) -> None:
        """More audio, float32 (n,), 16 kHz."""
        self._buffer.append(samples)
        self._score()

    def receive_last(self) -> None:
        """No more audio will come: flush, close the open segment."""
        self._last = True
        self._score()

    def receive_close_open(self) -> None:
        """Close the open segment, if there is one, where the audio ends now, once that is scored; then go on."""
        self._close_at = self._buffer.end
        self._score()

    @property
    def closing(self) -> bool:
        """Whether audio that came before `receive_close_open` is still being scored."""
        return self._close_at is not None

    def receive_turn(self, job: DecodeJob) -> DecodeJob:
        """The engine begins a job only now; return it as it should be run by now."""
        recognition = self._by_job.get(job.id)
        end = recognition.receive_turn(job, self._endpointer.position) if recognition else job.end
        return job if end == job.end else replace(job, end=end, audio=self._buffer.read(job.start, end))

    def receive_result(self, job: Job, result: Result) -> None:
        """The answer to a job."""
        match job:
            case ScoreJob():
                self._receive_scores(job, cast(Probabilities, result))
            case DecodeJob():
                self._receive_decoded(job, cast(Decoded, result))
            case _:
                assert self._diarization
                self._diarization.receive_result(job, cast(Embeddings | Labels | None, result))
                self._forget_audio()
        self._take_speakers()

    def receive_failure(self, job: Job, error: Exception) -> None:
        """A job failed. A scorer has then lost its stream: what is open ends here, nothing more can be heard."""
        match job:
            case ScoreJob():
                self._receive_scorer_failure()
            case DecodeJob():
                recognition = self._by_job.pop(job.id)
                recognition.receive_failure(job, error)
                self._after_answer(recognition)
            case _:
                assert self._diarization
                self._diarization.receive_failure(job, error)
        self._take_speakers()

    def receive_locked(self, sentences: Sequence[Sentence]) -> None:
        """A settled segment was locked with these sentences."""
        if self._diarization:
            self._diarization.receive_locked(sentences)

    def receive_all_locked(self) -> None:
        """The track has ended and everything it settled is locked: its speakers can be revised."""
        if self._diarization:
            self._diarization.receive_end()
            self._take_speakers()

    # --- inside -------------------------------------------------------------------------------------------

    def _receive_scores(self, job: ScoreJob, probabilities: Probabilities) -> None:
        self._scoring = False
        if self._diarization:
            self._diarization.receive_probabilities(probabilities)
        self._receive_endpoints(self._endpointer.receive_probabilities(probabilities))
        if job.last:
            self._receive_endpoints(self._endpointer.receive_end(self._buffer.end))
            self.ended = True
        if self._diarization and self._open:
            self._diarization.receive_position(self._open.index, self._endpointer.speech_end)
        self._ask_for_partial()
        self._forget_audio()
        self._score()

    def _receive_scorer_failure(self) -> None:
        self._scoring = False
        self._scorer_failed = self.ended = True
        self._close_at = None
        self._receive_endpoints(self._endpointer.receive_commit(self._buffer.end))

    def _receive_decoded(self, job: DecodeJob, decoded: Decoded) -> None:
        recognition = self._by_job.pop(job.id)
        self._load_ms += 0.3 * (decoded.took_ms - self._load_ms)
        before = recognition.shown, recognition.covered
        recognition.receive_decoded(job, decoded)
        if (recognition.shown, recognition.covered) != before:
            self.output.shown.append(recognition)
        self._after_answer(recognition)

    def _after_answer(self, recognition: Recognition) -> None:
        if recognition.settled and self._diarization:
            self._diarization.receive_settled(recognition)
            self._take_speakers()
        elif recognition.settled:
            self._release(recognition)
        self._ask_for_partial()

    def _release(self, recognition: Recognition) -> None:
        assert recognition.settled
        if recognition.settled.text:
            self._language = recognition.settled.language or self._language
        self._live.remove(recognition)
        self.output.settled.append(recognition)

    def _start_diarization(self) -> Diarization:
        context = self._context
        return Diarization(
            self.channel, session=context.session, epoch=context.epoch, ids=context.ids,
            submit=lambda job: self.output.jobs.append(job), read=self._buffer.read,
        )  # fmt: skip

    def _take_speakers(self) -> None:
        """Move what the diarization wants told into the output."""
        if self._diarization is None:
            return
        for recognition in self._diarization.take_released():
            self._release(recognition)
        self.output.revised += self._diarization.take_revised()
        self.output.problem = self.output.problem or self._diarization.take_problem()

    def _ask_for_partial(self) -> None:
        """Let the open segment ask, unless the one before it still shows words of this one.

        A segment cut in mid-speech was shown past its cut; until it is locked, its text would say them twice.
        """
        if not self._context.settings.partials:
            return
        if self._open is None or (len(self._live) > 1 and self._live[-2].covered > self._open.start):
            return
        self._open.receive_position(self._endpointer.position, load_ms=self._load_ms)

    def _score(self) -> None:
        """Hand out the next ScoreJob, unless one is in flight or there is nothing to score."""
        if self._scoring or self.ended:
            return
        if self._close_at is not None and self._close_at - self._scored < FRAME:
            self._receive_endpoints(self._endpointer.receive_commit(self._close_at))
            self._close_at = None
        ahead = (self._buffer.end if self._close_at is None else self._close_at) - self._scored
        last = self._last and self._close_at is None and ahead < SCORE_AT_MOST + FRAME
        count = ahead if last else min(ahead - ahead % FRAME, SCORE_AT_MOST)
        if last and not self._scored_any and not count:
            self.ended = True
        elif last or count:
            self._hand_out(count, last)

    def _hand_out(self, count: int, last: bool) -> None:
        context = self._context
        samples = self._buffer.read(self._scored, self._scored + count)
        job = ScoreJob(
            id=next(context.ids), session=context.session, epoch=context.epoch, channel=self.channel,
            samples=samples, first=not self._scored_any, last=last,
        )  # fmt: skip
        self._scored += count
        self._scoring = self._scored_any = True
        self.output.jobs.append(job)

    def _receive_endpoints(self, events: list[EndpointEvent]) -> None:
        for event, following in zip_longest(events, events[1:]):
            if isinstance(event, SpeechStarted):
                self._open_segment(event.start)
                continue
            assert self._open is not None
            if isinstance(event, SpeechPaused):
                eager = self._load_ms <= self._context.settings.pace.eager_limit_ms
                self._open.receive_pause(event.end, eager=eager)
                if self._diarization:
                    self._diarization.receive_pause(self._open.index, event.end)
            elif isinstance(event, SpeechResumed):
                self._open.receive_resume()
            else:
                goes_on = isinstance(following, SpeechStarted) and following.start == event.end
                heard_until = event.end if goes_on else max(event.end, self._endpointer.position)
                self._close_segment(self._open, event, heard_until)

    def _open_segment(self, start: int) -> None:
        context, index, options = self._context, self._segments, self._context.options()
        self._segments += 1

        def submit(
            kind: DecodeKind, priority: Priority, first: int, last: int, prefix_text: str
        ) -> DecodeJob:
            job = DecodeJob(
                id=next(context.ids), session=context.session, epoch=context.epoch, channel=self.channel,
                kind=kind, priority=priority, segment=index, start=first, end=last,
                audio=self._buffer.read(first, last), prefix_text=prefix_text,
                # Not for finals: their text must not depend on which of them was answered first.
                options=replace(options, expected=self._language) if kind == "partial" else options,
            )  # fmt: skip
            # Found, not captured: a recognition that refers to itself, audio and all, is freed late.
            self._by_job[job.id] = next(live for live in self._live if live.index == index)
            self.output.jobs.append(job)
            return job

        planner = PartialPlanner(
            start,
            pace=context.settings.pace,
            window_s=context.capabilities.partial_window_s,
            find_quiet=self._buffer.quietest,
        )
        recognition = Recognition(
            index, self.channel, start, planner=planner, submit=submit, cancel=self._cancel,
            hasten=lambda job: self.output.hastened.append(job), continues=context.capabilities.prefix,
        )  # fmt: skip
        self._live.append(recognition)
        self.output.opened.append(recognition)
        if self._diarization:
            self._diarization.receive_open(index, start)

    def _close_segment(self, recognition: Recognition, ended: SpeechEnded, heard_until: int) -> None:
        segment = recognition.receive_close(
            ended.start, ended.end, heard_until=heard_until, noticed=self._endpointer.position
        )
        self.output.closed.append(recognition)
        if self._diarization:
            self._diarization.receive_close(segment)
            self._take_speakers()
        if recognition.settled:
            self._after_answer(recognition)

    def _cancel(self, job: DecodeJob) -> None:
        self._by_job.pop(job.id, None)
        self.output.cancelled.append(job)

    def _forget_audio(self) -> None:
        """Audio is kept back to the oldest position that some job may still need."""
        oldest = min(live.start for live in self._live) if self._live else self._endpointer.settled
        if (needed := self._needed) is not None:
            oldest = min(oldest, needed)
        self._buffer.discard_before(min(oldest, self._endpointer.settled))

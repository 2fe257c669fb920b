"""A session's state machine over its tracks. It decides; it never waits, computes or sends.

States and the commands they obey (anything not listed is refused with a Failed event, the state stays):

    IDLE        START -> ACTIVE; STOP answers Stopped; settings are kept for the next START; audio is ignored
    ACTIVE      START discards and begins again; STOP -> STOPPING; COMMIT (client endpointing) -> COMMITTING
    COMMITTING  waits until all that was heard before COMMIT is locked, tells Committed -> ACTIVE
    STOPPING    waits until all that was heard is locked, tells Finished, Stopped -> IDLE (ENDED after `receive_end`)
    ENDED       takes nothing and tells nothing more

What arrives while COMMITTING or STOPPING waits in the inbox and is taken in order afterwards: a client may send
START, settings and audio right behind a STOP. In protocol 1 what happens meanwhile is told with the final, which is
the next thing that the client hears; protocol 2 tells it as it happens. The caller feeds `receive_*`, then drains
`jobs_to_run`, `jobs_to_hasten`, `jobs_to_cancel` and `events_to_send`, in this order, after every call.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from enum import Enum, auto
from typing import Literal

import numpy as np

from realtime_server.core import messages as m
from realtime_server.core.counts import SessionCounts
from realtime_server.core.inbox import Channels, Inbox
from realtime_server.core.jobs import Capabilities, DecodeJob, Job, Result, ScoreJob
from realtime_server.core.outbox import Outbox
from realtime_server.core.postprocess import LONGEST_REPLACED
from realtime_server.core.postprocess import replace as replace_texts
from realtime_server.core.recognition import Recognition
from realtime_server.core.segments import Segment, to_samples
from realtime_server.core.session_options import SessionOptions
from realtime_server.core.settings import SessionSettings
from realtime_server.core.setup import Setup, StartRequest
from realtime_server.core.track import Track, TrackContext
from realtime_server.core.transcript import Lock, Transcript
from realtime_server.core.turns import Turn, split_text


class State(Enum):
    """See the module's docstring."""

    IDLE = auto()
    ACTIVE = auto()
    COMMITTING = auto()
    STOPPING = auto()
    ENDED = auto()


class _End:
    """Stands in the inbox for `receive_end`."""


class SessionProtocol:
    """One client's session; see the module's docstring for states and for what the caller must do."""

    def __init__(self, session: str, settings: SessionSettings, capabilities: Capabilities) -> None:
        self.state = State.IDLE
        self.counts = SessionCounts()
        self._session, self._settings, self._capabilities = session, settings, capabilities
        self._options = SessionOptions(settings, capabilities)
        self._epoch = 0
        self._ids = itertools.count()
        self._tracks: list[Track] = []
        self._transcript = Transcript()
        self._inbox: Inbox[m.Command | _End] = Inbox()
        self._outbox = Outbox(self.counts)
        self._setup = Setup()  # of the session that runs
        self._commit_id: str | None = None
        self._ending: m.Closing | None = None
        self._ending_error: m.Failed | None = None
        self._upto = 0
        self._jobs: list[Job] = []
        self._hastened: list[int] = []
        self._cancelled: list[int] = []
        self._in_flight: set[int] = set()

    # --- what happened ------------------------------------------------------------------------------------

    def prepare(self, command: m.Command) -> m.Command:
        """Return a command as it is to be received: a START with settings as what it comes to, or as what refuses it.

        Audio that follows a `Start` is in the format of its `setup`, if it has one.
        """
        return self._options.prepare(command) if isinstance(command, StartRequest) else command

    def receive_command(self, command: m.Command) -> None:
        """A client's command, from `prepare`; answered now or, behind a pending STOP or COMMIT, in its turn."""
        self._receive(command)

    def receive_audio(self, samples: Channels) -> None:
        """A client's audio, float32 (channels, n), 16 kHz; ignored while no session is active."""
        self._receive(samples)

    def receive_end(self) -> None:
        """The connection is lost or the server stops: what was heard is decoded, then the state is ENDED."""
        self._receive(_End())

    def receive_stall(self) -> None:
        """No audio has come for a while: the open segment is closed; the session goes on."""
        if self.state is State.ACTIVE:
            for track in self._tracks:
                track.receive_close_open()
            self._drain()

    def receive_turn(self, job: DecodeJob) -> DecodeJob:
        """A job from `jobs_to_run` had to wait and is begun only now: run what is returned in its place."""
        return self._tracks[job.channel].receive_turn(job) if job.id in self._in_flight else job

    def receive_result(self, job: Job, result: Result) -> None:
        """The answer to a job from `jobs_to_run`; of an earlier epoch or cancelled, it is dropped."""
        if not self._is_current(job):
            return
        if isinstance(job, DecodeJob):
            self.counts.partials += job.kind == "partial"
        self._tracks[job.channel].receive_result(job, result)
        self._drain()

    def receive_failure(self, job: Job, error: Exception) -> None:
        """A job from `jobs_to_run` failed or met its deadline."""
        if not self._is_current(job):
            return
        track = self._tracks[job.channel]
        track.receive_failure(job, error)
        if isinstance(job, ScoreJob):
            self._end_with("internal", f"voice activity detection failed: {error}; start a new session", 1011)
        elif isinstance(job, DecodeJob):
            self.counts.decode_failures += 1
        self._drain()

    # --- what to do next ----------------------------------------------------------------------------------

    def jobs_to_run(self) -> list[Job]:
        """Jobs to start now; each must be followed by `receive_result` or `receive_failure` unless cancelled."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def jobs_to_hasten(self) -> list[int]:
        """Ids of started jobs that are finals from now on, whatever they were when they were handed out."""
        hastened, self._hastened = self._hastened, []
        return hastened

    def jobs_to_cancel(self) -> list[int]:
        """Ids of started jobs whose answer nobody waits for."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    def events_to_send(self) -> list[m.Event]:
        """Events for the client, in order."""
        return self._outbox.take()

    # --- commands -----------------------------------------------------------------------------------------

    def _receive(self, item: m.Command | Channels | _End) -> None:
        if self.state is State.ENDED:
            return
        if self.state in (State.COMMITTING, State.STOPPING):
            self._enqueue(item)
        else:
            self._handle(item)
        self._drain()

    def _enqueue(self, item: m.Command | Channels | _End) -> None:
        if self._ending and not isinstance(item, _End):
            return  # the session has been ended for cause; nothing more is taken
        if isinstance(item, np.ndarray):
            self._inbox.add_audio(item)
            self._check_undecoded(self._tracks[0].received)
            return
        self._inbox.add_command(item)
        if self._inbox.commands > self._settings.limits.queued_commands:
            text = "too many commands are waiting behind STOP or COMMIT; read the answers"
            self._end_with("limit", text, 1008)

    def _handle(self, item: m.Command | Channels | _End) -> None:
        match item:
            case np.ndarray():
                self._take_audio(item)
            case _End():
                self._end()
            case m.Start():
                self._start(item)
            case m.Stop() if self.state is State.ACTIVE:
                self._stop()
            case m.Stop():
                self._tell(m.Stopped(upto=self._upto, totals=self._outbox.totals()))
            case m.Commit(id=id):
                self._commit(id)
            case m.Invalid():
                self._tell(m.Failed(
                    upto=self._upto, code=item.code, message=item.message, field=item.field, protocol=item.protocol
                ))  # fmt: skip
            case m.SetHotwords() | m.SetLanguage() | m.SetReplacements():
                for event in self._options.receive_command(item, self._upto):
                    self._tell(event)
            case _:
                raise ValueError(f"{item!r} was not prepared")

    def _start(self, start: m.Start) -> None:
        for job_id in self._in_flight:
            self._cancelled.append(job_id)
        self._in_flight.clear()
        self._jobs.clear()
        self._epoch += 1
        setup = self._setup = self._options.begin(start)
        context = TrackContext(
            session=self._session,
            epoch=self._epoch,
            settings=replace(
                self._settings,
                endpointing=setup.endpointing,
                speakers=setup.speakers,
                partials=setup.partials,
            ),
            capabilities=self._capabilities,
            ids=self._ids,
            options=lambda: self._options.decoding,
        )
        self._tracks = [Track(channel, context) for channel in range(setup.audio.channels)]
        self._transcript = Transcript()
        self._upto = 0
        self._outbox.begin(setup.protocol)
        self.counts.sessions += 1
        self.state = State.ACTIVE
        self._tell(m.Started(upto=0, setup=setup))
        for code, message in start.warnings:
            self._tell(m.Warned(upto=0, code=code, message=message))

    def _stop(self) -> None:
        self.state = State.STOPPING
        for track in self._tracks:
            track.receive_last()

    def _commit(self, id: str | None) -> None:
        if self.state is not State.ACTIVE:
            self._fail("bad_request", "Session is not active; send START first")
        elif self._setup.endpointing.mode != "client" and self._setup.protocol == 1:
            self._fail("bad_request", "COMMIT requires --endpoint-mode client")
        else:
            self.state = State.COMMITTING
            self._commit_id = id
            for track in self._tracks:
                track.receive_close_open()

    def _end(self) -> None:
        if self.state is State.ACTIVE:
            self._ending = self._ending or m.Closing(
                upto=self._upto, close_code=1012, reason="the server stops"
            )
            self._stop()
        else:
            self.state = State.ENDED

    # --- audio and limits ---------------------------------------------------------------------------------

    def _take_audio(self, samples: Channels) -> None:
        if self.state is not State.ACTIVE:
            return
        if self._feed(samples):
            limit = self._settings.limits.session_s
            self._end_with("limit", f"the session reached its limit of {limit:g} s of audio", 1008)
        self._check_undecoded(self._tracks[0].received)

    def _feed(self, samples: Channels) -> bool:
        """Hand audio to the tracks, as much as a session may have; True if that was not all."""
        room = to_samples(self._settings.limits.session_s * 1000) - self._tracks[0].received
        for track, channel in zip(self._tracks, samples, strict=True):
            track.receive_audio(channel[:room])
        self.counts.audio_samples += min(samples.shape[1], room)
        return bool(samples.shape[1] > room)

    def _check_undecoded(self, received: int) -> None:
        limit = self._settings.limits.undecoded_s
        if received - self._upto + self._inbox.samples > to_samples(limit * 1000):
            text = f"more than {limit:g} s of audio wait to be decoded; send no faster than it is recognised"
            self._end_with("limit", text, 1008)

    def _end_with(self, code: str, message: str, close_code: int) -> None:
        """End the session for cause: what was heard is decoded and told, then the error, then the close."""
        if self._ending_error is None:
            self._ending_error = m.Failed(upto=self._upto, code=code, message=message, fatal=True)
        if self._ending:
            return
        self._ending = m.Closing(upto=self._upto, close_code=close_code, reason=code.replace("_", " "))
        if self.state is State.COMMITTING:
            self._hear_inbox()
        self._inbox.clear()
        if self.state is not State.STOPPING:
            self._stop()

    def _hear_inbox(self) -> None:
        """Take the audio behind a pending COMMIT that is still this session's."""
        while self._inbox:
            item = self._inbox.take()
            if isinstance(item, m.Start | m.Stop | _End):
                return
            if isinstance(item, np.ndarray):
                self._feed(item)

    # --- from the tracks to the client --------------------------------------------------------------------

    def _drain(self) -> None:
        """Move what the tracks want into jobs and events, and go on with what waits when they are done."""
        while True:
            for track in self._tracks:
                while track.output:  # a limit met on the way ends the track
                    self._drain_track(track)
            self._advance_upto()
            if not self._finish_wait():
                return
            while self._inbox and self.state in (State.IDLE, State.ACTIVE):
                self._handle(self._inbox.take())

    def _drain_track(self, track: Track) -> None:
        output, track.output = track.output, type(track.output)()
        for recognition in output.opened:
            self._tell(m.SegmentOpened(
                upto=self._upto, channel=track.channel, segment=recognition.index, start=recognition.start
            ))  # fmt: skip
        for recognition in output.closed:
            assert recognition.segment
            self._close(recognition.segment)
            self.counts.folded += recognition.folded
        for recognition in output.shown:
            self._show(recognition)
        for recognition in output.settled:
            self._lock(recognition)
        if output.revised:
            reason: Literal["live", "final"] = "final" if self.state is State.STOPPING else "live"
            self._tell(m.SpeakersRevised(upto=self._upto, changes=output.revised, reason=reason))
        if output.problem:
            self._fail("speakers", output.problem)
        for job in output.cancelled:
            if job in output.jobs:
                output.jobs.remove(job)  # made and taken back within one call
            else:
                self._in_flight.discard(job.id)
                self._cancelled.append(job.id)
                self.counts.cancelled += job.kind == "partial"
        self._hastened += [job.id for job in output.hastened]
        self._in_flight.update(job.id for job in output.jobs)
        self._jobs += output.jobs

    def _close(self, segment: Segment) -> None:
        self.counts.segments += 1
        self.counts.speech_samples += segment.end - segment.start
        self._transcript.receive_segment(segment)
        self._tell(m.SegmentClosed(
            upto=self._upto, channel=segment.channel, segment=segment.index, end=segment.end
        ))  # fmt: skip

    def _show(self, recognition: Recognition) -> None:
        self._advance_upto()
        self._tell(m.PartialChanged(
            upto=self._upto, channel=recognition.channel, segment=recognition.index,
            start=recognition.start, end=recognition.covered, text=recognition.shown,
            stable=recognition.stable, unstable=recognition.unstable,
        ))  # fmt: skip

    def _lock(self, recognition: Recognition) -> None:
        assert recognition.segment
        assert recognition.settled
        segment, settled = recognition.segment, recognition.settled
        turns = recognition.turns or (Turn(segment.start, segment.end, None),)
        limits = self._settings.limits
        # A session that has reached its limit ends; replacements make no longer what is still to be locked.
        most = LONGEST_REPLACED if self._transcript.characters < limits.characters else 0
        pieces = [
            # Only now: what stands for other words has no places in the text that was decoded.
            replace(piece, text=replace_texts(piece.text, self._options.replacements, most=most))
            for piece in split_text(settled.text, settled.words, turns)
        ]
        for lock in self._transcript.receive_settled(segment, settled, pieces):
            self._tell_lock(lock)
        if self._transcript.count >= limits.sentences:
            self._end_with("limit", f"the session reached its limit of {limits.sentences} sentences", 1008)
        if self._transcript.characters >= limits.characters:
            self._end_with("limit", f"the session reached its limit of {limits.characters} characters", 1008)

    def _tell_lock(self, lock: Lock) -> None:
        segment, flags = lock.segment, lock.settled.flags
        self.counts.sentences += len(lock.sentences)
        self.counts.recovered += "recovered" in flags
        self.counts.truncated += "truncated" in flags
        self.counts.failed += "failed" in flags
        self._advance_upto()
        self._tell(m.SegmentLocked(
            upto=self._upto, channel=segment.channel, segment=segment.index, sentences=lock.sentences,
            eager=lock.settled.eager, noticed=lock.settled.noticed,
        ))  # fmt: skip
        self._tracks[segment.channel].receive_locked(lock.sentences)
        if lock.settled.error:
            span = f"{segment.start_ms / 1000:.1f} to {segment.end_ms / 1000:.1f} s"
            text = f"the audio from {span} could not be recognised: {lock.settled.error}"
            self._tell(m.Failed(
                upto=self._upto, code="segment_failed", message=text, channel=segment.channel, segment=segment.index
            ))  # fmt: skip

    def _advance_upto(self) -> None:
        self._upto = max(self._upto, min((track.accounted for track in self._tracks), default=0))
        if self.state is State.ACTIVE:
            self._outbox.tell_progress(self._upto, self._tracks[0].received)

    def _finish_wait(self) -> bool:
        """Leave COMMITTING or STOPPING if everything waited for is locked; True if the state changed."""
        if self.state is State.COMMITTING:
            if any(track.closing or track.unsettled for track in self._tracks):
                return False
            self.state = State.ACTIVE
            self._upto = self._tracks[0].received
            self._outbox.tell_final(m.Committed(upto=self._upto, id=self._commit_id))
            return True
        if self.state is not State.STOPPING or not all(t.ended and not t.unsettled for t in self._tracks):
            return False
        for track in self._tracks:
            track.receive_all_locked()
            self._drain_track(track)
        if not all(track.finished for track in self._tracks):
            return False
        self.state = State.ENDED if self._ending else State.IDLE
        self._upto = max(self._upto, min(track.heard for track in self._tracks))
        self._outbox.tell_final(m.Finished(upto=self._upto))
        if self._ending is None:
            self._tell(m.Stopped(upto=self._upto, totals=self._outbox.totals()))
            return True
        if self._ending_error:
            self._tell(self._ending_error)
        self._tell(self._ending)
        return True

    def _tell(self, event: m.Event) -> None:
        self._outbox.tell(event, ending=self.state in (State.COMMITTING, State.STOPPING))

    def _fail(self, code: str, message: str) -> None:
        self._tell(m.Failed(upto=self._upto, code=code, message=message))

    def _is_current(self, job: Job) -> bool:
        """Whether anybody waits for this job's answer."""
        if job.id not in self._in_flight:
            return False
        self._in_flight.discard(job.id)
        return True

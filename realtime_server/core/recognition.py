"""The texts of one segment: partials while it is open, an eager final in its pauses, the final, the fallbacks.

States, by what happened last:

    open ──receive_pause──▶ paused ──receive_close──▶ closed ──(text or failure)──▶ settled
     ▲  ◀──receive_resume──┘                          ▲
     └───────────────receive_close────────────────────┘

An eager final decodes, in a pause, exactly the samples that the endpoint would lock. If the endpoint confirms,
its text is the final (one that is not answered yet is hastened: it is as urgent as any final now); if speech resumes
it is discarded. Meanwhile it is shown as a partial, in so far as it does not change what earlier windows settled.
A final that failed is tried once more; after that the latest partial stands in for it, and the sentence says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, Priority
from realtime_server.core.partials import PartialPlanner
from realtime_server.core.postprocess import clean
from realtime_server.core.segments import SAMPLE_RATE, Flag, Segment
from realtime_server.core.stabilization import StableText, recover
from realtime_server.core.transcript import Settled
from realtime_server.core.turns import Turn
from realtime_server.errors import EngineTimeoutError

Submit = Callable[[DecodeKind, Priority, int, int, str], DecodeJob]


class Recognition:
    """One segment's way from audio to settled text.

    submit(kind, priority, start, end, prefix_text) makes a job and hands it to the shell; cancel(job) takes one
    back; hasten(job), where jobs wait for each other, makes one as urgent as a final.  continues: partials are decoded
    as continuation of their stable text, so that only the tail is generated; finals are always decoded free.
    After each call the caller looks at `shown` (the partial to show), `covered` and `settled`.
    """

    def __init__(
        self, index: int, channel: int, start: int, *,
        planner: PartialPlanner, submit: Submit, cancel: Callable[[DecodeJob], None],
        hasten: Callable[[DecodeJob], None] | None = None, continues: bool = False,
    ) -> None:  # fmt: skip
        self.index, self.channel, self.start = index, channel, start
        self.segment: Segment | None = None  # set when it has ended
        self.shown = ""  # the whole text so far
        self.covered = start  # samples before this are in `shown`
        self.settled: Settled | None = None
        self.turns: tuple[Turn, ...] = ()  # who speaks when, if that is known when the text is locked
        self._planner, self._submit, self._continues = planner, submit, continues
        self._cancel, self._hasten = cancel, hasten
        self._stable = StableText()
        self._partial: DecodeJob | None = None  # in flight
        self._eager: DecodeJob | None = None  # in flight or answered
        self._eager_answer: Decoded | None = None
        self._pause_end: int | None = None
        self._retried = False
        self._heard_until = self._noticed = start

    @property
    def folded(self) -> int:
        """Partials that were due and not asked for; see PartialPlanner."""
        return self._planner.folded

    @property
    def stable(self) -> str:
        """The beginning of the text so far that no later partial takes back."""
        return self._stable.stable

    @property
    def unstable(self) -> str:
        """What follows it."""
        return self._stable.unstable

    def receive_position(self, position: int, *, load_ms: float) -> None:
        """Samples up to `position` are judged: ask for a partial if one is due."""
        if self._pause_end is not None and (self._eager or self.covered >= self._pause_end):
            return  # only silence since: nothing to add
        request = self._planner.take_request(position, load_ms=load_ms)
        if request:
            priority = Priority.FIRST_PARTIAL if request.first else Priority.REFRESH
            # The stable text begins where the segment does; a later window has no known beginning.
            prefix = self._stable.stable if self._continues and request.start == self.start else ""
            self._partial = self._submit("partial", priority, request.start, request.end, prefix)

    def receive_turn(self, job: DecodeJob, position: int) -> int:
        """The engine begins a job only now: return where it should end, for a partial with what was heard since."""
        return self._planner.receive_turn(position) if _same(job, self._partial) else job.end

    def receive_pause(self, end: int, *, eager: bool) -> None:
        """The speaker pauses; if nothing follows, the segment is [start, end)."""
        self._pause_end = end
        if eager:
            self._eager = self._submit("eager", Priority.EAGER, self.start, end, "")

    def receive_resume(self) -> None:
        """The speaker goes on: what was decoded eagerly is not the final."""
        self._pause_end = None
        self._drop_eager()

    def receive_close(self, start: int, end: int, *, heard_until: int, noticed: int | None = None) -> Segment:
        """The segment is [start, end): get its final.

        heard_until: partials that cover audio up to there say nothing of what follows the segment.
        noticed: samples judged by now, if that is more.
        """
        self.segment = Segment(self.index, self.channel, start, end)
        self._heard_until, self._noticed = heard_until, noticed or heard_until
        self._planner.receive_end(end)
        if self._partial:
            self._cancel(self._partial)
            self._partial = None
        if self._eager and (self._eager.start, self._eager.end) == (start, end):
            if self._eager_answer:
                self._settle(self._eager_answer, eager=True)
            elif self._hasten:
                self._hasten(self._eager)
            return self.segment
        self._drop_eager()
        self._submit("final", Priority.FINAL, start, end, "")
        return self.segment

    def receive_decoded(self, job: DecodeJob, decoded: Decoded) -> None:
        """A job of this segment was answered."""
        if _same(job, self._partial):
            self._partial = None
            text = self._planner.receive_text(_cleaned(job, decoded))
            if text is not None and job.end > self.covered:
                self._show(text, job.end)
        elif _same(job, self._eager):
            self._eager_answer = decoded
            if self.segment:
                self._settle(decoded, eager=True)
            else:
                self._show(self._planner.join_whole(_cleaned(job, decoded)), job.end)
        elif job.kind == "final":
            self._settle(decoded)

    def receive_failure(self, job: DecodeJob, error: Exception) -> None:
        """A job of this segment failed or met its deadline."""
        if _same(job, self._partial):
            self._partial = None
            self._planner.receive_failure()
        elif _same(job, self._eager):
            self._eager = None
            if self.segment:  # it was to be the final
                self._fall_back(job, error)
        elif job.kind == "final":
            self._fall_back(job, error)

    def _fall_back(self, job: DecodeJob, error: Exception) -> None:
        if not self._retried and not isinstance(error, EngineTimeoutError):
            self._retried = True
            self._submit("final", Priority.FINAL, job.start, job.end, "")
            return
        within = self.covered <= self._heard_until
        whole = within and bool(self.shown) and self.covered >= job.end
        self.settled = Settled(
            text=self.shown if within else self._stable.proven_until(self._heard_until),
            flags=("recovered",) if whole else ("failed",),
            error=None if whole else str(error) or type(error).__name__,
            noticed=self._noticed,
        )

    def _settle(self, decoded: Decoded, *, eager: bool = False) -> None:
        assert self.segment is not None
        seconds = (self.segment.end - self.segment.start) / SAMPLE_RATE
        cleaned = clean(decoded.text, seconds=seconds, finish=decoded.finish)
        proven = self._stable.proven_until(self._heard_until)
        kept = recover(cleaned.text, finish=decoded.finish, reduced=cleaned.reduced, proven=proven)
        flags: tuple[Flag, ...] = ()
        if kept.recovered:
            flags = ("recovered",)
        elif decoded.finish == "length":
            flags = ("truncated",)
        # Word times belong to the text that was decoded, not to what stands in for it.
        words = () if kept.recovered or cleaned.reduced else decoded.words or ()
        self.settled = Settled(
            text=kept.text, words=words, language=decoded.language, flags=flags,
            confidence=None if kept.recovered else _confidence(decoded),
            eager=eager, noticed=self._noticed,
        )  # fmt: skip

    def _show(self, text: str, end: int) -> None:
        self.shown, self.covered = text, end
        self._stable.receive_partial(text, end)

    def _drop_eager(self) -> None:
        if self._eager and not self._eager_answer:
            self._cancel(self._eager)
        self._eager = self._eager_answer = None


def _cleaned(job: DecodeJob, decoded: Decoded) -> str:
    return clean(decoded.text, seconds=len(job.audio) / SAMPLE_RATE, finish=decoded.finish).text


def _confidence(decoded: Decoded) -> float | None:
    """How likely the recognizer takes its tokens to be, on (geometric) average; None if it does not say."""
    scores = decoded.token_logprobs
    return min(1.0, math.exp(sum(scores) / len(scores))) if scores else None


def _same(job: DecodeJob, submitted: DecodeJob | None) -> bool:
    """Whether it is the job that was submitted, which may have grown or become more urgent since."""
    return submitted is not None and job.id == submitted.id

"""The decodes of all sessions on their way to the one engine: whose turn it is, and whether the engine still answers.

Theory. An engine works on a few jobs at the same time and serves what waits in it by priority. What it has no room
for waits here, where an order can still be changed and a partial can still grow:

- Finals come first, in the order in which they were asked for. The engine is given one more than it works on, so that
  it never turns to something else between two of them.
- An eager final whose endpoint was confirmed is a final from then on.
- A partial that had to wait takes along what was heard meanwhile: when its turn comes it covers as much as one that
  is asked for then.
- While more than AHEAD finals of a session are unanswered, because it sends faster than it is decoded, the later ones
  are its backlog. That has one place in the line of the partials, however long it is: many such sessions leave room
  for those that speak, share what is left, and alone have all of it.

A deadline counts from when the engine was given a job; for one that waits, here or in the engine behind earlier ones,
from the latest answer. So nothing expires while the engine works, however many wait, and all are told within one
deadline when it hangs. Answers to later jobs say nothing for an earlier one: that may be lost.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob, Priority
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.base import Engine
from realtime_server.errors import EngineError, EngineTimeoutError
from realtime_server.metrics import Metrics
from realtime_server.realtime.lateness import Lateness, Wait
from realtime_server.realtime.options import Clocks

AHEAD = 2  # unanswered finals of one session: the one that is waited for, and the one behind it

Renew = Callable[[DecodeJob], DecodeJob]


@dataclass(slots=True, eq=False)
class Ticket:
    """A job's place on the way: not yet there, in line, in the engine, or done with."""

    job: DecodeJob
    rank: Priority = Priority.FINAL  # order of the line, lower first; then by arrival
    arrival: int = 0
    number: int | None = None  # order in which it was given to the engine; None outside
    is_backlog: bool = False
    was_backlog: bool = False
    is_counted: bool = False  # among its session's unanswered finals
    since_s: float = 0.0  # when its deadline began to run
    asked_s: float = 0.0
    turn: asyncio.Future[None] | None = None  # done when the engine may have it
    scope: asyncio.Timeout | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> str:
        """What it is by now, one of metrics.KINDS: an eager that was hastened is a final, a recording's a file."""
        match self.job.priority:
            case Priority.FINAL:
                return "final"
            case Priority.FILE:
                return "file"
        return self.job.kind

    @property
    def is_urgent(self) -> bool:
        """Whether it is, or may become, what a client waits for."""
        return self.job.priority <= Priority.EAGER


@dataclass(slots=True)
class Engaged:
    """What the engine has been given and has not answered."""

    tickets: dict[int, Ticket] = field(default_factory=dict)  # by number, oldest first
    urgent: int = 0

    def __len__(self) -> int:
        return len(self.tickets)

    def add(self, ticket: Ticket, number: int) -> None:
        """The engine is given a job."""
        ticket.number = number
        self.tickets[number] = ticket
        self.urgent += ticket.is_urgent

    def remove(self, ticket: Ticket) -> None:
        """The engine has answered it, or was told to drop it."""
        if ticket.number is not None:
            del self.tickets[ticket.number]
            ticket.number = None
            self.urgent -= ticket.is_urgent


class Dispatcher:
    """One engine, shared fairly by all sessions; it is an `Engine` itself.

    Every RealtimeASRSession on an engine should be given the same Dispatcher. metrics: told of every decode.
    late_s: see Lateness; `lateness` is what it says.
    """

    def __init__(
        self,
        engine: Engine,
        clocks: Clocks | None = None,
        metrics: Metrics | None = None,
        late_s: float | None = None,
    ) -> None:
        self._engine, self._clocks, self._metrics = engine, clocks or Clocks(), metrics
        self.lateness = Lateness(late_s, self._waits)
        self._slots = max(1, engine.capabilities.concurrency)
        self._room = self._slots * max(1, engine.capabilities.batch)
        self._line: list[Ticket] = []  # in the order of service
        self._backlogs: dict[str, deque[Ticket]] = {}  # by session; only the first of each is in line
        self._finals: Counter[str] = Counter()  # unanswered, by session
        self._engaged = Engaged()
        self._arrivals, self._numbers = itertools.count(), itertools.count()
        self._clock = time.monotonic
        self._progress_s = self._clock()  # the latest answer, or when an idle engine was given a job
        self._hangs = False  # a job has expired, and none has been answered since

    # --- an engine ----------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """See Engine."""
        return self._engine.capabilities

    @property
    def healthy(self) -> bool:
        """See Engine."""
        return self._engine.healthy

    async def warmup(self) -> None:
        """See Engine."""
        await self._engine.warmup()

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Recognise a job when its turn has come. Raises EngineError, EngineTimeoutError if the engine hangs."""
        return await self.run(Ticket(job), on_text=on_text)

    async def aclose(self) -> None:
        """See Engine."""
        await self._engine.aclose()

    # --- for sessions -------------------------------------------------------------------------------------

    async def run(
        self, ticket: Ticket, *, renew: Renew | None = None, on_text: Callable[[str], None] | None = None
    ) -> Decoded:
        """Recognise the job of a new ticket when its turn has come; cancelling takes it out of the line or the engine.

        renew: given a job that had to wait, returns the one to run in its place; the ticket has it from then on.
        Raises EngineError, EngineTimeoutError if the engine hangs.
        """
        ticket.since_s = ticket.asked_s = self._clock()
        if not self._engaged and not self._line:
            self._progress_s = ticket.since_s
        ticket.turn = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(None) as ticket.scope:
                self._look_again(ticket, self._allowed_s(ticket))
                self._line_up(ticket)
                return await self._decode(ticket, renew, on_text)
        except TimeoutError:
            if ticket.scope and ticket.scope.expired():
                self._hangs = True
                raise EngineTimeoutError(f"no answer within {self._allowed_s(ticket):.1f} s") from None
            raise
        finally:
            self._leave(ticket)

    def hasten(self, ticket: Ticket) -> None:
        """A ticket's job, whatever it was, is a final: somebody waits for it."""
        if ticket.number is None:  # what the engine has is on its way, and few can pass it
            ticket.job = replace(ticket.job, priority=Priority.FINAL)
            if ticket in self._line:
                self._line.remove(ticket)
                self._line_up(ticket)

    @property
    def waiting(self) -> Counter[str]:
        """Jobs that the engine has no room for, by kind."""
        behind = itertools.chain.from_iterable(list(queue)[1:] for queue in self._backlogs.values())
        return Counter(ticket.kind for ticket in itertools.chain(self._line, behind))

    @property
    def running(self) -> Counter[str]:
        """Jobs that the engine has, by kind."""
        return Counter(ticket.kind for ticket in self._engaged.tickets.values())

    @property
    def silent_s(self) -> float:
        """For how long the engine has had jobs and has answered none."""
        return self._clock() - self._progress_s if self._engaged else 0.0

    @property
    def problem(self) -> str | None:
        """One sentence for operators while the engine makes no step, or None."""
        if self.silent_s <= self._clocks.deadline_s:
            return None
        jobs = len(self._engaged) + self.waiting.total()
        return f"the recognizer has given no answer for {self.silent_s:.0f} s; {jobs} jobs wait for it"

    def _waits(self) -> Iterator[Wait]:
        """How long those in line have waited, but for what only its own client has to wait for."""
        now_s = self._clock()
        return ((each.kind, now_s - each.asked_s) for each in self._line if not each.was_backlog)

    # --- the line -----------------------------------------------------------------------------------------

    def _line_up(self, ticket: Ticket) -> None:
        ticket.rank = ticket.job.priority
        if ticket.rank == Priority.FINAL:
            session = ticket.job.session
            self._finals[session] += 1
            ticket.is_counted = True
            if self._finals[session] > AHEAD:
                ticket.rank, ticket.is_backlog, ticket.was_backlog = Priority.REFRESH, True, True
                self._backlogs.setdefault(session, deque()).append(ticket)
        if not ticket.is_backlog or self._backlogs[ticket.job.session][0] is ticket:
            self._enter(ticket)
        self._advance()

    def _enter(self, ticket: Ticket) -> None:
        ticket.arrival = next(self._arrivals)
        insort(self._line, ticket, key=lambda each: (each.rank, each.arrival))

    def _advance(self) -> None:
        """Give the engine what it has room for."""
        while ticket := next(filter(self._fits, self._line), None):
            self._line.remove(ticket)
            self._leave_backlog(ticket)
            assert ticket.turn
            if ticket.turn.cancelled():
                continue  # its task was told to stop, and will leave
            # What takes the place of a job that has expired gets no more time than if it had been there before.
            ticket.since_s = max(ticket.since_s, self._progress_s) if self._hangs else self._clock()
            self._engaged.add(ticket, next(self._numbers))
            ticket.turn.set_result(None)

    def _fits(self, ticket: Ticket) -> bool:
        engaged, slots = self._engaged, self._slots
        if ticket.is_backlog:
            return engaged.urgent < slots and len(engaged) < self._room
        match ticket.rank:
            case Priority.FINAL:
                return engaged.urgent <= slots
            case Priority.EAGER:
                return engaged.urgent < slots
            case Priority.FILE:
                return len(engaged) < slots
        return len(engaged) < self._room

    def _leave(self, ticket: Ticket) -> None:
        """A ticket is done with, answered or not."""
        if ticket.timer:
            ticket.timer.cancel()
        self._engaged.remove(ticket)
        if ticket in self._line:
            self._line.remove(ticket)
        self._leave_backlog(ticket)
        if ticket.is_counted:
            self._forget_final(ticket.job.session)
        self._advance()

    def _leave_backlog(self, ticket: Ticket) -> None:
        """Let the next of its session's backlog enter the line, if it is the first and still there."""
        queue = self._backlogs.get(ticket.job.session)
        if not ticket.is_backlog or not queue or ticket not in queue:
            return
        first = queue[0] is ticket
        queue.remove(ticket)
        if not queue:
            del self._backlogs[ticket.job.session]
        elif first:
            self._enter(queue[0])

    def _forget_final(self, session: str) -> None:
        """A session has one unanswered final less; if few are left, they are no backlog any more."""
        self._finals[session] -= 1
        if not self._finals[session]:
            del self._finals[session]
        if self._finals[session] <= AHEAD:
            for ticket in self._backlogs.pop(session, ()):
                if ticket in self._line:
                    self._line.remove(ticket)
                ticket.rank, ticket.is_backlog = Priority.FINAL, False
                self._enter(ticket)

    # --- the engine ---------------------------------------------------------------------------------------

    async def _decode(
        self, ticket: Ticket, renew: Renew | None, on_text: Callable[[str], None] | None
    ) -> Decoded:
        assert ticket.turn
        waits = not ticket.turn.done()
        try:
            await ticket.turn
        finally:
            if not ticket.was_backlog:
                self.lateness.receive_wait(ticket.kind, self._clock() - ticket.asked_s)
        if waits and renew:
            ticket.job = renew(ticket.job)
        begun_s = self._clock()
        try:
            decoded = await self._engine.transcribe(ticket.job, on_text)
        except EngineError:
            self._note_answer(ticket)
            raise
        self._note_answer(ticket)
        if self._metrics:
            self._metrics.observe_decode(ticket.kind, begun_s - ticket.asked_s, self._clock() - begun_s)
        return decoded

    def _note_answer(self, answered: Ticket) -> None:
        """The engine works: what it was given later has waited for this, not for an engine that hangs."""
        self._progress_s, self._hangs = self._clock(), False
        assert answered.number is not None
        for number, ticket in self._engaged.tickets.items():
            if number > answered.number:
                ticket.since_s = self._progress_s

    def _allowed_s(self, ticket: Ticket) -> float:
        return self._clocks.deadline_s + self._clocks.deadline_factor * len(ticket.job.audio) / SAMPLE_RATE

    def _look_again(self, ticket: Ticket, in_s: float) -> None:
        ticket.timer = asyncio.get_running_loop().call_later(in_s, self._check_deadline, ticket)

    def _check_deadline(self, ticket: Ticket) -> None:
        in_line = ticket.number is None
        since_s = max(ticket.since_s, self._progress_s) if in_line else ticket.since_s
        left_s = since_s + self._allowed_s(ticket) - self._clock()
        if left_s > 0:
            self._look_again(ticket, left_s)
            return
        assert ticket.scope
        ticket.scope.reschedule(asyncio.get_running_loop().time())

"""Events on their way to the client: what is held back until a final, and when progress is due."""

from __future__ import annotations

from dataclasses import replace

from realtime_server.core import messages as m
from realtime_server.core.counts import SessionCounts
from realtime_server.core.segments import SAMPLE_RATE, to_ms

PROGRESS = SAMPLE_RATE  # samples after which a client is told how far things are


class Outbox:
    """Events in order; `take` drains them.

    protocol: of the session that runs. In 1 every result says how far things are, and the next thing that a client
    hears after STOP or COMMIT is their final; 2 tells everything as it happens.
    """

    def __init__(self, counts: SessionCounts) -> None:
        self.protocol = 1
        self._counts, self._before = counts, replace(counts)  # now, and when the session began
        self._events: list[m.Event] = []
        self._held: list[m.Event] = []
        self._told = 0  # sample up to which the client knows how far things are

    def begin(self, protocol: int) -> None:
        """A session begins."""
        self.protocol, self._told = protocol, 0
        self._before = replace(self._counts)

    def totals(self) -> m.Totals:
        """What the session has come to."""
        counts = self._counts.since(self._before)
        return m.Totals(
            audio_ms=to_ms(counts.audio_samples), speech_ms=to_ms(counts.speech_samples),
            segments=counts.segments, sentences=counts.sentences,
            partials_sent=counts.shown, partials_skipped=counts.folded + counts.cancelled,
        )  # fmt: skip

    def take(self) -> list[m.Event]:
        """Events that may go out now, in order."""
        events, self._events = self._events, []
        return events

    def tell(self, event: m.Event, *, ending: bool = False) -> None:
        """Queue an event; ending: while STOP or COMMIT is pending, when a partial is of no use any more."""
        if ending and isinstance(event, m.PartialChanged):
            return
        if ending and self.protocol == 1:
            self._held.append(event)
            return
        if self.protocol == 1 and isinstance(event, m.PartialChanged | m.SegmentLocked | m.SpeakersRevised):
            self._told = event.upto
        self._counts.errors += isinstance(event, m.Failed)
        self._counts.shown += isinstance(event, m.PartialChanged)
        self._events.append(event)

    def tell_progress(self, upto: int, received: int) -> None:
        """Say how far things are, if that is due."""
        now = upto if self.protocol == 1 else received
        if now - self._told >= PROGRESS:
            self._told = now
            self._events.append(m.Progress(upto=upto, received=received))

    def tell_final(self, final: m.Event) -> None:
        """Tell what was held back: the final, which covers the segments locked meanwhile, then the errors."""
        held, self._held = self._held, []
        errors = [event for event in held if isinstance(event, m.Failed)]
        for event in [*(event for event in held if not isinstance(event, m.Failed)), final, *errors]:
            self.tell(event)

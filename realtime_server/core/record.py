"""What a session has come to so far, from its events: for readers that come late, and for exports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from realtime_server.core import messages as m
from realtime_server.core.segments import Sentence


class Record:
    """The session of the latest START: its sentences with the speakers they have now, and what is being said.

    sentences: in lock order.  upto: samples that they and silence account for.  stopped: it is over.
    problem: why it was ended, if it was not by its client.
    """

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, started: m.Started | None) -> None:
        self._started = started
        self._sentences: dict[int, Sentence] = {}
        self._open: dict[
            tuple[int, int], list[m.Event]
        ] = {}  # by channel and segment: how it began, its partial
        self._end: list[m.Event] = []
        self.upto = 0
        self.stopped = False
        self.problem: str | None = None

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Locked so far."""
        return tuple(self._sentences.values())

    @property
    def started(self) -> bool:
        """Whether there was a START."""
        return self._started is not None

    @property
    def channels(self) -> int:
        """How many are heard."""
        return self._started.setup.audio.channels if self._started else 1

    @property
    def language(self) -> str | None:
        """The language that was set, a code; None if it is detected."""
        return self._started.setup.language if self._started else None

    def receive(self, events: Iterable[m.Event]) -> None:
        """Take events of the session, in order."""
        for event in events:
            self._receive(event)
            self.upto = event.upto

    def catch_up(self, sentences: int | None = None) -> Iterator[m.Event]:
        """Events that bring a new reader to where things are now; sentences: only the latest so many, None for all.

        They may be read in pieces: what is received meanwhile does not change them.
        """
        if self._started is None:
            return iter(())
        kept, upto = self.sentences, self.upto
        shown = kept if sentences is None else kept[max(0, len(kept) - sentences) :]
        locks = (
            m.SegmentLocked(upto=upto, channel=sent.channel, segment=sent.segment, sentences=(sent,))
            for sent in shown
        )
        said = [event for told in self._open.values() for event in told]
        return chain([self._started], locks, said, list(self._end))

    def _receive(self, event: m.Event) -> None:
        match event:
            case m.Started():
                self._begin(event)
            case m.SetupChanged() if self._started:
                self._started = replace(self._started, setup=event.setup)
            case m.SegmentOpened():
                self._open[event.channel, event.segment] = [event]
            case m.PartialChanged() if told := self._open.get((event.channel, event.segment)):
                self._open[event.channel, event.segment] = [*told[:1], event]
            case m.SegmentLocked():
                self._open.pop((event.channel, event.segment), None)
                self._sentences.update({sentence.id: sentence for sentence in event.sentences})
            case m.SpeakersRevised():
                for change in event.changes:
                    if sentence := self._sentences.get(change.id):
                        self._sentences[change.id] = replace(sentence, speaker=change.after)
            case m.Finished():
                self._open.clear()
                self._end.append(event)
            case m.Failed(fatal=True):
                self.problem = event.message
            case m.Stopped():
                self._end.append(event)
                self.stopped = True

"""Protocol 2 on the wire: typed messages, each told once, so that bytes per second do not grow with the session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import groupby
from typing import Any

from realtime_server.core import messages as m
from realtime_server.core import messages_v2 as v2
from realtime_server.core.commands import read_command
from realtime_server.core.endpointing_options import EndpointingOptions
from realtime_server.core.segments import Sentence, SpeakerChange, Word, to_ms
from realtime_server.core.setup import Setup
from realtime_server.core.wire_v1 import WireV1, dumps


class WireV2:
    """Protocol 2 for one reader of a session; `seq` grows by one from message to message."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._seq = 0
        self._begin(Setup())

    def _begin(self, setup: Setup) -> None:
        self._setup = setup
        self._sentences: dict[int, Sentence] = {}  # by id, in lock order, without their words

    def decode(self, frame: str | bytes) -> Iterable[m.Command | bytes]:
        """Return one command or one piece of audio; see Wire."""
        return [read_command(frame)] if isinstance(frame, str) else [frame]

    def encode(self, events: Sequence[m.Event]) -> list[str]:
        """Return the messages; of a segment's partials that are told together only the last, none if it is locked."""
        superseded = _find_superseded(events)
        return [
            self._write(message)
            for at, event in enumerate(events)
            if at not in superseded
            for message in self._messages(event)
        ]

    def _write(self, message: v2.Message) -> str:
        head = {"type": message.type, "session": self._session, "seq": self._seq}
        self._seq += 1
        return dumps({**head, **to_json(message)})

    def _messages(self, event: m.Event) -> Iterable[v2.Message]:
        match event:
            case m.Started():
                self._begin(event.setup)
                return [v2.Started(_settings(event.setup))]
            case m.SetupChanged():
                self._setup = event.setup
                return [v2.SettingsMessage(_settings(event.setup))]
            case m.SegmentOpened() if self._setup.events:
                return [v2.SpeechStarted(event.channel, event.segment, to_ms(event.start))]
            case m.SegmentClosed() if self._setup.events:
                return [v2.SpeechEnded(event.channel, event.segment, to_ms(event.end))]
            case m.PartialChanged() if self._setup.partials:
                return [v2.Partial(
                    event.channel, event.segment, to_ms(event.start), to_ms(event.end),
                    event.stable, event.unstable, event.lag_ms,
                )]  # fmt: skip
            case m.SegmentLocked():
                return self._lock(event)
            case m.SpeakersRevised():
                return self._revise(event)
            case m.Progress():
                return [v2.Progress(to_ms(event.received), to_ms(event.upto), event.lag_ms)]
            case m.Committed():
                return [v2.Committed(event.id)]
            case m.Warned():
                return [v2.Warning(event.code, event.message)]
            case m.Failed():
                return [v2.Error(
                    event.code, event.message, event.fatal, event.field, event.channel, event.segment
                )]  # fmt: skip
            case m.Finished():
                return [v2.Final(to_ms(event.upto), tuple(map(_final, self._sentences.values())))]
            case m.Stopped():
                return [v2.Stopped(**{f.name: getattr(event.totals, f.name) for f in fields(event.totals)})]
        return []

    def _lock(self, event: m.SegmentLocked) -> list[v2.Message]:
        if not event.sentences:
            return [v2.NoSentence(event.channel, event.segment)]
        sentences = event.sentences
        if not self._setup.confidence:
            sentences = tuple(replace(sentence, confidence=None) for sentence in sentences)
        for sentence in sentences:
            self._sentences[sentence.id] = replace(sentence, words=())
        return [self._sentence(sentence) for sentence in sentences]

    def _sentence(self, sentence: Sentence) -> v2.Sentence:
        sure = self._setup.confidence
        words = tuple(_word(word, sure=sure) for word in sentence.words) if self._setup.words else None
        return v2.Sentence(
            id=sentence.id, channel=sentence.channel, segment=sentence.segment, text=sentence.text,
            start_ms=sentence.start_ms, end_ms=sentence.end_ms, language=sentence.language, words=words,
            confidence=_rounded(sentence.confidence),
            speaker=sentence.speaker, flags=sentence.flags,
        )  # fmt: skip

    def _revise(self, event: m.SpeakersRevised) -> list[v2.Message]:
        def note(change: SpeakerChange) -> v2.SpeakerWas:
            self._sentences[change.id] = replace(self._sentences[change.id], speaker=change.after)
            return v2.SpeakerWas(change.id, change.before, change.after)

        changes = tuple(note(change) for change in event.changes if change.id in self._sentences)
        return [v2.Speakers(changes, event.reason)] if changes else []


class Wires:
    """A connection's wire: protocol 1 until a START asks for 2; a bare START returns to 1."""

    def __init__(self, session: str) -> None:
        self._first, self._second = WireV1(), WireV2(session)
        self._current: m.Wire = self._first

    def decode(self, frame: str | bytes) -> Iterable[m.Command | bytes]:
        """Return the commands and pieces of audio in a frame; see Wire."""
        return self._current.decode(frame)

    def encode(self, events: Sequence[m.Event]) -> list[str]:
        """Return the messages, each in the protocol of its session; see Wire."""
        return [
            message for wire, run in groupby(events, self._wire_for) for message in wire.encode(list(run))
        ]

    def _wire_for(self, event: m.Event) -> m.Wire:
        if isinstance(event, m.Started):
            self._current = self._second if event.setup.protocol == 2 else self._first
        if isinstance(event, m.Failed) and event.protocol == 2:
            return self._second  # a START of protocol 2 that was refused
        return self._current


def to_json(value: Any) -> Any:
    """A message as what JSON has: an object for a dataclass, whose names may end in _ where Python keeps a word."""
    if is_dataclass(value):
        return {f.name.rstrip("_"): to_json(getattr(value, f.name)) for f in fields(value)}
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def _find_superseded(events: Sequence[m.Event]) -> set[int]:
    """Places of partials behind which more is told of the same segment."""
    places: dict[tuple[int, int], int] = {}
    superseded = set()
    for at, event in enumerate(events):
        if isinstance(event, m.PartialChanged | m.SegmentLocked):
            before = places.pop((event.channel, event.segment), None)
            if before is not None:
                superseded.add(before)
            if isinstance(event, m.PartialChanged):
                places[event.channel, event.segment] = at
        elif isinstance(event, m.Started):
            places.clear()
    return superseded


def _settings(setup: Setup) -> v2.Settings:
    return v2.Settings(
        protocol=setup.protocol, language=setup.language, hotwords=setup.hotwords,
        replacements=dict(setup.replacements), encoding=setup.audio.encoding,
        sample_rate=setup.audio.sample_rate, channels=setup.audio.channels,
        endpointing=_endpointing(setup.endpointing), partials=setup.partials, words=setup.words,
        speakers=setup.speakers, confidence=setup.confidence, events=setup.events, resume=False,
    )  # fmt: skip


def _endpointing(options: EndpointingOptions) -> v2.EndpointingSettings:
    rows = tuple(
        (None if math.isinf(length) else round(length), silence) for length, silence in options.schedule.rows
    )
    return v2.EndpointingSettings(
        options.mode, options.silence_ms, rows, options.max_segment_ms, options.eager_ms
    )


def _final(sentence: Sentence) -> v2.FinalSentence:
    return v2.FinalSentence(
        id=sentence.id, channel=sentence.channel, segment=sentence.segment, text=sentence.text,
        start_ms=sentence.start_ms, end_ms=sentence.end_ms, language=sentence.language,
        confidence=_rounded(sentence.confidence), speaker=sentence.speaker, flags=sentence.flags,
    )  # fmt: skip


def _word(word: Word, *, sure: bool) -> v2.TimedWord:
    return v2.TimedWord(word.text, word.start_ms, word.end_ms, _rounded(word.confidence) if sure else None)


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 3)

"""What clients say and what they are told: typed commands, typed events, and the wire between.

A `Wire` turns frames of one protocol into commands and events into messages: wire_v1.py, wire_v2.py. The session
(protocol.py) knows only the types here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from realtime_server.core.segments import Sentence, SpeakerChange
from realtime_server.core.setup import Setup, StartRequest

# --- commands: what clients say ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a session; inside a running one, discard it first.

    setup: what a START with settings has come to; None begins one of protocol 1.  warnings: what was asked for and
    cannot be had: code and message.
    """

    setup: Setup | None = None
    warnings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SetHotwords:
    """Words that are likely to be spoken; from the next segment on."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetLanguage:
    """A language by any name; "" or "auto" lets the recognizer detect it; from the next segment on."""

    name: str


@dataclass(frozen=True, slots=True)
class SetReplacements:
    """Texts to replace in finals."""

    replacements: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    """End the open utterance now; the session goes on.  id: the client's, to be told when it is done."""

    id: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session: decode what was heard, send the final."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """Something that cannot be obeyed; it is answered with an error in its turn.

    field: of a START with settings.  protocol: the one in which the error is to be told.
    """

    message: str
    code: str = "bad_request"
    field: str | None = None
    protocol: int | None = None


Command = Start | StartRequest | SetHotwords | SetLanguage | SetReplacements | Commit | Stop | Invalid

# --- events: what clients are told ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Totals:
    """What a session came to. Lags, in ms, are those of its partials and progress, stamped by the shell."""

    audio_ms: int = 0
    speech_ms: int = 0  # in segments, of all channels together
    segments: int = 0
    sentences: int = 0
    partials_sent: int = 0
    partials_skipped: int = 0  # that were due and not decoded, or decoded and not told
    lag_p50_ms: int | None = None
    lag_p95_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """upto: every sample before it is in a locked sentence, in a partial, or judged to hold no speech."""

    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A session began; its clock stands at 0."""

    setup: Setup = field(default_factory=Setup)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupChanged(Event):
    """A command has changed what is in force to this."""

    setup: Setup = field(default_factory=Setup)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotwordsSet(SetupChanged):
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSet(SetupChanged):
    name: str  # as the client sent it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementsSet(SetupChanged):
    replacements: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOpened(Event):
    """Somebody speaks: a segment of this channel starts at sample `start`."""

    channel: int
    segment: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentClosed(Event):
    """Nobody speaks any more: the segment ends at sample `end`; its text will follow."""

    channel: int
    segment: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialChanged(Event):
    """The text so far of a segment that is not locked yet: samples [start, end).

    stable: its beginning that no later partial of the segment takes back.  unstable: the rest, put behind it.  Where
    a later partial differs from what was stable, `text` does too.  lag_ms: how long ago the last of the audio was
    received, stamped by the shell.
    """

    channel: int
    segment: int
    start: int
    end: int
    text: str
    stable: str = ""
    unstable: str = ""
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLocked(Event):
    """A segment is settled: its sentences, or none when it held no words. Never changes again.

    eager: it was decoded in the pause that became its end.  noticed: samples judged when its end was noticed.
    """

    channel: int
    segment: int
    sentences: tuple[Sentence, ...]
    eager: bool = False
    noticed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakersRevised(Event):
    """Locked sentences have other speakers than was told; nothing else about them changes.

    reason: more was heard of the voices ("live"), or all that there is ("final").
    """

    changes: tuple[SpeakerChange, ...]
    reason: Literal["live", "final"] = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """Nothing changed but `upto`.  received: samples that came.  lag_ms: age of sample `upto`, by the shell."""

    received: int = 0
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """Everything that a COMMIT closed has been told."""

    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """Everything that was heard has been told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The session is over; the connection may begin another."""

    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """What was asked for and cannot be had; protocol 1 has no message for it."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """Something the client should know; the session goes on unless it is fatal: then a Closing follows.

    field: the setting that is refused.  channel, segment: whose audio it is about.  protocol: the one in which it is
    told, None for that of the session.
    """

    code: str
    message: str
    fatal: bool = False
    protocol: int | None = None
    field: str | None = None
    channel: int | None = None
    segment: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing(Event):
    """The connection is to be closed with this WebSocket close code."""

    close_code: int
    reason: str


class Wire(Protocol):
    """One protocol's way to write commands and events down."""

    def decode(self, frame: str | bytes) -> Iterable[Command | bytes]:
        """Return the commands and pieces of audio in a frame, in order. Never raises for what a client sent."""

    def encode(self, events: Sequence[Event]) -> list[str]:
        """Return the messages for events that are sent together, in order; superseded ones may be folded."""

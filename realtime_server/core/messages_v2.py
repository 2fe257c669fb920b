"""The messages of protocol 2, one frozen dataclass each: what stands in docs/protocol.md is made from this page.

Every message is a JSON object with `type` (the class's), `session`, `seq` and the fields below. Times are whole
milliseconds of audio since START.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from realtime_server.core.endpointing_options import Mode
from realtime_server.core.segments import Flag
from realtime_server.core.setup import Encoding

Kind = Literal[
    "started", "settings", "speech_started", "speech_ended", "partial", "sentence", "no_sentence", "speakers",
    "committed", "progress", "warning", "error", "final", "stopped",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class EndpointingSettings:
    """When segments end.

    schedule: pairs [longest speech in ms, null for any; silence in ms that ends it], for mode dynamic.
    silence_ms: for mode fixed.  max_segment_ms: longer speech is cut.  eager_ms: silence after which an end is
    prepared, null for never.
    """

    mode: Mode
    silence_ms: int
    schedule: tuple[tuple[int | None, int], ...]
    max_segment_ms: int
    eager_ms: int | None


@dataclass(frozen=True, slots=True)
class Settings:
    """Every value that is in force; see START for their meaning."""

    protocol: int
    language: str | None
    hotwords: tuple[str, ...]
    replacements: Mapping[str, str]
    encoding: Encoding
    sample_rate: int
    channels: int
    endpointing: EndpointingSettings
    partials: bool
    words: bool
    speakers: bool
    confidence: bool
    events: bool
    resume: bool


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word, or a character where the script has no spaces. confidence: 0 to 1, null where none is known."""

    word: str
    start_ms: int
    end_ms: int
    confidence: float | None


@dataclass(frozen=True, slots=True)
class SpeakerWas:
    """A sentence's speaker, as it was told and as it is now."""

    id: int
    from_: int | None
    to: int | None


@dataclass(frozen=True, slots=True)
class Started:
    """A session began: its clock stands at 0. settings: every value in force."""

    type: ClassVar[Kind] = "started"
    settings: Settings


@dataclass(frozen=True, slots=True)
class SettingsMessage:
    """A command changed what is in force; every value is repeated."""

    type: ClassVar[Kind] = "settings"
    settings: Settings


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Somebody speaks: a segment begins at at_ms. Segments are numbered from 0 in each channel."""

    type: ClassVar[Kind] = "speech_started"
    channel: int
    segment: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """The segment ended at at_ms; its sentences follow."""

    type: ClassVar[Kind] = "speech_ended"
    channel: int
    segment: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Partial:
    """The text so far of a segment that is open or not locked yet: stable and unstable, one behind the other.

    No later partial of the segment changes what is stable, but for adding to it; the sentence, which is recognised
    once more from all its audio, may differ. lag_ms: how long ago the last of this audio came in.
    """

    type: ClassVar[Kind] = "partial"
    channel: int
    segment: int
    start_ms: int
    end_ms: int
    stable: str
    unstable: str
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A locked sentence; it is sent once, and only its speaker can change later.

    words: null unless they were asked for. language: a code, null where it is not known. confidence: 0 to 1, null
    unless asked for. speaker: from 0, for each channel, null while it is not known. flags: `recovered` if the text is
    that of the last partials because the final recognition lost some of it, `truncated` if it is not complete,
    `failed` if it could not be recognised.
    """

    type: ClassVar[Kind] = "sentence"
    id: int
    channel: int
    segment: int
    text: str
    start_ms: int
    end_ms: int
    language: str | None
    words: tuple[TimedWord, ...] | None
    confidence: float | None
    speaker: int | None
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class NoSentence:
    """The segment held no words after all: forget its partial."""

    type: ClassVar[Kind] = "no_sentence"
    channel: int
    segment: int


@dataclass(frozen=True, slots=True)
class Speakers:
    """Locked sentences have other speakers than was told. reason: `final` when all was heard, else `live`."""

    type: ClassVar[Kind] = "speakers"
    changes: tuple[SpeakerWas, ...]
    reason: Literal["live", "final"]


@dataclass(frozen=True, slots=True)
class Committed:
    """Every sentence that a COMMIT closed has been sent. id: that of COMMIT:id, null without."""

    type: ClassVar[Kind] = "committed"
    id: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far things are, about once a second: audio received, and how much of it is in texts or was silence.

    lag_ms: how long ago the last of that came in.
    """

    type: ClassVar[Kind] = "progress"
    duration_ms: int
    decoded_ms: int
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Warning:
    """Something that was asked for cannot be had; settings have the value in force."""

    type: ClassVar[Kind] = "warning"
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Error:
    """Something could not be done. fatal: the connection is closed after it.

    field: the setting that it is about, if it is about one. channel, segment: whose audio, if it is about audio.
    """

    type: ClassVar[Kind] = "error"
    code: str
    message: str
    fatal: bool
    field: str | None
    channel: int | None
    segment: int | None


@dataclass(frozen=True, slots=True)
class FinalSentence:
    """A sentence as it stands at the end; its words were sent with it."""

    id: int
    channel: int
    segment: int
    text: str
    start_ms: int
    end_ms: int
    language: str | None
    confidence: float | None
    speaker: int | None
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class Final:
    """The whole transcript, once, after STOP."""

    type: ClassVar[Kind] = "final"
    duration_ms: int
    sentences: tuple[FinalSentence, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The session is over. Totals: audio and speech (of all channels together) in ms; how many segments, sentences,
    partials sent, and skipped because they were late; lags of partials and progress, null if there was none.
    """

    type: ClassVar[Kind] = "stopped"
    audio_ms: int
    speech_ms: int
    segments: int
    sentences: int
    partials_sent: int
    partials_skipped: int
    lag_p50_ms: int | None
    lag_p95_ms: int | None


Message = (
    Started | SettingsMessage | SpeechStarted | SpeechEnded | Partial | Sentence | NoSentence | Speakers | Committed
    | Progress | Warning | Error | Final | Stopped
)  # fmt: skip

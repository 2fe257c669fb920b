"""What clients say and what they are told: typed commands, typed events, and the wire between.

A `Wire` turns frames of one protocol into commands and events into messages. Text commands, whole lists and
16 kHz belong to protocol 1 and so to `WireV1`; the session (protocol.py) knows only the types here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from realtime_server.core.partials import join_texts
from realtime_server.core.segments import Sentence, SpeakerChange, to_ms

# --- commands: what clients say ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a session; inside a running one, discard it first."""


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
    """End the open utterance now; the session goes on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session: decode what was heard, send the final."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """Something that cannot be obeyed; it is answered with an error in its turn."""

    message: str


Command = Start | SetHotwords | SetLanguage | SetReplacements | Commit | Stop | Invalid

# --- events: what clients are told ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """upto: every sample before it is in a locked sentence, in a partial, or judged to hold no speech."""

    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A session began; its clock stands at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotwordsSet(Event):
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSet(Event):
    name: str  # as the client sent it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementsSet(Event):
    replacements: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOpened(Event):
    """Somebody speaks: a segment of this channel starts at sample `start`."""

    channel: int
    segment: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialChanged(Event):
    """The text so far of a segment that is not locked yet: samples [start, end)."""

    channel: int
    segment: int
    start: int
    end: int
    text: str


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
    """Locked sentences have other speakers than was told; nothing else about them changes."""

    changes: tuple[SpeakerChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """Nothing changed but `upto`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """Everything that a COMMIT closed has been told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """Everything that was heard has been told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The session is over; the connection may begin another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """Something the operator should know; protocol 1 has no message for it."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """Something the client should know; the session goes on unless a Closing follows."""

    code: str
    message: str


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


# --- protocol 1 -------------------------------------------------------------------------------------------

LONGEST_COMMAND = 65_536  # characters; a frame of audio may be longer
LONGEST_LANGUAGE = 100  # characters of a language's name
_SEPARATORS = re.compile(r"[,，、\r\n]")
_ARROW = re.compile(r"=>|->|→")


def split_words(text: str) -> tuple[str, ...]:
    """Split a list at commas of either script, `、` and line ends; empty items and repetitions are dropped."""
    return tuple(dict.fromkeys(word for item in _SEPARATORS.split(text) if (word := item.strip())))


def _read_replacements(text: str) -> SetReplacements | Invalid:
    replacements: dict[str, str] = {}
    for item in split_words(text):
        sides = [side.strip() for side in _ARROW.split(item)]
        if len(sides) > 2 or not sides[0]:
            shown = _shorten(item)
            return Invalid(
                f"POSTPROCESS_HOTWORDS: cannot read '{shown}'; write spoken=>written, separated by commas"
            )
        replacements[sides[0]] = sides[-1]
    return SetReplacements(replacements)


def _read_language(name: str) -> SetLanguage | Invalid:
    return (
        SetLanguage(name) if len(name) <= LONGEST_LANGUAGE else Invalid(f"unknown language: {_shorten(name)}")
    )


def _shorten(text: str) -> str:
    """What is repeated to a client, and kept for those who read its events, is never long."""
    return text if len(text) <= 80 else text[:80] + "…"


# Commands that take a value, which follows a colon.
_WITH_VALUE: dict[str, Callable[[str], Command]] = {
    "HOTWORDS": lambda value: SetHotwords(split_words(value)),
    "LANGUAGE": lambda value: _read_language(value.strip()),
    "POSTPROCESS_HOTWORDS": _read_replacements,
}
_PLAIN: dict[str, Callable[[], Command]] = {"START": Start, "STOP": Stop, "COMMIT": Commit}


def _read_text(text: str) -> Command:
    if len(text) > LONGEST_COMMAND:
        return Invalid(f"a command of {len(text)} characters is too long; the limit is {LONGEST_COMMAND}")
    text = text.strip()
    name, colon, value = text.partition(":")
    name = name.strip().upper()
    if colon and name in _WITH_VALUE:
        return _WITH_VALUE[name](value)
    if text.upper() in _PLAIN:
        return _PLAIN[text.upper()]()
    if text.startswith("{"):
        return Invalid(
            'this server does not speak FunASR\'s older JSON protocol ({"mode": …}); '
            "send the text START, then PCM16 audio, then STOP"
        )
    if re.match(r"START\s*\{", text, re.IGNORECASE):
        return Invalid("START with settings (protocol 2) is not available in this version; send a bare START")
    return Invalid(f"unknown command: {_shorten(text)}")


def _dumps(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair, as in an engine's error about a file name, has no UTF-8 and could not be sent.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class WireV1:
    """Protocol 1: text commands; every result repeats the whole list of sentences, each encoded once."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._sentences: dict[int, str] = {}  # encoded, by id, in lock order
        self._locked: dict[int, Sentence] = {}  # the same, for speakers that are revised
        self._open: dict[int, tuple[int, str]] = {}  # segments not locked yet: start, partial
        self._upto = 0

    def decode(self, frame: str | bytes) -> Iterable[Command | bytes]:
        """Return one command or one piece of PCM16 audio; see Wire."""
        return [_read_text(frame)] if isinstance(frame, str) else [frame]

    def encode(self, events: Sequence[Event]) -> list[str]:
        """Return the messages; consecutive changes of the transcript become one result."""
        messages: list[str] = []
        changed = False
        for event in events:
            if isinstance(event, Warned | Closing):
                continue
            direct = self._encode_direct(event)
            if direct is None:
                changed = self._receive_change(event) or changed
                continue
            if changed and not isinstance(event, Finished | Committed):
                messages.append(self._result())
            changed = False
            messages += direct
        return [*messages, self._result()] if changed else messages

    def _encode_direct(self, event: Event) -> list[str] | None:
        """Messages of an event that is told at once; None for a change of the transcript."""
        match event:
            case Started():
                self._forget()
                return [_dumps({"event": "started"})]
            case HotwordsSet(words=words):
                return [_dumps({"event": "hotwords_set", "hotwords": words})]
            case LanguageSet(name=name):
                return [_dumps({"event": "language_set", "language": name})]
            case ReplacementsSet(replacements=mapping):
                return [_dumps({"event": "postprocess_hotwords_set", "postprocess_hotwords": dict(mapping)})]
            case Failed(message=message):
                return [_dumps({"event": "error", "error": message})]
            case Finished() | Committed():
                self._upto = event.upto
                final = self._result(final=True)
                self._sentences.clear()
                self._locked.clear()
                self._open.clear()
                return [final]
            case Stopped():
                return [_dumps({"event": "stopped"})]
        return None

    def _receive_change(self, event: Event) -> bool:
        """Note a change of the transcript; True if clients should be told."""
        self._upto = event.upto
        match event:
            case SegmentOpened(segment=segment, start=start):
                self._open[segment] = (start, "")
                return False
            case PartialChanged(segment=segment, start=start, text=text):
                self._open[segment] = (start, text)
            case SegmentLocked(segment=segment, sentences=sentences):
                self._open.pop(segment, None)
                for sentence in sentences:
                    if sentence.text:
                        self._keep_sentence(sentence)
            case SpeakersRevised(changes=changes):
                shown = [change for change in changes if change.id in self._locked]
                for change in shown:
                    self._keep_sentence(replace(self._locked[change.id], speaker=change.after))
                return bool(shown)
        return True

    def _keep_sentence(self, sentence: Sentence) -> None:
        self._sentences[sentence.id] = self._encode_sentence(sentence)
        self._locked[sentence.id] = replace(sentence, words=())

    @staticmethod
    def _encode_sentence(sentence: Sentence) -> str:
        fields: dict[str, object] = {
            "text": sentence.text, "start": sentence.start_ms, "end": sentence.end_ms,
        }  # fmt: skip
        if sentence.speaker is not None:
            fields["spk"] = sentence.speaker
        return _dumps(fields)

    def _result(self, *, final: bool = False) -> str:
        partial = "" if final else join_texts(text for _, text in self._open.values())
        start = 0 if final else min((start for start, _ in self._open.values()), default=self._upto)
        rest = {
            "partial": partial,
            "partial_start_ms": to_ms(start),
            "duration_ms": to_ms(self._upto),
            "is_final": final,
        }
        return '{"sentences":[' + ",".join(self._sentences.values()) + "]," + _dumps(rest)[1:]

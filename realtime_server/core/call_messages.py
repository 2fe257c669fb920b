"""What Twilio's Media Streams say over a WebSocket, as values.

Source: Twilio's page "Media Streams - WebSocket Messages". Only what is used here is read; what else a message holds,
and fields that come later, do not matter.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from realtime_server.core.setup import AudioFormat
from realtime_server.errors import FieldError

Track = Literal["inbound", "outbound"]  # what the caller says; what the caller hears
TRACKS: tuple[Track, ...] = get_args(Track)
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}  # of each track
LONGEST_ID = 100  # characters
LONGEST_PARAMETER = 4096  # characters of a value
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can say it, UTF-8 cannot
LONGEST_MS = 7 * 24 * 3600 * 1000  # of a call


@dataclass(frozen=True, slots=True)
class Connected:
    """The first message; the start follows."""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call begins. tracks: what will be sent, in the order of channels.  parameters: those of the TwiML."""

    stream: str  # streamSid
    call: str  # callSid
    tracks: tuple[Track, ...]
    parameters: Mapping[str, str]

    @property
    def audio(self) -> AudioFormat:
        """Of all tracks together, as a session is told."""
        return AudioFormat("mulaw", 8000, len(self.tracks))


@dataclass(frozen=True, slots=True)
class Media:
    """Audio of one track: 8 kHz mu-law from `timestamp_ms` on, which counts from the start of the stream."""

    track: Track
    timestamp_ms: int
    audio: bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """Audio that was sent to the call was played; nothing is sent here, so it tells nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Dtmf:
    """Somebody pressed a key."""

    digit: str


@dataclass(frozen=True, slots=True)
class CallStopped:
    """The stream is over."""


Message = Connected | CallStarted | Media | Mark | Dtmf | CallStopped


def read_call_message(frame: str | bytes) -> Message:
    """Read one frame. Raises FieldError naming what cannot be; the frames around it are as good as before."""
    message = _parse(frame)
    event = _text(message, "event")
    match event:
        case "connected":
            return Connected()
        case "start":
            return _read_start(_object(message, event))
        case "media":
            return _read_media(_object(message, event))
        case "mark":
            return Mark(_text(_object(message, event), "name", "mark."))
        case "dtmf":
            return Dtmf(_text(_object(message, event), "digit", "dtmf."))
        case "stop":
            return CallStopped()
    raise FieldError("event must be connected, start, media, mark, dtmf or stop", "event")


def _parse(frame: str | bytes) -> Mapping[str, Any]:
    if isinstance(frame, bytes):
        raise FieldError("a binary frame came; the messages of a media stream are JSON texts", None)
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise FieldError("a message came that is no JSON", None) from error
    if not isinstance(message, dict):
        raise FieldError("a message came that is no JSON object", None)
    return message


def _read_start(start: Mapping[str, Any]) -> CallStarted:
    sent = start.get("tracks")
    if not isinstance(sent, list) or not sent or not all(track in TRACKS for track in sent):
        raise FieldError("start.tracks must list inbound, outbound or both", "start.tracks")
    if start.get("mediaFormat", FORMAT) != FORMAT:
        raise FieldError("start.mediaFormat must be audio/x-mulaw, 8000 Hz, 1 channel", "start.mediaFormat")
    return CallStarted(
        stream=_text(start, "streamSid", "start."),
        call=_text(start, "callSid", "start."),
        tracks=tuple(track for track in TRACKS if track in sent),
        parameters=_read_parameters(start.get("customParameters") or {}),
    )


def _read_parameters(given: Any) -> Mapping[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise FieldError("start.customParameters must be an object of texts", "start.customParameters")
    for name, value in given.items():
        if len(name) > LONGEST_ID or len(value) > LONGEST_PARAMETER:
            words = f"start.customParameters: names have at most {LONGEST_ID} characters, values {LONGEST_PARAMETER}"
            raise FieldError(words, "start.customParameters")
    return {SURROGATE.sub("\ufffd", name): SURROGATE.sub("\ufffd", value) for name, value in given.items()}


def _read_media(media: Mapping[str, Any]) -> Media:
    track = media.get("track")
    if track not in TRACKS:
        raise FieldError("media.track must be inbound or outbound", "media.track")
    stamp = str(media.get("timestamp"))
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12 and int(stamp) <= LONGEST_MS):
        raise FieldError("media.timestamp must be a whole number of ms within a week", "media.timestamp")
    try:
        audio = base64.b64decode(media["payload"], validate=True)
    except (LookupError, TypeError, ValueError) as error:
        raise FieldError("media.payload must be audio in base64", "media.payload") from error
    return Media(cast(Track, track), int(stamp), audio)


def _object(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = message.get(name)
    if not isinstance(found, dict):
        raise FieldError(f"{name} must be an object", name)
    return found


def _text(message: Mapping[str, Any], name: str, within: str = "") -> str:
    found = message.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= LONGEST_ID or SURROGATE.search(found):
        raise FieldError(f"{within}{name} must be a text of 1 to {LONGEST_ID} characters", within + name)
    return found

"""What a session is begun with: what a client asked for (StartRequest), and what is then in force (Setup)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from realtime_server.core.endpointing_options import EndpointingOptions, Mode, SilenceSchedule
from realtime_server.core.segments import SAMPLE_RATE

Encoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
SAMPLE_BYTES: Mapping[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
LOWEST_RATE, HIGHEST_RATE = 8_000, 48_000  # Hz
MOST_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How a client writes its audio: samples of `encoding`, interleaved by channel."""

    encoding: Encoding = "pcm_s16le"
    sample_rate: int = SAMPLE_RATE  # Hz
    channels: int = 1

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of every channel."""
        return SAMPLE_BYTES[self.encoding] * self.channels


@dataclass(frozen=True, slots=True)
class EndpointingRequest:
    """What a client asks of its session's endpointing; None: the server's."""

    mode: Mode | None = None
    silence_ms: int | None = None
    schedule: SilenceSchedule | None = None
    max_segment_ms: int | None = None
    eager_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StartRequest:
    """START with settings, protocol 2: begin a session as asked; None: as the server was told.

    Types and ranges are right; whether the server can do it is for SessionOptions to say.
    """

    audio: AudioFormat = field(default_factory=AudioFormat)
    language: str | None = None  # ISO 639-1 code; "": to be detected
    hotwords: tuple[str, ...] | None = None
    replacements: Mapping[str, str] | None = None
    endpointing: EndpointingRequest = field(default_factory=EndpointingRequest)
    partials: bool = True
    words: bool = False
    speakers: bool | None = None
    confidence: bool = False
    events: bool = True


@dataclass(frozen=True, slots=True)
class Setup:
    """Every value that is in force in a session. Commands may change the first three."""

    language: str | None = None  # ISO 639-1 code; None: detected
    hotwords: tuple[str, ...] = ()
    replacements: Mapping[str, str] = field(default_factory=dict)
    protocol: int = 1
    audio: AudioFormat = field(default_factory=AudioFormat)
    endpointing: EndpointingOptions = field(default_factory=EndpointingOptions)
    partials: bool = True  # the text of what is being said is decoded and told
    words: bool = False  # word times are told
    speakers: bool = False  # voices are told apart
    confidence: bool = False  # how sure the recognizer is, is told
    events: bool = True  # starts and ends of speech are told

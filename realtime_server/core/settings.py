"""What a session is told at its birth: decoding defaults, endpointing, pace and limits. Validated once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import DecodingOptions
from realtime_server.errors import ConfigurationError


def require_positive(options: object, names: tuple[str, ...]) -> None:
    """Raise ConfigurationError naming the first of the fields `names` of `options` that is not above zero."""
    for name in names:
        value = getattr(options, name)
        if not value > 0:
            raise ConfigurationError(f"{name} must be above zero, not {value}")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one session. Reaching one ends the session with its final, an error and close 1008,
    except the hotword limits, which refuse the command."""

    session_s: float = 4 * 3600.0  # audio of one session, seconds
    undecoded_s: float = 600.0  # audio received but not yet in text or judged silence, seconds
    sentences: int = 20_000  # locked sentences kept
    characters: int = 1_000_000  # of their texts together; ten hours of fast speech have fewer
    hotwords: int = 1_000  # words in one list
    hotword_characters: int = 10_000  # characters of one list together
    queued_commands: int = 1_000  # commands waiting behind a STOP or COMMIT

    def __post_init__(self) -> None:
        require_positive(self, tuple(field.name for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Pace:
    """When partials are asked for; all in milliseconds of audio."""

    first_ms: int = 500  # after the segment's start, which lies about 300 ms before the first sound
    retry_ms: int = 200  # instead of interval_ms, while the first answers are empty
    interval_ms: int = 800  # between two partials of a segment, at least
    load_factor: float = 2.0  # the interval is stretched to this times the time the last decodes took
    eager_limit_ms: int = 800  # no eager final while decodes take longer than this

    def __post_init__(self) -> None:
        require_positive(self, tuple(field.name for field in fields(self)))


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Everything a session takes from the server's command line."""

    options: DecodingOptions = field(default_factory=DecodingOptions)
    endpointing: EndpointingOptions = field(default_factory=EndpointingOptions)
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)
    speakers: bool = False  # tell voices apart; needs an Embedder
    partials: bool = True  # decode what is being said, while it is said

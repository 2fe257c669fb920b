"""How the HTTP service listens, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from realtime_server.core.settings import require_positive
from realtime_server.errors import ConfigurationError
from realtime_server.offline.audio_source import AudioLimits
from realtime_server.offline.calls import Deadlines


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Of the server and of each of its requests; the bounds of a recording are in its AudioLimits.

    Decoded recordings take 115 MB an hour. Together they last no longer than `limits.duration_s` before another one
    is begun, so memory holds at most 1 + `limits.processes` recordings of that length.
    """

    host: str = "127.0.0.1"
    port: int = 8899
    max_files: int = 32  # requests and connections to /ws at once; more are refused
    limits: AudioLimits = field(default_factory=AudioLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    message_bytes: int = 64 << 20  # of one message to /ws: 35 minutes of audio
    form_bytes: int = 1 << 20  # of a request, beside its recording
    stall_s: float = 60.0  # an upload of which hardly anything comes for so long is given up
    idle_s: float = 300.0  # of a connection to /ws without a message; within a session, without audio
    room_s: float = 60.0  # memory may be full for so long before recordings that wait for room are refused
    shutdown_s: float = 20.0  # for running requests

    def __post_init__(self) -> None:
        require_positive(
            self, ("max_files", "message_bytes", "form_bytes", "stall_s", "idle_s", "room_s", "shutdown_s")
        )
        if not 0 <= self.port < 65_536:
            raise ConfigurationError(f"port must be 0 to 65535, not {self.port}")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where messages go, and how patiently. Raises ConfigurationError if it is no address."""

    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0  # of one try
    pause_s: float = 0.5  # before the second try; each pause is twice the one before
    longest_pause_s: float = 30.0
    patience_s: float = 300.0  # for one message; behind the end of the call, for all together
    most_waiting: int = 1_000  # messages of a call; if more wait, the oldest are dropped

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            right = False
        if not right or not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            raise ConfigurationError("expected an address that begins with http:// or https://")
        if parts.username is not None:
            raise ConfigurationError("the address must not have a password in it; give a token instead")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigurationError("the token must be printable ASCII")

    @property
    def place(self) -> str:
        """What may be logged of the address: its path can hold a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}"


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Where transcripts of calls go, None for nowhere, and what is borne of those who call.

    folder: gets a file for each.
    """

    folder: Path | None = None
    webhook: Webhook | None = None
    most_waiting: int = 32  # connections whose call has not begun; nobody knows yet who they are
    start_s: float = 10.0  # for a call to begin
    pause_s: float = 2.0  # nothing comes: what is held back for the sake of the clock goes out
    idle_s: float = 120.0  # nothing comes: the call is over

    def __post_init__(self) -> None:
        require_positive(self, ("most_waiting", "start_s", "pause_s", "idle_s"))

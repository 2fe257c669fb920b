"""How the HTTP service listens, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

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

"""How the live server listens, its bounds, and its clocks."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_server.core.settings import require_positive
from realtime_server.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Of the server and of each of its connections; a session's own limits are in core/settings.py."""

    host: str = "127.0.0.1"
    port: int = 10095
    max_sessions: int = 100
    max_viewers: int = 1000
    keep_transcripts_s: float = 600.0  # of sessions that have ended, for viewers and exports
    max_message_bytes: int = 10 * 1024 * 1024  # 327 s of audio
    ping_s: float = 20.0  # between pings of ours
    ping_timeout_s: float = 60.0  # without a frame or an answer to a ping for so long, the client is gone
    send_timeout_s: float = 30.0  # a client that reads nothing for so long is dropped
    close_s: float = 5.0  # for a client to answer a close
    shutdown_s: float = 20.0  # for the finals of all sessions
    late_s: float | None = 2.0  # nobody is let in while finals wait longer, see lateness.py; None: never mind

    def __post_init__(self) -> None:
        require_positive(self, ("max_sessions", "max_message_bytes", "ping_s", "ping_timeout_s"))
        require_positive(self, ("send_timeout_s", "close_s", "shutdown_s"))
        require_positive(self, ("max_viewers",) if self.late_s is None else ("max_viewers", "late_s"))
        if self.keep_transcripts_s < 0:
            raise ConfigurationError(
                f"keep_transcripts_s must be at least zero, not {self.keep_transcripts_s}"
            )
        if not 0 <= self.port < 65_536:
            raise ConfigurationError(f"port must be 0 to 65535, not {self.port}")


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall-clock limits of sessions and their jobs, in seconds."""

    stall_s: float = 5.0  # without audio for so long, the open segment is closed
    deadline_s: float = 10.0  # of a job; a decode has deadline_factor times its audio on top
    deadline_factor: float = 2.0

    def __post_init__(self) -> None:
        require_positive(self, ("stall_s", "deadline_s"))

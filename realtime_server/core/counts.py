"""What happened on one connection, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from realtime_server.core.segments import SAMPLE_RATE


@dataclass(slots=True)
class SessionCounts:
    """What happened on one connection, for its log line and the metrics."""

    sessions: int = 0
    audio_samples: int = 0
    segments: int = 0
    sentences: int = 0
    partials: int = 0
    folded: int = 0
    cancelled: int = 0
    recovered: int = 0
    truncated: int = 0
    failed: int = 0
    decode_failures: int = 0
    errors: int = 0

    def add(self, other: SessionCounts) -> None:
        """Count what happened on another connection too."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        shown = [f"audio {self.audio_samples / SAMPLE_RATE:.1f} s"]
        shown += [f"{f.name} {getattr(self, f.name)}" for f in fields(self) if f.name != "audio_samples"]
        return ", ".join(shown)

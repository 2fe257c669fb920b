"""What happened on one connection, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from realtime_server.core.segments import SAMPLE_RATE


@dataclass(slots=True)
class SessionCounts:
    """What happened on one connection, for its log line and the metrics."""

    sessions: int = 0
    audio_samples: int = 0
    speech_samples: int = 0  # in segments, of all channels together
    segments: int = 0
    sentences: int = 0
    partials: int = 0
    shown: int = 0
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

    def since(self, earlier: SessionCounts) -> SessionCounts:
        """What happened after `earlier` was a copy of these counts."""
        names = [field.name for field in fields(self)]
        return SessionCounts(**{name: getattr(self, name) - getattr(earlier, name) for name in names})

    def __str__(self) -> str:
        audio, speech = self.audio_samples / SAMPLE_RATE, self.speech_samples / SAMPLE_RATE
        others = [f.name for f in fields(self) if not f.name.endswith("_samples")]
        shown = [f"audio {audio:.1f} s", f"speech {speech:.1f} s"]
        return ", ".join(shown + [f"{name} {getattr(self, name)}" for name in others])

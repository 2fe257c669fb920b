"""What each client of a load does, and what the server must keep to hold it."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_server.bench.talk import LOADS
from realtime_server.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Load:
    """The same for every step. Values of the wire's clock are in ms of wall-clock time, whatever the pace."""

    kind: str = "talk"  # of LOADS
    seconds: float = 30.0  # of audio per client
    stop_every_s: float = 10.0  # then STOP follows the next word, and START the final
    stagger_s: float = 5.0  # within which the clients begin
    pace: float = 1.0  # times the speed of speech; 0: as fast as the server reads
    pause_ms: int = 2200  # of silence after which the server has surely ended an utterance
    lag_ms: float = 1000.0  # that 95 of 100 text lags may reach
    stop_ms: float = 500.0  # that 95 of 100 finals may take after STOP

    def __post_init__(self) -> None:
        if self.kind not in LOADS:
            raise ConfigurationError(f"there is no load called {self.kind!r}, only {', '.join(LOADS)}")
        if self.pace and self.seconds <= self.stagger_s * self.pace:
            raise ConfigurationError(
                "more --seconds are needed than --stagger, or the clients never speak together"
            )

    @property
    def title(self) -> str:
        """What the clients do, on a line."""
        speed = f"pace {self.pace:g}" if self.paced else "as fast as it goes"
        return f"{self.kind}, {self.seconds:g} s per client, STOP every {self.stop_every_s:g} s, {speed}"

    @property
    def paced(self) -> bool:
        """Whether the clients speak at a speed; only then does a text have a lag."""
        return self.pace > 0

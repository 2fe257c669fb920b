"""How far `realtime-server transcribe` is: a bar on a terminal, lines now and then elsewhere, on standard error."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TextIO

from realtime_server.offline.inputs import Item

BAR = 24  # characters
REDRAW_S, LINE_S = 0.1, 15.0  # at least between two looks of the bar, or two lines about what is not done yet
TELLING = 0.02  # share that must be done before the rest is estimated from it
UNKNOWN = 1_000_000  # bytes that a recording counts for whose size is not known


class Progress:
    """Told of each recording's progress; quiet: shows nothing but what goes wrong.

    The whole is counted in bytes of the files, as their durations are known one after the other only.
    """

    def __init__(
        self, stream: TextIO, items: Sequence[Item], *,
        quiet: bool = False, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._stream, self._clock, self._quiet = stream, clock, quiet
        self._bar = stream.isatty() and not quiet
        self._sizes = {id(item): _size(item) for item in items}
        self._shares = dict.fromkeys(self._sizes, 0.0)
        self._heard_s = dict.fromkeys(self._sizes, 0.0)
        self._done = 0
        self._finished_s: list[float] = []  # durations of those that did not fail
        self._began_s = self._shown_s = clock()

    def advance(self, item: Item, known_s: float, seconds: float) -> None:
        """The text of `known_s` of a recording's `seconds` is known."""
        self._heard_s[id(item)] = known_s
        self._shares[id(item)] = known_s / seconds if seconds else 1.0
        self._show()

    def finish(self, item: Item, seconds: float | None, took_s: float = 0.0) -> None:
        """A recording is done; seconds: its duration, None if it failed."""
        self._done += 1
        self._shares[id(item)] = 1.0
        if seconds is not None:
            self._finished_s.append(seconds)
            self._heard_s[id(item)] = seconds
            if not self._bar and not self._quiet:
                self.say(f"{item.key}: {seconds:.1f} s of audio in {took_s:.1f} s")
        self._show()

    def say(self, text: str) -> None:
        """Write a line, above the bar."""
        self._erase()
        self._stream.write(f"{text}\n")
        self._shown_s = self._clock() if not self._bar else 0.0
        self._stream.flush()

    def close(self) -> None:
        """Take the bar away and sum up."""
        self._erase()
        took_s = self._clock() - self._began_s
        if not self._quiet and self._finished_s:
            count, heard_s = len(self._finished_s), sum(self._finished_s)
            what = f"{count} recording{'s' * (count != 1)}, {heard_s:.1f} s of audio in {took_s:.1f} s"
            speed = f", {heard_s / took_s:.1f} times real time" if took_s else ""
            self._stream.write(f"{what}{speed}\n")
        self._stream.flush()

    def status(self) -> str:
        """Share, recordings, audio per time, time left."""
        took_s = self._clock() - self._began_s
        total = sum(self._sizes.values())
        share = sum(self._sizes[key] * self._shares[key] for key in self._sizes) / total if total else 1.0
        speed = f"{sum(self._heard_s.values()) / took_s:.0f}x" if took_s else "-x"
        left = f"{_clock(took_s / share * (1 - share))} left" if share > TELLING else "- left"
        return f"{share:4.0%}  {self._done}/{len(self._sizes)}  {speed}  {left}"

    def _show(self) -> None:
        wait_s = REDRAW_S if self._bar else LINE_S
        if self._quiet or self._clock() - self._shown_s < wait_s:
            return
        status = self.status()
        if not self._bar:
            self.say(status)
            return
        self._shown_s = self._clock()
        full = round(BAR * float(status.partition("%")[0]) / 100)
        line = f"[{'#' * full}{'-' * (BAR - full)}] {status}"
        self._stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self._stream.flush()

    def _erase(self) -> None:
        if self._bar:
            self._stream.write("\r\x1b[K")


def _size(item: Item) -> int:
    if isinstance(item.source, str | PathLike):
        try:
            return max(1, Path(item.source).stat().st_size)
        except OSError:
            return 1
    return UNKNOWN


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"

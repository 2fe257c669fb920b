"""What arrives while a STOP or COMMIT is pending: commands and audio, in order."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.audio import AudioBuffer

Channels = NDArray[np.float32]  # (channels, n), 16 kHz
Command = TypeVar("Command")


class Inbox(Generic[Command]):
    """A queue; audio that comes in many small frames is joined, so it takes no more room than in one."""

    def __init__(self) -> None:
        self._items: deque[Command | list[AudioBuffer]] = deque()
        self.clear()

    def __len__(self) -> int:
        return len(self._items)

    def add_command(self, command: Command) -> None:
        """Add a command."""
        self._items.append(command)
        self.commands += 1

    def add_audio(self, audio: Channels) -> None:
        """Add samples, float32 (channels, n)."""
        last = self._items[-1] if self._items else None
        if not isinstance(last, list):
            last = [AudioBuffer() for _ in audio]
            self._items.append(last)
        for buffer, channel in zip(last, audio, strict=True):
            buffer.append(channel)
        self.samples += audio.shape[1]

    def take(self) -> Command | Channels:
        """Remove and return the oldest: a command, or all audio up to the next command."""
        item = self._items.popleft()
        if not isinstance(item, list):
            self.commands -= 1
            return item
        audio = np.stack([buffer.read(buffer.start, buffer.end) for buffer in item])
        self.samples -= audio.shape[1]
        return audio

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self.commands = 0  # waiting
        self.samples = 0  # waiting, per channel

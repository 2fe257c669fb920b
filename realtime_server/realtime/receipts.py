"""When the samples of a session were received, so that the age of a text is known.

Samples are counted over the whole connection. A session's clock begins where its START stood among them, whether it
was obeyed at once or behind an unanswered STOP.
"""

from __future__ import annotations

from collections import deque

STEP_S = 0.05  # frames that come closer than this share a mark: it bounds the marks, and the error


class Receipts:
    """Marks of how many samples had been received, and when the first of them came."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()
        self._starts: deque[int] = deque()  # of sessions that have not begun
        self._received = self._base = 0

    def receive_audio(self, samples: int, now_s: float) -> None:
        """Samples came."""
        self._received += samples
        if self._marks and now_s - self._marks[-1][1] < STEP_S:
            now_s = self._marks.pop()[1]
        self._marks.append((self._received, now_s))

    def receive_start(self) -> None:
        """START came: what follows belongs to the session that it will begin."""
        self._starts.append(self._received)

    def begin(self) -> None:
        """The session of the oldest START has begun: its samples are meant from now on."""
        self._base = self._starts.popleft()
        self.forget(0)

    def age_s(self, sample: int, now_s: float) -> float:
        """How long ago this sample of the session was received; 0 for one that was not."""
        position = self._base + sample
        return next((now_s - at_s for received, at_s in self._marks if received >= position), 0.0)

    def forget(self, sample: int) -> None:
        """Nobody will ask for samples before this one any more."""
        position = self._base + sample
        while self._marks and self._marks[0][0] < position:
            self._marks.popleft()

    def forget_all(self) -> None:
        """No session is running: what came belongs to none."""
        self._marks.clear()

"""When the samples of a session were received, so that the age of a text is known.

Samples are counted over the whole connection. A session's clock begins where its START stood among them, whether it
was obeyed at once or behind an unanswered STOP.

Audio may come faster than anybody speaks: a recording, or what a bad network held back. Its texts are old by its
client's doing. So samples are also due: when they came, or when they could have been spoken behind those before them,
whichever is later. Speaking is taken to be a tenth faster than it is, so that what a burst put off is made up for.
And a client may fall silent, and only then end what it said: nothing of that was due before, and its final is as old as
that end. Which finals those are is told by where their ends were noticed: where the audio before that end is over.
"""

from __future__ import annotations

from collections import deque

from realtime_server.core.segments import SAMPLE_RATE

STEP_S = 0.05  # frames that come closer than this share a mark: it bounds the marks, and the error
UNJUDGED = SAMPLE_RATE // 10  # samples, at most, that are not judged yet where audio ends; see Endpointer
SPOKEN_S = 0.9 / SAMPLE_RATE  # per sample


class Receipts:
    """Marks of how many samples had been received, when the first of them came, and when the last was due.

    closes: how many had been received when the client ended them, and when.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float, float]] = deque()
        self._closes: deque[tuple[int, float]] = deque()
        self._due_s = self._closed_s = 0.0
        self._starts: deque[int] = deque()  # of sessions that have not begun
        self._received = self._base = 0

    def receive_audio(self, samples: int, now_s: float) -> None:
        """Samples came."""
        self._received += samples
        self._due_s = max(self._due_s, now_s) + samples * SPOKEN_S
        if self._marks and now_s - self._marks[-1][1] < STEP_S:
            now_s = self._marks.pop()[1]
        self._marks.append((self._received, now_s, self._due_s))

    def receive_start(self) -> None:
        """START came: what follows belongs to the session that it will begin."""
        self._starts.append(self._received)

    def receive_close(self, now_s: float) -> None:
        """The client ended what it had said, or was silent for so long that it counts as that."""
        self._closed_s = now_s
        if not self._closes or self._closes[-1][0] < self._received:
            self._closes.append((self._received, now_s))

    def begin(self) -> None:
        """The session of the oldest START has begun: its samples are meant from now on."""
        self._base = self._starts.popleft()
        self.forget(0)

    def age_s(self, sample: int, now_s: float) -> float:
        """How long ago this sample of the session was received; 0 for one that was not."""
        position = self._base + sample
        return next((now_s - at_s for received, at_s, _ in self._marks if received >= position), 0.0)

    def final_age_s(self, noticed: int, now_s: float) -> float:
        """How old a final is whose end was noticed when this sample of the session was judged.

        Where nothing came after that sample before the client ended what it had said, it is as old as that end.
        """
        position, age_s = self._base + noticed, self.age_s(noticed, now_s)
        ended = (at_s for received, at_s in self._closes if position <= received < position + UNJUDGED)
        return min(age_s, now_s - next(ended, now_s - age_s))

    def late_s(self, sample: int, now_s: float) -> float:
        """For how long this sample of the session has been due; 0 for one that is not."""
        position = self._base + sample
        due_s = next((due_s for received, _, due_s in self._marks if received >= position), now_s)
        return max(0.0, now_s - max(due_s, self._closed_s))

    def forget(self, sample: int) -> None:
        """Nobody will ask for samples before this one any more."""
        position = self._base + sample
        while self._marks and self._marks[0][0] < position:
            self._marks.popleft()
        while self._closes and self._closes[0][0] < position:
            self._closes.popleft()

    def forget_all(self) -> None:
        """No session is running: what came belongs to none."""
        self._marks.clear()
        self._closes.clear()

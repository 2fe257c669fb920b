"""How many connections one sender has open: each takes a file descriptor, also one that says nothing.

Who has as many as he may is told so on a few more, if he asks soon; beyond those he is cut off. Connections from this
machine are not counted: whoever can open them can do worse, and a proxy may stand here for everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from types import TracebackType

from realtime_server.doors.visitors import is_local
from realtime_server.errors import RETRY_S, AdmissionError

SPARE = 16  # of one sender, on which he is told
TELLING_S = 2.0  # for which each of these waits to be asked


class Stay:
    """One open connection, until it is released; also a context manager.

    error: what to say on it, which is one too many; None: it may go on.  cut: it is to be cut off without a word.
    """

    def __init__(
        self, leave: Callable[[], None] | None = None, *, error: AdmissionError | None = None, cut: bool = False
    ) -> None:  # fmt: skip
        self.error, self.cut = error, cut
        self._leave = leave  # what takes it out of the count it is in

    def release(self) -> None:
        """It is closed."""
        leave, self._leave = self._leave, None
        if leave:
            leave()

    def __enter__(self) -> Stay:
        """See the class."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Crowd:
    """Counts the open connections of every sender. most: of one, 0 for any number.  free: who may have any number."""

    def __init__(self, most: int, *, free: Callable[[str], bool] = is_local) -> None:
        self._most, self._free = most, free
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many senders have one open that is counted."""
        return len(self._counts)

    def enter(self, sender: str) -> Stay:
        """Count a connection that begins; it must be released when it ends."""
        if not self._most or self._free(sender):
            return Stay()
        before, error = self._counts[sender], None
        if before >= self._most:
            words = f"your address has {self._most} connections open already, which is all that it may have"
            error = AdmissionError(f"{words}; close some, or try again later", "connections", RETRY_S)
        if before >= self._most + SPARE:
            return Stay(error=error, cut=True)
        self._counts[sender] += 1
        return Stay(partial(self._leave, sender), error=error)

    def _leave(self, sender: str) -> None:
        self._counts[sender] -= 1
        if not self._counts[sender]:
            del self._counts[sender]

"""Text that is fixed while people still speak: it only grows, over partials and locked segments alike.

A partial's beginning is fixed where two successive partials agree on it, but for its last characters, which the next
sounds may still change, and for the word that they belong to. A later partial, or the final, that spells the fixed
words differently does not change them: what it has after as many words is appended. Which words those are is found by
alignment, so that a word more or less in the beginning neither repeats nor loses one behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from realtime_server.core.partials import join_texts
from realtime_server.core.stabilization import StableText, continue_text, word_ends


@dataclass(slots=True)
class _Open:
    """A segment that is not locked; shown begins with fixed."""

    stable: StableText = field(default_factory=StableText)
    fixed: str = ""
    shown: str = ""


class FixedText:
    """The text of one channel: `text` is all of it, `fixed` its beginning, which only grows.

    rollback_chars: so many characters at the end of a partial are not fixed.
    """

    def __init__(self, rollback_chars: int) -> None:
        self._rollback = rollback_chars
        self._locked = ""
        self._open: dict[int, _Open] = {}  # by segment, in the order in which they opened

    @property
    def fixed(self) -> str:
        """The beginning of `text` that stays; all of it when no segment is open."""
        first = next(iter(self._open.values()), None)
        return join_texts([self._locked, first.fixed if first else ""])

    @property
    def text(self) -> str:
        """What is known so far; its end may change."""
        return join_texts([self._locked, *(segment.shown for segment in self._open.values())])

    def receive_open(self, segment: int) -> None:
        """A segment opened; segments are locked in this order."""
        self._open[segment] = _Open()

    def receive_partial(self, segment: int, text: str, end: int) -> None:
        """Take a segment's whole text up to sample `end`."""
        at = self._open[segment]
        at.stable.receive_partial(text, end)
        stable = at.stable.stable
        if text.startswith(stable):
            room = len(text) - self._rollback
            longest = max((end for _, end in word_ends(stable) if end <= room), default=0)
            at.fixed = stable[: max(longest, len(at.fixed))]
        at.shown = continue_text(at.fixed, text)

    def receive_locked(self, segment: int, text: str) -> None:
        """A segment is settled with this text, which may be none."""
        self._locked = join_texts([self._locked, continue_text(self._open.pop(segment).fixed, text)])

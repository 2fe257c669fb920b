"""When to ask for a partial, over which window, and what the whole partial reads.

Theory. While a segment is open its text so far is decoded again and again. A recognizer for which long audio is
expensive must not see the whole segment each time, so the segment is cut into windows: once the current window is
as long as the engine can afford, the next request decodes it up to a quiet place once more (a settling request),
its text is kept as the settled beginning, and a new window starts there. The text shown is the settled beginning
followed by the text of the current window; it always covers the segment from its start.

In a pause the whole segment is decoded as its final would be. Heard as a whole, its beginning often reads otherwise
than window by window, and if speech goes on, the next partial would change all of it back. So the settled beginning
stays as it is shown, and what the whole says after those words goes on behind it.

At most one request is in flight. Audio that arrives meanwhile is folded into the next one, which is due an
interval after the last was asked for; the interval grows with the time that decodes take, so that an engine that
is busy with finals is asked for fewer partials. A request that had to wait for the engine takes along what was heard
meanwhile when it is begun. Half a second of audio holds so little speech that recognizers often
hear no word in it, or not in which language: until the second request would be due anyway, an empty answer says
nothing and is followed by another request soon. The same holds for the beginning of a later window.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from realtime_server.core.segments import to_samples
from realtime_server.core.settings import Pace
from realtime_server.core.stabilization import continue_text, word_ends


def is_unspaced(sign: str) -> bool:
    """Whether a sign belongs to Chinese or Japanese: it is as wide as an ideograph, and not Korean."""
    wide = unicodedata.east_asian_width(sign) in "WF"
    return wide and not unicodedata.name(sign, "").startswith("HANGUL")


def join_texts(texts: Iterable[str]) -> str:
    """Join pieces of text with a space, except where Chinese or Japanese touches the seam.

    Thai, Khmer, Burmese and their like have no spaces between words, but have them between sentences.
    """
    joined = ""
    for text in filter(None, (text.strip() for text in texts)):
        glued = not joined or is_unspaced(joined[-1]) or is_unspaced(text[0])
        joined += text if glued else " " + text
    return joined


@dataclass(frozen=True, slots=True)
class PartialRequest:
    """Decode samples [start, end); `settles` if its text becomes the settled beginning."""

    start: int
    end: int
    first: bool
    settles: bool


class PartialPlanner:
    """The partials of one segment.

    `take_request` says what to decode next, if anything; its answer must be followed by exactly one
    `receive_text` or `receive_failure` before another request is given.
    folded: partials that an engine without other work would have been asked for, and whose audio went into a later
    one or the final.
    """

    def __init__(
        self, start: int, *, pace: Pace, window_s: float, find_quiet: Callable[[int, int], int]
    ) -> None:
        self.folded = 0
        self._pace = pace
        self._window = to_samples(window_s * 1000)
        self._find_quiet = find_quiet
        self._settled_texts: list[str] = []
        self._window_start = start
        self._due = self._wanted = start + to_samples(pace.first_ms)
        self._in_flight: PartialRequest | None = None
        self._asked = False
        self._due_if_empty = self._due
        self._retried = to_samples(pace.first_ms + pace.interval_ms)  # samples of a window, at most

    def take_request(self, position: int, *, load_ms: float) -> PartialRequest | None:
        """Return what to decode now that samples up to `position` are judged; load_ms: what decodes take lately."""
        if self._in_flight or position < self._due:
            return None
        end, settles = position, False
        if position - self._window_start > self._window:
            last = self._window_start + self._window
            end, settles = self._find_quiet(self._window_start + self._window // 2, last), True
        least_ms = self._pace.load_factor * load_ms
        self._due = position + to_samples(max(self._pace.interval_ms, least_ms))
        self._due_if_empty = position + to_samples(max(self._pace.retry_ms, least_ms))
        interval = to_samples(self._pace.interval_ms)
        self.folded += max(0, position - self._wanted) // interval
        self._wanted = position + interval
        self._in_flight = PartialRequest(self._window_start, end, not self._asked, settles)
        self._asked = True
        return self._in_flight

    def receive_turn(self, position: int) -> int:
        """The request in flight is begun only now: return where it ends, with what was heard up to `position`."""
        request = self._in_flight
        if request is None:
            raise RuntimeError("a turn without a request")
        end = request.end
        if not request.settles:
            end = max(end, min(position, self._window_start + self._window))
            self._in_flight = replace(request, end=end)
        return end

    def receive_text(self, text: str) -> str | None:
        """Take the text of the request in flight; return the whole text to show, None if there is none yet."""
        request, self._in_flight = self._in_flight, None
        if request is None:
            raise RuntimeError("a text without a request")
        if not request.settles:
            if not text.strip() and request.end - request.start < self._retried:
                self._due = self._due_if_empty
                return None
            return join_texts([*self._settled_texts, text])
        self._settled_texts = [join_texts([*self._settled_texts, text])]
        self._window_start = request.end
        self._due = request.end  # the rest of the audio is still unread
        return None

    def join_whole(self, text: str) -> str:
        """Return the whole text to show, now that the segment was decoded from its start, as this."""
        settled = join_texts(self._settled_texts)
        words = word_ends(settled)
        last = words[-1][1] if words else 0
        return continue_text(settled[:last], text)  # a window's end is no sentence's: its full stop may go

    def receive_failure(self) -> None:
        """The request in flight failed or was cancelled; a later one covers its audio."""
        self._in_flight = None

    def receive_end(self, end: int) -> None:
        """The segment ends here: what was due until then is part of the final."""
        if end >= self._wanted:
            self.folded += 1 + (end - self._wanted) // to_samples(self._pace.interval_ms)

"""From what the language model wrote to what is sent: no control tokens, no halves of characters, single spaces.

Whole or streamed, the text is the same: the deltas of StreamedAnswer add up to `cleaned` of the whole.
"""

from __future__ import annotations

import re

from realtime_server.core.postprocess import normalise_space, strip_invisible, strip_tokens

# The beginning of what may yet become a control token, at the end of the text, and of those that it may lie in.
_OPENED = re.compile(r"(?:<(?:\|[^<>|\s]{0,64}\|?|/?[a-z]{0,4})?)+$", re.IGNORECASE)


def cleaned(text: str) -> str:
    """The text without control tokens, invisible characters, and replacement characters at its edges."""
    return normalise_space(strip_tokens(strip_invisible(text)))


class StreamedAnswer:
    """One answer, as it is generated."""

    def __init__(self) -> None:
        self._raw = ""
        self._sent = ""

    def process_delta(self, text_delta: str, finished: bool) -> str:
        """What can be sent now that `text_delta` has come; the rest, if it has `finished`.

        Held back are what may become a control token, and white space and replacement characters that nothing follows.
        """
        self._raw += text_delta
        text = cleaned(self._raw)
        if not finished:
            text = normalise_space(_OPENED.sub("", text))
        if len(text) <= len(self._sent):
            return ""
        sent, self._sent = self._sent, text
        return text[len(sent) :]

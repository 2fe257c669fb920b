"""Every exception this project raises on purpose.

RealtimeServerError
├── ConfigurationError      a flag, file or value the operator gave cannot work; says what to do
├── WeightsError            a model file is missing, damaged or refused; says what to do
├── ProtocolError           a client's message that cannot be obeyed; the text goes to the client
│   └── FieldError          the same of one field of it, which is named
├── AudioError              a recording that cannot be used; the text goes to who sent it, `code` to programs
├── NoSessionError          a session that is not here, or not any more; the text goes to who asked
├── BusyError               too much is waiting already; the same request may work later
├── AdmissionError          somebody who is not let in; the text goes to him, `reason` to programs
└── EngineError             a recognizer or scorer failed
    ├── EngineTimeoutError  no answer within the job's deadline
    └── UnsupportedError    the engine lacks what the job asks for

Mistakes of our own callers (a result for a job that never was, a negative position) are ValueError and
RuntimeError: they are bugs, not conditions.
"""

from __future__ import annotations

import math
from typing import Literal


class RealtimeServerError(Exception):
    """Base of the tree above; catch it to catch all of them."""


class ConfigurationError(RealtimeServerError):
    """The operator's flags, files or values cannot work."""


class WeightsError(RealtimeServerError):
    """A model file is missing, damaged, or does not have the hash it must have."""


class ProtocolError(RealtimeServerError):
    """A client's message that cannot be obeyed; `str(error)` is what the client is told."""


class FieldError(ProtocolError):
    """A field of a client's message that cannot be obeyed; None: the message as a whole."""

    def __init__(self, message: str, field: str | None, code: str = "bad_request") -> None:
        super().__init__(message)
        self.field, self.code = field, code


AudioCode = Literal[
    "unreadable",  # the file is missing, a folder, or may not be read
    "too_big",  # more bytes than the limit
    "empty",  # there is no sound in it
    "undecodable",  # not a recording, damaged from the beginning, or of a kind that is not read here
    "no_channel",  # the channel that was asked for is not there
    "too_long",  # more audio than the limit
    "too_slow",  # decoding took longer than the limit
]


class AudioError(RealtimeServerError):
    """A recording that cannot be used; `str(error)` is one sentence for whoever sent it."""

    def __init__(self, message: str, code: AudioCode) -> None:
        super().__init__(message)
        self.code: AudioCode = code


class NoSessionError(RealtimeServerError):
    """No session has that name: it may come, or be over and forgotten."""


class BusyError(RealtimeServerError):
    """Too much is waiting already, or the server is stopping; the same request may work later."""


RETRY_S = 5  # what a client is told to wait that may try again, where nothing else is known

AdmissionReason = Literal[
    "no_token",  # and one is needed
    "bad_token",  # nobody has that token
    "expired_token",
    "right",  # the token is good, but not for this
    "origin",  # pages of that origin are not let in
    "rate",  # too many requests from one address
    "connections",  # too many open of one address
    "sessions",  # too many at once with one token
]
_STATUSES: dict[AdmissionReason, int] = {
    "no_token": 401, "bad_token": 401, "expired_token": 401, "right": 403, "origin": 403, "rate": 429,
    "connections": 429, "sessions": 429,
}  # fmt: skip


class AdmissionError(RealtimeServerError):
    """Somebody who is not let in; `str(error)` is one sentence for him, without anything secret.

    retry_s: when to try again, if that may help.  token: the name of his token, for the operator.
    """

    def __init__(
        self, message: str, reason: AdmissionReason, retry_s: float | None = None, *, token: str | None = None
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.reason: AdmissionReason = reason
        self.retry_s, self.token = retry_s, token

    @property
    def status(self) -> int:
        """Of HTTP."""
        return _STATUSES[self.reason]

    @property
    def headers(self) -> dict[str, str]:
        """Of HTTP: how to ask for admission, or when to try again."""
        if self.status == 401:
            problem = "" if self.reason == "no_token" else ', error="invalid_token"'
            return {"WWW-Authenticate": f'Bearer realm="realtime-server"{problem}'}
        return {} if self.retry_s is None else {"Retry-After": str(math.ceil(self.retry_s))}


class EngineError(RealtimeServerError):
    """A recognizer or scorer failed on a job."""


class EngineTimeoutError(EngineError):
    """No answer within the job's deadline."""


class UnsupportedError(EngineError):
    """The engine lacks what the job asks for; Capabilities told so beforehand."""

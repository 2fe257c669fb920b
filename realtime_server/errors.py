"""Every exception this project raises on purpose.

RealtimeServerError
├── ConfigurationError      a flag, file or value the operator gave cannot work; says what to do
├── WeightsError            a model file is missing, damaged or refused; says what to do
├── ProtocolError           a client's message that cannot be obeyed; the text goes to the client
│   └── FieldError          the same of one field of it, which is named
├── AudioError              a recording that cannot be used; the text goes to who sent it, `code` to programs
├── BusyError               too much is waiting already; the same request may work later
└── EngineError             a recognizer or scorer failed
    ├── EngineTimeoutError  no answer within the job's deadline
    └── UnsupportedError    the engine lacks what the job asks for

Mistakes of our own callers (a result for a job that never was, a negative position) are ValueError and
RuntimeError: they are bugs, not conditions.
"""

from __future__ import annotations

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


class BusyError(RealtimeServerError):
    """Too much is waiting already, or the server is stopping; the same request may work later."""


class EngineError(RealtimeServerError):
    """A recognizer or scorer failed on a job."""


class EngineTimeoutError(EngineError):
    """No answer within the job's deadline."""


class UnsupportedError(EngineError):
    """The engine lacks what the job asks for; Capabilities told so beforehand."""

"""Every exception this project raises on purpose.

RealtimeServerError
├── ConfigurationError      a flag, file or value the operator gave cannot work; says what to do
├── WeightsError            a model file is missing, damaged or refused; says what to do
├── ProtocolError           a client's message that cannot be obeyed; the text goes to the client
└── EngineError             a recognizer or scorer failed
    ├── EngineTimeoutError  no answer within the job's deadline
    └── UnsupportedError    the engine lacks what the job asks for

Mistakes of our own callers (a result for a job that never was, a negative position) are ValueError and
RuntimeError: they are bugs, not conditions.
"""

from __future__ import annotations


class RealtimeServerError(Exception):
    """Base of the tree above; catch it to catch all of them."""


class ConfigurationError(RealtimeServerError):
    """The operator's flags, files or values cannot work."""


class WeightsError(RealtimeServerError):
    """A model file is missing, damaged, or does not have the hash it must have."""


class ProtocolError(RealtimeServerError):
    """A client's message that cannot be obeyed; `str(error)` is what the client is told."""


class EngineError(RealtimeServerError):
    """A recognizer or scorer failed on a job."""


class EngineTimeoutError(EngineError):
    """No answer within the job's deadline."""


class UnsupportedError(EngineError):
    """The engine lacks what the job asks for; Capabilities told so beforehand."""

"""What clients are told when a request cannot be done: OpenAI's shape, {"error": {message, type, param, code}}."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from realtime_server.errors import (
    RETRY_S,
    AdmissionError,
    AudioError,
    BusyError,
    EngineError,
    FieldError,
    RealtimeServerError,
    UnsupportedError,
)

logger = logging.getLogger(__name__)


class RequestError(RealtimeServerError):
    """A request that cannot be done.

    str(error): one sentence for its sender.  status: of HTTP.  param: the field it is about.  code: for programs.
    """

    def __init__(
        self, message: str, status: int = HTTPStatus.BAD_REQUEST, *, param: str | None = None,
        code: str | None = None, headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.param, self.code = int(status), param, code
        again = self.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        self.headers = {"Retry-After": str(RETRY_S), **headers} if again else dict(headers)

    @property
    def kind(self) -> str:
        """OpenAI's `type`."""
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limit_error"
        return "server_error" if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"

    @property
    def body(self) -> dict[str, object]:
        """The JSON object."""
        fields = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": fields}

    @property
    def response(self) -> Response:
        """The answer; whoever may try again is told when."""
        return Response(json.dumps(self.body), self.status, self.headers, "application/json")


def stopping() -> RequestError:
    """The server takes no more work."""
    words = "the server is stopping; connect to another or try again later"
    return RequestError(words, HTTPStatus.SERVICE_UNAVAILABLE, code="stopping")


def explain(error: Exception) -> RequestError:
    """Put any error in words for the client; what it need not know is logged."""
    match error:
        case RequestError():
            return error
        case AudioError(code=code):
            large = code in ("too_big", "too_long")
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if large else HTTPStatus.BAD_REQUEST
            return RequestError(str(error), status, param="file", code=code)
        case AdmissionError():
            return RequestError(str(error), error.status, code=error.reason, headers=error.headers)
        case FieldError():
            return RequestError(str(error), param=error.field)
        case BusyError(__cause__=OSError() as cause):
            logger.error("a request failed: %s", cause)
            words = f"{error}; try again later"
            return RequestError(words, HTTPStatus.SERVICE_UNAVAILABLE, code="no_room")
        case BusyError():
            return RequestError(f"{error}; try again later", HTTPStatus.TOO_MANY_REQUESTS, code="busy")
        case UnsupportedError():
            return RequestError(str(error), code="unsupported")
        case EngineError():
            logger.error("a request failed: %s", error)
            words = "the recognizer does not work now; try again later"
            return RequestError(words, HTTPStatus.SERVICE_UNAVAILABLE, code="engine")
        case HTTPException():
            return _explain_http(error)
    logger.error("a request failed", exc_info=error)
    return INTERNAL


INTERNAL = RequestError("internal error", HTTPStatus.INTERNAL_SERVER_ERROR, code="internal")


def _explain_http(error: HTTPException) -> RequestError:
    """What the web framework refuses by itself."""
    headers = error.headers or {}
    code: str | None
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            words, code = "nothing is here; GET /docs lists what there is", "unknown_url"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            words, code = f"use {headers.get('Allow', 'another method')}", "method_not_allowed"
        case _:
            words, code = str(error.detail), None
    return RequestError(words, error.status_code, code=code, headers=headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer a request that raised an error on purpose."""
    return explain(error).response


async def answer_bug(request: Request, error: Exception) -> Response:
    """Answer a request that raised any other error, which the web server logs."""
    return INTERNAL.response

"""POST /tokens: session tokens, for the owner of a token to hand to somebody who must not have his own."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from realtime_server.doors.session_tokens import LONGEST_S, MINTABLE, TTL_S, Wish
from realtime_server.errors import FieldError
from realtime_server.http.admission import visitor_of
from realtime_server.http.errors import RequestError
from realtime_server.realtime.reception import Reception

BODY_BYTES, BODY_S = 4096, 10.0
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "rights": {
            "type": "array", "items": {"type": "string", "enum": list(MINTABLE)}, "minItems": 1,
            "default": ["transcribe"], "description": "what it is good for; no more than your own token",
        },
        "ttl_s": {
            "type": "integer", "minimum": 1, "maximum": LONGEST_S, "default": TTL_S,
            "description": "seconds in which it lets somebody in; who is in stays in",
        },
        "session": {
            "type": "string", "description": "name of the only session that it is good for",
        },
    },
}  # fmt: skip


class TokensApi:
    """The endpoint, on `router`."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self.router = APIRouter(tags=["who may come in"])
        body = {"requestBody": {"required": False, "content": {"application/json": {"schema": SCHEMA}}}}
        self.router.add_api_route(
            "/tokens", self.mint, methods=["POST"], response_class=JSONResponse, openapi_extra=body
        )

    async def mint(self, request: Request) -> Response:
        """Make a session token; your own token is in the header, `Authorization: Bearer TOKEN`."""
        visitor = visitor_of(request)
        with self._reception.noting(visitor):
            maker = self._reception.door.find_maker(visitor)
            wish = Wish.read(await _read_json(request))
            minted = self._reception.door.mint(maker, wish)
        return JSONResponse(minted.body, headers={"Cache-Control": "no-store"})


async def _read_json(request: Request) -> object:
    """Read the body; none is an empty object. Raises FieldError and RequestError."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                data += piece
                if len(data) > BODY_BYTES:
                    words = f"the body is longer than {BODY_BYTES} bytes"
                    raise RequestError(words, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, code="too_big")
    except TimeoutError:
        words = f"the body did not come within {BODY_S:g} s"
        raise RequestError(words, HTTPStatus.REQUEST_TIMEOUT, code="timeout") from None
    try:
        return json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise FieldError("the body is not JSON", None) from None

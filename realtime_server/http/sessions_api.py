"""/sessions/NAME: live sessions for those who only read: over a WebSocket, or their transcripts as files.

Who may is decided before (admission.py): all of these need the right `view`.
"""

from __future__ import annotations

import asyncio
import hashlib
from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from realtime_server.core.session_names import read_name
from realtime_server.errors import BusyError, FieldError, NoSessionError
from realtime_server.http.answers import notes_header
from realtime_server.http.errors import RequestError, explain, stopping
from realtime_server.http.exports import MEDIA_TYPES, Export, Speakers
from realtime_server.http.service import FileService
from realtime_server.http.slices import Slices
from realtime_server.realtime.addresses import ToView, read_history
from realtime_server.realtime.viewers import Gallery

PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
SPEAKERS = {
    "name": "speakers", "in": "query", "required": False, "schema": {"type": "string", "default": "on"},
    "description": "on, off, or their names, 0:Ann,1:Bob; of the speaker 1 of channel 0: 0.1:Ann",
}  # fmt: skip


class SessionsApi:
    """The endpoints, on `router`."""

    def __init__(self, gallery: Gallery, service: FileService) -> None:
        self._gallery, self._service = gallery, service
        self._slices = Slices()
        self.router = APIRouter(tags=["live sessions"])
        path = "/sessions/{name}"
        self.router.add_api_websocket_route(path, self.view)
        for where, answer, response, extra in (
            (path, self.tell, JSONResponse, {}),
            (f"{path}/transcript.{{form}}", self.export, Response, {"parameters": [SPEAKERS]}),
        ):
            self.router.add_api_route(
                where, answer, methods=["GET"], response_class=response, openapi_extra=extra
            )
            self.router.add_api_route(where, answer, methods=["HEAD"], include_in_schema=False)

    async def view(self, websocket: WebSocket, name: str) -> None:
        """Send a session's messages, in protocol 2, to somebody who sends none."""
        try:
            viewing = self._gallery.open(ToView(read_name(name), read_history(websocket.url.query)))
        except (FieldError, NoSessionError, BusyError) as error:
            response = _refusal(error).response
            del response.headers["content-length"]  # uvicorn adds it, and some versions do not look
            await websocket.send_denial_response(response)
            return
        try:
            await websocket.accept()
            await self._gallery.show(viewing, StarletteSocket(websocket))
        except WebSocketDisconnect:
            return
        finally:
            viewing.close()

    async def tell(self, name: str) -> Response:
        """Tell whether a session can be viewed, and whether it still runs."""
        try:
            told = self._gallery.tell(read_name(name))
        except NoSessionError as error:
            raise _refusal(error) from error
        return JSONResponse(told, headers={**PRIVATE, "Access-Control-Allow-Origin": "*"})

    async def export(self, name: str, form: str, request: Request) -> Response:
        """Return what was said so far in a session that lives, or has ended not long ago: txt, srt, vtt or json."""
        if form not in MEDIA_TYPES:
            raise RequestError(
                f"there is no transcript.{form[:8]}; there are {', '.join(MEDIA_TYPES)}",
                HTTPStatus.NOT_FOUND, code="unknown_url",
            )  # fmt: skip
        speakers = Speakers.read(request.query_params.get("speakers"))
        try:
            kept = self._gallery.find(read_name(name))
        except NoSessionError as error:
            raise _refusal(error) from error
        export = Export.of(form, kept.record, speakers, key=kept.id)

        async def has_left() -> bool:
            if self._service.draining:
                raise stopping()
            return await request.is_disconnected()

        text = await self._slices.do(kept.id, export.write, has_left)
        if text is None:
            return Response()  # nobody is there to read it
        body, tag = await asyncio.to_thread(_tagged, text)
        headers = {
            **PRIVATE, **notes_header(export.found), "ETag": tag,
            "Content-Disposition": f'attachment; filename="{name}.{form}"',
        }  # fmt: skip
        # A proxy that compresses makes a tag a weak one.
        known = (
            each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")
        )
        if {tag, "*"}.intersection(known):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(body, headers=headers, media_type=MEDIA_TYPES[form])


class StarletteSocket:
    """A WebSocket of this port; see ViewerSocket. `abort` is up to its server, which cuts it when we return."""

    gone = WebSocketDisconnect

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, message: str) -> None:
        """Send a message; wait while the other side does not read."""
        await self._websocket.send_text(message)

    async def receive(self) -> None:
        """Wait for any message."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye."""
        await self._websocket.close(code, reason)

    def abort(self) -> None:
        """Cut the connection."""


def _tagged(text: str) -> tuple[bytes, str]:
    """The bytes of a file and its ETag; long ones take a while."""
    body = text.encode("utf-8", "replace")
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _refusal(error: FieldError | NoSessionError | BusyError) -> RequestError:
    """Say to somebody that he cannot view or read a session."""
    match error:
        case NoSessionError():
            return RequestError(str(error), HTTPStatus.NOT_FOUND, param="session", code="no_session")
        case BusyError():
            words = f"{error}; try again later"
            return RequestError(words, HTTPStatus.SERVICE_UNAVAILABLE, code="viewers")
    return explain(error)

"""POST /asr: a recording in, its text with word times and speakers out, as FunASR's service has it."""

from __future__ import annotations

import time
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from realtime_server.http import wishes
from realtime_server.http.answers import JSON, Worked, render
from realtime_server.http.forms import Field, Form, read_form, request_body
from realtime_server.http.service import FileService, until_left, while_connected
from realtime_server.offline.formats import asr_answer

FIELDS = (
    wishes.FILE,
    wishes.LANGUAGE,
    wishes.HOTWORDS,
    wishes.SPEAKERS,
    Field("timestamp", "word times, where the recognizer has them", "boolean", default="true"),
)


class AsrApi:
    """The endpoint, on `router`."""

    def __init__(self, service: FileService) -> None:
        self._service = service
        self.router = APIRouter(tags=["FunASR"])
        extra = request_body(FIELDS)
        self.router.add_api_route(
            "/asr", self.recognise, methods=["POST"], response_class=Response, openapi_extra=extra
        )

    async def recognise(self) -> Response:
        """Transcribe a recording: text, segments, word times, speakers."""
        return Worked(self._answer)

    async def _answer(self, request: Request, send: Send) -> Response:
        service = self._service
        with service.admitted():
            async with read_form(request, FIELDS, service.options) as form:
                return await while_connected(until_left(request.receive), self._work(form))

    async def _work(self, form: Form) -> Response:
        begun_s = time.monotonic()
        words = form.flag("timestamp")
        options = wishes.read_options(form, self._service, words=words, speakers=form.flag("spk"))
        async with self._service.recording(form.file) as recording:
            found = await self._service.transcribe(recording, options)
        took_s = time.monotonic() - begun_s
        write = partial(asr_answer, found, processing_s=took_s, speakers=options.speakers, words=words)
        return await render(found, write, JSON)

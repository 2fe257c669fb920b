"""OpenAI's audio endpoints, as its clients use them: transcriptions, translations, models."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Send

from realtime_server.core.jobs import Task
from realtime_server.http import wishes
from realtime_server.http.answers import JSON, TEXT, VTT, Worked, render, stream
from realtime_server.http.errors import RequestError
from realtime_server.http.forms import SHOWN, Field, Form, read_form, request_body
from realtime_server.http.service import FileService, until_left, while_connected
from realtime_server.offline import formats, subtitles
from realtime_server.offline.formats import Json
from realtime_server.offline.options import FileOptions
from realtime_server.offline.transcription import Transcription

# Clients name these because they must name something; the model that runs here answers to all of them.
ALIASES = (
    "fun-asr-nano", "whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe",
    "gpt-4o-transcribe-diarize",
)  # fmt: skip
FORMATS = ("json", "text", "srt", "verbose_json", "vtt", "diarized_json")
STREAMED = ("json", "text", "diarized_json")
WORDS, FORMAT, STREAM = "timestamp_granularities", "response_format", "stream"

_SHARED = (
    wishes.FILE,
    Field(
        "model", "one of GET /v1/models: all of them mean the model that runs here", default="fun-asr-nano"
    ),
    wishes.LANGUAGE,
    wishes.HOTWORDS,
    Field("prompt", "like `hotwords`, as a hint"),
    wishes.SPEAKERS,
    Field("temperature", "0 to 1; without effect: the likeliest text is taken", "number", default="0"),
)
TRANSCRIPTIONS = (
    *_SHARED,
    Field(FORMAT, "diarized_json tells speakers apart", default="json", choices=FORMATS),
    Field(WORDS, "of verbose_json; both unless given", choices=("word", "segment"), many=True),
    Field(STREAM, "answer segment by segment, in server-sent events", "boolean", default="false"),
    Field("keywords", "like `hotwords`", many=True),
    Field("chunking_strategy", "without effect: pauses are always found here", default="auto", choices=("auto",)),
)  # fmt: skip
TRANSLATIONS = (*_SHARED, Field(FORMAT, "how to answer", default="json", choices=FORMATS[:-1]))


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that can be done.  streamed: answer with events; words: with word times."""

    options: FileOptions
    response_format: str
    streamed: bool
    words: bool


class OpenAIApi:
    """The endpoints, on `router`. own_names: what the model that runs here is called."""

    def __init__(self, service: FileService, own_names: Sequence[str]) -> None:
        self._service, self._created = service, int(time.time())
        self._names = tuple(dict.fromkeys((*own_names, *ALIASES)))
        self.router = APIRouter(prefix="/v1", tags=["OpenAI"])
        add = self.router.add_api_route
        for path, answer, fields in (
            ("/audio/transcriptions", self.transcribe, TRANSCRIPTIONS),
            ("/audio/translations", self.translate, TRANSLATIONS),
        ):
            extra = request_body(fields)
            add(path, answer, methods=["POST"], response_class=Response, openapi_extra=extra)
        add("/models", self.list_models, methods=["GET"])
        add("/models/{name:path}", self.describe_model, methods=["GET"])

    async def transcribe(self) -> Response:
        """Transcribe a recording."""
        return Worked(partial(self._answer, TRANSCRIPTIONS, "transcribe"))

    async def translate(self) -> Response:
        """Translate a recording to English, if the recognizer can."""
        return Worked(partial(self._answer, TRANSLATIONS, "translate"))

    async def list_models(self) -> JSONResponse:
        """List the names that `model` may have."""
        return JSONResponse({"object": "list", "data": [self._describe(name) for name in self._names]})

    async def describe_model(self, name: str) -> JSONResponse:
        """Describe one of them."""
        self._check_model(name)
        return JSONResponse(self._describe(name))

    async def _answer(
        self, fields: Sequence[Field], task: Task, request: Request, send: Send
    ) -> Response | None:
        service = self._service
        with service.admitted():
            async with read_form(request, fields, service.options) as form:
                asked = self._check_request(form, task)
                return await while_connected(until_left(request.receive), self._work(form, asked, send))

    async def _work(self, form: Form, asked: CheckedRequest, send: Send) -> Response | None:
        async with self._service.recording(form.file) as recording:
            transcribe = partial(self._service.transcribe, recording, asked.options)
            if asked.streamed:
                await stream(transcribe, send, diarized=asked.response_format == "diarized_json")
                return None
            found = await transcribe()
        write, media_type = _writer(found, asked)
        return await render(found, write, media_type)

    def _check_request(self, form: Form, task: Task) -> CheckedRequest:
        self._check_model(form.text("model"))
        form.number("temperature", 0, 1)
        response_format = form.text(FORMAT)
        streamed = words = False
        if task == "transcribe":
            form.text("chunking_strategy")
            words = self._wants_words(form)
            streamed = form.flag(STREAM)
        if streamed and response_format not in STREAMED:
            words_ = f"{response_format} cannot be streamed; {', '.join(STREAMED)} can"
            raise RequestError(words_, param=STREAM)
        speakers = form.flag("spk") or response_format == "diarized_json"
        for_words = words if response_format == "verbose_json" else response_format in ("srt", "vtt")
        options = wishes.read_options(form, self._service, words=for_words, speakers=speakers, task=task)
        return CheckedRequest(options, response_format, streamed, words)

    def _wants_words(self, form: Form) -> bool:
        """Whether the answer should have word times: unless only segments are asked for."""
        wanted = form.texts(WORDS)
        can = self._service.capabilities.words
        if "word" in wanted and not can:
            raise RequestError("this recognizer has no word times", param=WORDS, code="unsupported")
        return can and (not wanted or "word" in wanted)

    def _check_model(self, name: str) -> None:
        if name not in self._names:
            words = f"there is no model '{name[:SHOWN]}' here; GET /v1/models lists what there is"
            raise RequestError(words, HTTPStatus.NOT_FOUND, param="model", code="model_not_found")

    def _describe(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "realtime-server"}


def _writer(found: Transcription, asked: CheckedRequest) -> tuple[Callable[[], str | Json], str]:
    """Return what writes the answer, and its media type."""
    speakers = asked.options.speakers
    match asked.response_format:
        case "text":
            return lambda: f"{found.text}\n", TEXT
        case "srt":
            return partial(subtitles.srt, found, speakers=speakers), TEXT
        case "vtt":
            return partial(subtitles.vtt, found, speakers=speakers), VTT
        case "verbose_json":
            write = partial(formats.openai_verbose_json, found, speakers=speakers, words=asked.words)
            return write, JSON
        case "diarized_json":
            return partial(formats.openai_diarized_json, found), JSON
    return partial(formats.openai_json, found), JSON

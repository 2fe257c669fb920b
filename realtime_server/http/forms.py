"""Forms with a recording: fields as a table, from which they are read, checked and documented.

A recording goes to a temporary file as it arrives; its bytes are counted there, whatever a header promises. Fields
that an endpoint does not have are refused: a misspelt one would go unnoticed otherwise. Empty values count as absent,
as curl and browsers send them for fields left empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, BinaryIO, Literal

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message, Receive

from realtime_server.http.errors import RequestError
from realtime_server.http.options import HttpOptions
from realtime_server.offline.audio_source import NO_FOLDER, scarcity

logger = logging.getLogger(__name__)
# It warns of every form that cannot be read, which any client may send as often as it likes.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

MOST_FIELDS = 100
FIELD_BYTES = 1 << 18
LEAST_BYTES = 1 << 10  # of an upload in `stall_s`; who sends less keeps a place and hardly uses it
SHOWN = 80  # characters of a value that an error repeats
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    many: it may be given several times, also as `name[]`, the way in which OpenAI's clients write lists.
    """

    name: str
    about: str
    kind: Literal["string", "boolean", "number", "file"] = "string"
    default: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False


class Form:
    """What was sent; every value is checked when it is read, and an error names its field."""

    def __init__(self, fields: Sequence[Field], items: Sequence[tuple[str, str | UploadFile]]) -> None:
        self._fields = {field.name: field for field in fields}
        self._values: dict[str, list[str]] = {}
        self._files: dict[str, BinaryIO] = {}
        for name, value in items:
            self._add(name, value)

    @property
    def file(self) -> BinaryIO:
        """The recording. Raises RequestError if there is none."""
        if "file" not in self._files:
            raise RequestError("there is no recording: send it as the form's part `file`", param="file")
        return self._files["file"]

    def gives(self, name: str) -> bool:
        """Whether there is such a field, and it was sent, and not empty."""
        return name in self._values

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a field that may have several, each one of its choices if it has any."""
        field = self._fields[name]
        values = tuple(self._values.get(name, filter(None, [field.default])))
        for value in values:
            if field.choices and value not in field.choices:
                raise _unknown(field, value)
        return values

    def text(self, name: str) -> str:
        """The value of a field, "" if it has neither a value nor a default."""
        return next(iter(self.texts(name)), "")

    def flag(self, name: str) -> bool:
        """A boolean."""
        value = self.text(name)
        if value.casefold() not in TRUE + FALSE:
            raise _unknown(self._fields[name], value)
        return value.casefold() in TRUE

    def number(self, name: str, least: float, most: float) -> float:
        """A number within bounds."""
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            wanted = f"a number from {least:g} to {most:g}"
            raise RequestError(f"{name} must be {wanted}, not '{value[:SHOWN]}'", param=name)
        return number

    def _add(self, name: str, value: str | UploadFile) -> None:
        field = self._fields.get(name) or self._fields.get(name.removesuffix("[]"))
        if field is None or (name.endswith("[]") and not field.many):
            known = ", ".join(self._fields)
            said = name[:SHOWN]
            raise RequestError(f"there is no field '{said}' here; there are {known}", param=said)
        if isinstance(value, UploadFile) != (field.kind == "file"):
            wanted = "a file" if field.kind == "file" else "a text, not a file"
            raise RequestError(f"{name} must be {wanted}", param=name)
        if isinstance(value, UploadFile):
            self._files[field.name] = value.file
        elif value.strip():
            values = self._values.setdefault(field.name, [])
            if values and not field.many:
                raise RequestError(f"{name} is given more than once", param=name)
            values.append(value.strip())


def _unknown(field: Field, value: str) -> RequestError:
    wanted = " or ".join(field.choices or ("true", "false"))
    return RequestError(f"{field.name} must be {wanted}, not '{value[:SHOWN]}'", param=field.name)


@asynccontextmanager
async def read_form(request: Request, fields: Sequence[Field], options: HttpOptions) -> AsyncIterator[Form]:
    """Receive a form; its temporary file is there until the end of the block.

    Raises RequestError: 400, 408, 413, 415; BusyError where there is no room for it; and ClientDisconnect.
    """
    _check_kind(request.headers.get("content-type", ""))
    most = options.limits.file_bytes + options.form_bytes
    if _promised(request) > most:
        raise _too_big(options)
    counted = Request(request.scope, _Counted(request.receive, most, options))
    form = await _parse(counted, options.form_bytes)
    try:
        yield Form(fields, form.multi_items())
    finally:
        with suppress(OSError):  # what waits to be written has no room, and nobody needs it
            await form.close()


def _check_kind(header: str) -> None:
    kind, parameters = parse_options_header(header)
    refused = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    if kind.lower() != b"multipart/form-data":
        sent = f"not {kind.decode('latin-1')[:SHOWN]}" if kind else "and it has no Content-Type"
        words = f"the request must be multipart/form-data, with the recording in the part `file`, {sent}"
        raise RequestError(words, refused, code="unsupported_media_type")
    if parameters.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise RequestError("the charset of a form must be utf-8", refused, code="unsupported_media_type")


async def _parse(request: Request, form_bytes: int) -> FormData:
    parser = _Parser(request, form_bytes)
    try:
        with scarcity(NO_FOLDER):
            return await parser.parse()
    except (MultiPartException, FormParserError) as error:  # it depends on starlette's version which
        logger.debug("a form that cannot be read: %s", error)
        words = getattr(error, "message", "the form cannot be read: it is no multipart/form-data")
        raise RequestError(words) from None


class _Parser(MultiPartParser):
    """Reads a form; its fields together hold no more than `form_bytes`, however much its recording may."""

    def __init__(self, request: Request, form_bytes: int) -> None:
        super().__init__(
            request.headers, request.stream(), max_files=1, max_fields=MOST_FIELDS, max_part_size=FIELD_BYTES
        )
        self._left, self._most = form_bytes, form_bytes

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Take a piece of a part."""
        if self._current_part.file is None:
            self._left -= end - start
            if self._left < 0:
                words = f"the fields of the form hold more than {self._most} bytes, the limit"
                raise RequestError(words, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, code="too_big")
        super().on_part_data(data, start, end)


class _Counted:
    """Receives a request's body, no more of it than allowed, and not slower than LEAST_BYTES in `stall_s`."""

    def __init__(self, receive: Receive, most: int, options: HttpOptions) -> None:
        self._receive, self._most, self._options = receive, most, options
        self._clock = asyncio.get_running_loop().time
        self._bytes = 0
        self._window = 0  # the bytes that had come when `stall_s` began to count
        self._until_s = self._clock() + options.stall_s

    async def __call__(self) -> Message:
        if self._bytes - self._window >= LEAST_BYTES:
            self._window, self._until_s = self._bytes, self._clock() + self._options.stall_s
        try:
            async with asyncio.timeout_at(self._until_s):
                message = await self._receive()
        except TimeoutError:
            came = self._bytes - self._window
            words = f"{f'only {came} bytes' if came else 'nothing'} came for {self._options.stall_s:g} s"
            raise RequestError(words, HTTPStatus.REQUEST_TIMEOUT, code="timeout") from None
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            raise _too_big(self._options)
        return message


def _promised(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length[:20]) if length.isascii() and length.isdigit() else 0


def _too_big(options: HttpOptions) -> RequestError:
    words = f"the recording is larger than {options.limits.file_bytes} bytes, the limit"
    return RequestError(words, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, param="file", code="too_big")


def request_body(fields: Sequence[Field]) -> dict[str, Any]:
    """What OpenAPI says of a form."""
    properties = {f"{field.name}[]" if field.many else field.name: _schema(field) for field in fields}
    schema = {"type": "object", "required": ["file"], "properties": properties}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def _schema(field: Field) -> dict[str, object]:
    if field.kind == "file":
        return {"type": "string", "format": "binary", "description": field.about}
    value: dict[str, object] = {"type": field.kind}
    if field.choices:
        value["enum"] = list(field.choices)
    if field.many:
        return {"type": "array", "items": value, "description": field.about}
    if field.default:
        value["default"] = _DEFAULTS.get(field.default, field.default)
    return {**value, "description": field.about}


_DEFAULTS: dict[str, object] = {"true": True, "false": False, "0": 0}

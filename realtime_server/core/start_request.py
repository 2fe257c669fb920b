"""START with settings, protocol 2: reading the JSON object behind it, field by field.

What cannot be read is refused with the field's name, and nothing of the request is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, get_args

from realtime_server.core.endpointing_options import (
    SHORTEST_CAP_MS,
    SHORTEST_EAGER_MS,
    SHORTEST_SILENCE_MS,
    Mode,
    SilenceSchedule,
)
from realtime_server.core.languages import code_of
from realtime_server.core.messages import Invalid
from realtime_server.core.setup import (
    HIGHEST_RATE,
    LOWEST_RATE,
    MOST_CHANNELS,
    AudioFormat,
    Encoding,
    EndpointingRequest,
    StartRequest,
)
from realtime_server.errors import ConfigurationError, FieldError, ProtocolError

LONGEST_LANGUAGE = 100  # characters of a language's name
LONGEST_SILENCE_MS = 60_000
LONGEST_SEGMENT_MS = 600_000
MOST_ROWS = 50  # of a silence schedule

Read = TypeVar("Read")
Reader = Callable[[Any, str], Any]


def read_start(text: str) -> StartRequest | Invalid:
    """Return what a client asks for with `text`, a JSON object; never raises."""
    try:
        return _read_request(_parse(text))
    except FieldError as error:
        return Invalid(str(error), code=error.code, field=error.field, protocol=2)


def shorten(text: str) -> str:
    """What is repeated to a client, and kept for those who read its events, is never long."""
    return text if len(text) <= 80 else text[:80] + "…"


def _parse(text: str) -> Mapping[str, Any]:
    def refuse_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise FieldError(f"{shorten(name)} is given twice", shorten(name))
            found[name] = value
        return found

    try:
        value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_repeated)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else shorten(str(error))
        raise FieldError(f"what follows START is not a JSON object: {why}", None) from error
    assert isinstance(value, dict)  # it began with a brace
    return value


def _read_request(given: Mapping[str, Any]) -> StartRequest:
    if "protocol" not in given:
        raise FieldError('START with settings needs "protocol": 2', "protocol")
    values = _read_fields(given, _FIELDS, "")
    if values.pop("resume", False):
        raise FieldError("resume is not supported yet; begin a new session", "resume", "not_supported")
    del values["protocol"]
    audio = {name: values.pop(name) for name in ("encoding", "sample_rate", "channels") if name in values}
    return StartRequest(audio=AudioFormat(**audio), **values)


def _read_fields(given: Mapping[str, Any], readers: Mapping[str, Reader], within: str) -> dict[str, Any]:
    """Read every field that is given by its reader. Raises FieldError."""
    for name in given:
        if name not in readers:
            shown = shorten(within + name)
            known = ", ".join(within + known for known in readers)
            raise FieldError(f"unknown field {shown}; known are {known}", shown)
    return {name: _read_field(readers[name], value, within + name) for name, value in given.items()}


def _read_field(reader: Reader, value: Any, field: str) -> Any:
    """Read one field. Raises FieldError, also of a value that is not nested too deeply to be read, but to be shown."""
    try:
        return reader(value, field)
    except RecursionError as error:
        raise FieldError(f"{field} is nested too deeply", field) from error


# --- readers of one value: each returns it, or raises FieldError ----------------------------------------------


def _refuse(value: object, field: str, expected: str) -> FieldError:
    shown = shorten(json.dumps(value, ensure_ascii=False))
    return FieldError(f"{field} must be {expected}, not {shown}", field)


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value, field, "true or false")
    return value


def _integer(low: int, high: int) -> Reader:
    def read(value: Any, field: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _refuse(value, field, f"a whole number from {low} to {high}" if low < high else str(low))
        return value

    return read


def _choice(options: Collection[str]) -> Reader:
    def read(value: Any, field: str) -> str:
        if not isinstance(value, str) or value not in options:
            raise _refuse(value, field, "one of " + ", ".join(options))
        return value

    return read


def _language(value: Any, field: str) -> str:
    """A code, or "" where the language is to be detected."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_LANGUAGE:
        raise _refuse(value, field, f"a language's name of at most {LONGEST_LANGUAGE} characters, or null")
    try:
        return code_of(value) or ""
    except ProtocolError as error:
        raise FieldError(str(error), field) from error


def _texts(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _refuse(value, field, "a list of texts")
    return tuple(dict.fromkeys(text for item in value if (text := item.strip())))


def _replacements(value: Any, field: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise _refuse(value, field, "an object whose values are texts")
    if not all(key.strip() for key in value):
        raise FieldError(f"{field} must not replace an empty text", field)
    return value


def _schedule(value: Any, field: str) -> SilenceSchedule:
    expected = f"a list of 1 to {MOST_ROWS} pairs [longest speech in ms or null for any, silence in ms]"
    if not isinstance(value, list) or not 0 < len(value) <= MOST_ROWS:
        raise _refuse(value, field, expected)
    rows = []
    for row in value:
        if not isinstance(row, list) or len(row) != 2:
            raise _refuse(row, field, expected)
        length = math.inf if row[0] is None else _integer(1, 24 * 3_600_000)(row[0], field)
        rows.append((length, _integer(1, LONGEST_SILENCE_MS)(row[1], field)))
    try:
        return SilenceSchedule(tuple(rows))
    except ConfigurationError as error:
        raise FieldError(f"{field}: {error}", field) from error


def _endpointing(value: Any, field: str) -> EndpointingRequest:
    if not isinstance(value, dict):
        raise _refuse(value, field, "an object")
    return EndpointingRequest(**_read_fields(value, _ENDPOINTING, field + "."))


_ENDPOINTING: Mapping[str, Reader] = {
    "mode": _choice(get_args(Mode)),
    "silence_ms": _integer(SHORTEST_SILENCE_MS, LONGEST_SILENCE_MS),
    "schedule": _schedule,
    "max_segment_ms": _integer(SHORTEST_CAP_MS, LONGEST_SEGMENT_MS),
    "eager_ms": _integer(SHORTEST_EAGER_MS, LONGEST_SILENCE_MS),
}
_FIELDS: Mapping[str, Reader] = {
    "protocol": _integer(2, 2),
    "language": _language,
    "hotwords": _texts,
    "replacements": _replacements,
    "encoding": _choice(get_args(Encoding)),
    "sample_rate": _integer(LOWEST_RATE, HIGHEST_RATE),
    "channels": _integer(1, MOST_CHANNELS),
    "endpointing": _endpointing,
    "partials": _flag,
    "words": _flag,
    "speakers": _flag,
    "confidence": _flag,
    "events": _flag,
    "resume": _flag,
}

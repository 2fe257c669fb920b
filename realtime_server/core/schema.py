"""JSON schema of protocol 2's messages, made from their dataclasses: what docs/protocol.md refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from realtime_server.core.messages_v2 import Message

UNION = get_origin(int | None)
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[object, str] = {
    int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null",
}  # fmt: skip


def message_schema() -> dict[str, Any]:
    """The schema of one message of the server: any of the types, each with all of its fields and no others."""
    return {
        "$schema": DIALECT,
        "title": "A message of the server, protocol 2",
        "oneOf": [_message(kind) for kind in get_args(Message)],
    }


def _message(kind: Any) -> dict[str, Any]:
    head = {
        "type": {"const": kind.type},
        "session": {"type": "string"},
        "seq": {"type": "integer", "minimum": 0},
    }
    body = _object(kind)
    return {
        "title": kind.type,
        "description": " ".join(kind.__doc__.split()),
        **body,
        "properties": {**head, **body["properties"]},
        "required": [*head, *body["required"]],
    }


def _object(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {field.name.rstrip("_"): _schema(hints[field.name]) for field in fields(kind)}
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def _schema(hint: Any) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        return _object(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UNION):
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is tuple:
        items = [_schema(argument) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    raise TypeError(f"no schema for {hint!r}")

"""How a call's session begins: from the custom parameters of its stream, of which other programs may have some, too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from realtime_server.core.call_messages import CallStarted
from realtime_server.core.commands import split_words
from realtime_server.core.session_names import read_name
from realtime_server.errors import FieldError

FIXED = re.compile(r"fixed:([0-9]{1,6})")


def name_of(call: CallStarted) -> str:
    """What the session is called: the parameter `session`, else the call's own id. Raises FieldError."""
    return read_name(call.parameters.get("session") or call.call)


def start_command(call: CallStarted) -> str:
    """START for this call, in protocol 2. Raises FieldError naming a parameter that cannot be read."""
    audio = call.audio
    request: dict[str, Any] = {
        "protocol": 2, "encoding": audio.encoding, "sample_rate": audio.sample_rate, "channels": audio.channels,
    }  # fmt: skip
    for name, read in PARAMETERS.items():
        if name in call.parameters:
            request[name] = read(call.parameters[name], name)
    return f"START {json.dumps(request)}"


def _read_text(text: str, name: str) -> str:
    return text


def _read_words(text: str, name: str) -> list[str]:
    return list(split_words(text))


def _read_flag(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise FieldError(f"{name} must be true or false", name)
    return text == "true"


def _read_endpointing(text: str, name: str) -> dict[str, Any]:
    if text == "dynamic":
        return {"mode": "dynamic"}
    found = FIXED.fullmatch(text)
    if not found:
        raise FieldError("endpointing must be dynamic or fixed:MS, as in fixed:600", name)
    return {"mode": "fixed", "silence_ms": int(found[1])}


PARAMETERS: Mapping[str, Callable[[str, str], Any]] = {
    "language": _read_text,
    "hotwords": _read_words,
    "endpointing": _read_endpointing,
    "partials": _read_flag,
    "words": _read_flag,
    "speakers": _read_flag,
    "confidence": _read_flag,
}

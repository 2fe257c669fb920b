"""Write what is generated of protocol 2's pages: docs/protocol-2.schema.json, and the tables of docs/protocol-2.md.

Run it after a change of realtime_server/core/messages_v2.py; a test compares what it would write with what is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from realtime_server.core import messages_v2 as v2
from realtime_server.core.schema import message_schema

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SCHEMA = DOCS / "protocol-2.md", DOCS / "protocol-2.schema.json"
BEGIN, END = "<!-- messages: written by scripts/write_message_docs.py -->", "<!-- end of messages -->"
PARTS = (v2.Settings, v2.EndpointingSettings, v2.TimedWord, v2.SpeakerWas, v2.FinalSentence)


def schema_text() -> str:
    """The schema's file."""
    return json.dumps(message_schema(), indent=1, ensure_ascii=False) + "\n"


def page_text(page: str) -> str:
    """The page, with its tables as they should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n\n" + "\n".join(_sections()) + "\n" + END + after


def _sections() -> Iterator[str]:
    for kind in get_args(v2.Message):
        yield from _section(f"`{kind.type}`", kind)
    yield "Within them:\n"
    for kind in PARTS:
        yield from _section(_spaced(kind.__name__), kind)


def _section(title: str, kind: type) -> Iterator[str]:
    assert kind.__doc__
    yield f"**{title}**: " + " ".join(kind.__doc__.split()) + "\n"
    hints = get_type_hints(kind)
    yield "| field | value |\n|---|---|"
    for field in fields(kind):
        yield f"| `{field.name.rstrip('_')}` | {_in_words(hints[field.name])} |"
    yield ""


def _in_words(hint: Any) -> str:
    arguments = get_args(hint)
    if type(None) in arguments:
        return " or ".join([*(_in_words(one) for one in arguments if one is not type(None)), "null"])
    if is_dataclass(hint) and isinstance(hint, type):
        return _spaced(hint.__name__)
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    if hint in names:
        return names[hint]
    if str(hint).startswith("typing.Literal"):
        return ", ".join(f"`{option}`" for option in arguments)
    if str(hint).startswith("tuple"):
        return "list of " + _in_words(arguments[0])
    if str(hint).startswith("collections.abc.Mapping"):
        return "object of texts"
    raise TypeError(f"no words for {hint!r}")


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    PAGE.write_text(page_text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

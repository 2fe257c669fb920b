"""Text frames from clients to commands. The commands are the same in both protocols; see docs/protocol.md."""

from __future__ import annotations

import re
from collections.abc import Callable

from realtime_server.core.messages import (
    Command,
    Commit,
    Invalid,
    SetHotwords,
    SetLanguage,
    SetReplacements,
    Start,
    Stop,
)
from realtime_server.core.start_request import LONGEST_LANGUAGE, read_start, shorten

LONGEST_COMMAND = 65_536  # characters; a frame of audio may be longer
LONGEST_COMMIT_ID = 100  # characters
_SEPARATORS = re.compile(r"[,，、\r\n]")
_ARROW = re.compile(r"=>|->|→")


def split_words(text: str) -> tuple[str, ...]:
    """Split a list at commas of either script, `、` and line ends; empty items and repetitions are dropped."""
    return tuple(dict.fromkeys(word for item in _SEPARATORS.split(text) if (word := item.strip())))


def _read_replacements(text: str) -> SetReplacements | Invalid:
    replacements: dict[str, str] = {}
    for item in split_words(text):
        sides = [side.strip() for side in _ARROW.split(item)]
        if len(sides) > 2 or not sides[0]:
            shown = shorten(item)
            return Invalid(
                f"POSTPROCESS_HOTWORDS: cannot read '{shown}'; write spoken=>written, separated by commas"
            )
        replacements[sides[0]] = sides[-1]
    return SetReplacements(replacements)


def _read_language(name: str) -> SetLanguage | Invalid:
    return (
        SetLanguage(name) if len(name) <= LONGEST_LANGUAGE else Invalid(f"unknown language: {shorten(name)}")
    )


def _read_commit(id: str) -> Commit | Invalid:
    if len(id) <= LONGEST_COMMIT_ID:
        return Commit(id)
    return Invalid(f"a COMMIT's id of {len(id)} characters is too long; the limit is {LONGEST_COMMIT_ID}")


# Commands that take a value, which follows a colon.
_WITH_VALUE: dict[str, Callable[[str], Command]] = {
    "HOTWORDS": lambda value: SetHotwords(split_words(value)),
    "LANGUAGE": lambda value: _read_language(value.strip()),
    "POSTPROCESS_HOTWORDS": _read_replacements,
    "COMMIT": lambda value: _read_commit(value.strip()),
}
_PLAIN: dict[str, Callable[[], Command]] = {"START": Start, "STOP": Stop, "COMMIT": Commit}


def read_command(text: str) -> Command:
    """Return the command in a text frame, Invalid if there is none; never raises."""
    if len(text) > LONGEST_COMMAND:
        return Invalid(f"a command of {len(text)} characters is too long; the limit is {LONGEST_COMMAND}")
    text = text.strip()
    name, colon, value = text.partition(":")
    name = name.strip().upper()
    if colon and name in _WITH_VALUE:
        return _WITH_VALUE[name](value)
    if text.upper() in _PLAIN:
        return _PLAIN[text.upper()]()
    if text.startswith("{"):
        return Invalid(
            'this server does not speak FunASR\'s older JSON protocol ({"mode": …}); '
            "send the text START, then PCM16 audio, then STOP"
        )
    if start := re.match(r"START\s*(?=\{)", text, re.IGNORECASE):
        return read_start(text[start.end() :])
    return Invalid(f"unknown command: {shorten(text)}")

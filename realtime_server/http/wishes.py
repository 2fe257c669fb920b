"""From the fields of a form to the options of a recording; what cannot be is refused, naming its field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus

from realtime_server.core import messages as m
from realtime_server.core.commands import LONGEST_COMMAND, split_words
from realtime_server.core.jobs import Task
from realtime_server.core.languages import code_of
from realtime_server.core.session_options import SessionOptions
from realtime_server.errors import ProtocolError
from realtime_server.http.errors import RequestError
from realtime_server.http.forms import Field, Form
from realtime_server.http.service import FileService
from realtime_server.offline.options import FileOptions

FILE = Field("file", "the recording: wav, mp3, flac, m4a, mp4, ogg, webm and many more", "file")
LANGUAGE = Field(
    "language",
    "its code, or its name in English or Chinese: zh, Chinese, 中文; auto: it is detected; nothing: as the server was "
    "started",
)
HOTWORDS = Field("hotwords", "words that are likely to be said, separated by commas")
SPEAKERS = Field(
    "spk", "tell speakers apart; the server must run with --speakers", "boolean", default="false"
)


def read_options(
    form: Form, service: FileService, *, words: bool, speakers: bool, task: Task = "transcribe"
) -> FileOptions:
    """Return what is asked of the recording. Raises RequestError.

    words: word times, where the recognizer has them.  speakers: tell them apart.
    """
    can, settings = service.capabilities, service.settings
    if speakers and not settings.speakers:
        named = "spk" if form.gives("spk") and form.flag("spk") else "response_format"
        words_ = "speakers cannot be told apart: this server was started without --speakers"
        raise RequestError(words_, param=named, code="unsupported")
    if task == "translate" and not can.translate:
        raise RequestError(
            "this recognizer cannot translate; use /v1/audio/transcriptions", code="unsupported"
        )
    decoding = replace(settings.options, words=words and can.words, task=task)
    if form.gives("language"):
        decoding = replace(decoding, language=_read_language(form.text("language"), service))
    if hotwords := _read_hotwords(form, service):
        decoding = replace(decoding, hotwords=hotwords)
    return FileOptions(decoding=decoding, speakers=speakers)


def _read_language(name: str, service: FileService) -> str | None:
    known = service.capabilities.languages
    try:
        code = code_of(name)
    except ProtocolError as error:
        raise RequestError(str(error), param="language", code="unknown_language") from None
    if code is not None and code not in (known or ()):
        words = f"this recognizer cannot be told the language '{name}'; leave `language` out"
        raise RequestError(words, param="language", code="unsupported")
    return code


def _read_hotwords(form: Form, service: FileService) -> tuple[str, ...]:
    """Hotwords under every name that they come by; a prompt's are a hint, which not every recognizer takes."""
    found: list[str] = []
    for name in ("hotwords", "keywords", "prompt"):
        if not form.gives(name):
            continue
        if service.capabilities.hotwords == "none" and name != "prompt":
            raise RequestError("this recognizer cannot use hotwords", param=name, code="unsupported")
        texts = form.texts(name)
        characters = sum(map(len, texts))
        if characters > LONGEST_COMMAND:  # splitting takes a while
            words = f"{characters} characters of {name} are too many; the limit is {LONGEST_COMMAND}"
            raise RequestError(words, param=name)
        found += _bounded(name, (word for text in texts for word in split_words(text)), service)
    return tuple(dict.fromkeys(found))


def _bounded(name: str, words: Iterable[str], service: FileService) -> tuple[str, ...]:
    """Hotwords as a live session takes them: made harmless, and not too many."""
    rules = SessionOptions(service.settings, service.capabilities)
    for event in rules.receive_command(m.SetHotwords(tuple(words)), 0):
        if isinstance(event, m.Failed):
            raise RequestError(event.message, HTTPStatus.BAD_REQUEST, param=name)
    return rules.decoding.hotwords

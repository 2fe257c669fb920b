"""What is in force in a session: settings that a client gives with START, and those that it changes by commands.

A bare START has what commands have set before, and nothing of what a START with settings has asked for; one with
settings begins from the server's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from realtime_server.core import messages as m
from realtime_server.core.endpointing_options import EndpointingOptions
from realtime_server.core.jobs import Capabilities, DecodingOptions
from realtime_server.core.languages import code_of
from realtime_server.core.postprocess import neutralise
from realtime_server.core.settings import SessionSettings
from realtime_server.core.setup import EndpointingRequest, Setup, StartRequest
from realtime_server.errors import FieldError, ProtocolError

Setting = m.SetHotwords | m.SetLanguage | m.SetReplacements


class SessionOptions:
    """`setup` is what is in force; a refused setting leaves it as it is."""

    def __init__(self, settings: SessionSettings, capabilities: Capabilities) -> None:
        self._settings, self._capabilities = settings, capabilities
        self._warned = False
        self._default = Setup(
            language=settings.options.language, hotwords=settings.options.hotwords,
            endpointing=settings.endpointing.fitting(schedule=capabilities.schedule),
            partials=settings.partials, words=settings.options.words, speakers=settings.speakers,
            confidence=settings.options.logprobs,
        )  # fmt: skip
        self.setup = self._commanded = self._default  # commanded: what a bare START begins with

    @property
    def decoding(self) -> DecodingOptions:
        """How segments that open now are decoded."""
        setup = self.setup
        # Only word times tell where a sentence passes from one speaker to the next.
        words = setup.words or (setup.speakers and self._capabilities.words)
        return replace(
            self._settings.options, language=setup.language, hotwords=setup.hotwords, words=words,
            logprobs=setup.confidence,
        )  # fmt: skip

    @property
    def replacements(self) -> Mapping[str, str]:
        """Texts to replace in finals."""
        return self.setup.replacements

    # --- START --------------------------------------------------------------------------------------------

    def prepare(self, request: StartRequest) -> m.Start | m.Invalid:
        """Return the START that `request` comes to here, or why not; nothing is in force before `begin`."""
        try:
            return self._prepare(request)
        except FieldError as error:
            return m.Invalid(str(error), code=error.code, field=error.field, protocol=2)

    def begin(self, start: m.Start) -> Setup:
        """A session begins: return what is in force in it."""
        self.setup = start.setup or self._commanded
        return self.setup

    def _prepare(self, request: StartRequest) -> m.Start:
        default, can = self._default, self._capabilities
        warnings: list[tuple[str, str]] = []
        hotwords = self._read_hotwords(request.hotwords) if request.hotwords is not None else default.hotwords
        if request.hotwords and can.hotwords != "full":
            warnings.append(("hotwords", self._hotwords_warning))
        replacements = request.replacements or {}
        self._check_list("replacements", [*replacements.keys(), *replacements.values()])
        language = default.language
        if request.language is not None:
            language = self._check_language(request.language or None, request.language)
        speakers = default.speakers if request.speakers is None else request.speakers
        if speakers and not self._settings.speakers:
            warnings.append(("speakers", "this server does not tell speakers apart; it needs --speakers"))
        if request.words and not can.words:
            warnings.append(("words", "this recognizer has no word times"))
        if request.confidence and not can.logprobs:
            warnings.append(("confidence", "this recognizer does not say how sure it is"))
        setup = Setup(
            language=language, hotwords=hotwords, replacements=replacements, protocol=2, audio=request.audio,
            endpointing=self._endpointing(request.endpointing), partials=request.partials,
            words=request.words and can.words, speakers=speakers and self._settings.speakers,
            confidence=request.confidence and can.logprobs, events=request.events,
        )  # fmt: skip
        return m.Start(setup, tuple(warnings))

    def _endpointing(self, request: EndpointingRequest) -> EndpointingOptions:
        server = self._default.endpointing
        mode = request.mode or server.mode
        if mode == "dynamic" and not self._capabilities.schedule:
            words = "this recognizer bears no silence schedule; use mode fixed or client"
            raise FieldError(f"endpointing.mode dynamic: {words}", "endpointing.mode")
        for name, wanted in (("silence_ms", "fixed"), ("schedule", "dynamic")):
            if getattr(request, name) is not None and mode != wanted:
                field = f"endpointing.{name}"
                raise FieldError(f"{field} goes with mode {wanted}, not {mode}", field)
        if request.max_segment_ms is not None and request.max_segment_ms > server.max_segment_ms:
            field = "endpointing.max_segment_ms"
            raise FieldError(f"{field} is at most {server.max_segment_ms} on this server", field)
        names = ("silence_ms", "schedule", "max_segment_ms", "eager_ms")
        given: dict[str, Any] = {
            name: value for name in names if (value := getattr(request, name)) is not None
        }
        return replace(server, mode=mode, **given)

    # --- commands -----------------------------------------------------------------------------------------

    def receive_command(self, command: Setting, upto: int) -> list[m.Event]:
        """Obey a setting; return its acknowledgement, or the error that refuses it, stamped with `upto`."""
        try:
            if isinstance(command, m.SetHotwords):
                return self._set_hotwords(command.words, upto)
            if isinstance(command, m.SetLanguage):
                return self._set_language(command.name, upto)
            replacements = command.replacements
            self._check_list("replacements", [*replacements.keys(), *replacements.values()])
            self._set(replacements=dict(replacements))
            return [m.ReplacementsSet(upto=upto, setup=self.setup, replacements=self.replacements)]
        except FieldError as error:
            return [m.Failed(upto=upto, code="bad_request", message=str(error), field=error.field)]

    def _set(self, **values: Any) -> None:
        """Put values in force, now and in sessions that a bare START begins."""
        self.setup, self._commanded = replace(self.setup, **values), replace(self._commanded, **values)

    def _check_list(self, what: str, words: list[str]) -> None:
        """Raise FieldError naming the limit that a list of words passes. what: the field that it is."""
        limits = self._settings.limits
        if len(words) > limits.hotwords:
            raise FieldError(f"{len(words)} {what} are too many; the limit is {limits.hotwords}", what)
        characters = sum(map(len, words))
        if characters > limits.hotword_characters:
            limit = limits.hotword_characters
            raise FieldError(
                f"{what} of {characters} characters are too long; the limit is {limit} together", what
            )

    def _read_hotwords(self, words: Iterable[str]) -> tuple[str, ...]:
        """The words as a recognizer may be given them. Raises FieldError."""
        words = tuple(words)
        self._check_list("hotwords", list(words))
        safe = tuple(word for word in map(neutralise, words) if word)
        return safe if self._capabilities.hotwords != "none" else ()

    @property
    def _hotwords_warning(self) -> str:
        if self._capabilities.hotwords == "soft":
            return "this recognizer uses hotwords only as a hint"
        return "this recognizer cannot use hotwords: they are ignored"

    def _set_hotwords(self, words: tuple[str, ...], upto: int) -> list[m.Event]:
        self._set(hotwords=self._read_hotwords(words))
        safe = tuple(word for word in map(neutralise, words) if word)
        events: list[m.Event] = [m.HotwordsSet(upto=upto, setup=self.setup, words=safe)]
        if safe and self._capabilities.hotwords != "full" and not self._warned:
            self._warned = True
            events.append(m.Warned(upto=upto, code="hotwords", message=self._hotwords_warning))
        return events

    def _set_language(self, name: str, upto: int) -> list[m.Event]:
        try:
            code = code_of(name)
        except ProtocolError as error:
            raise FieldError(str(error), "language") from error
        self._set(language=self._check_language(code, name))
        return [m.LanguageSet(upto=upto, setup=self.setup, name=name)]

    def _check_language(self, code: str | None, name: str) -> str | None:
        known = self._capabilities.languages
        if code is not None and (known is None or code not in known):
            raise FieldError(
                f"this recognizer cannot be told the language '{name}'; send LANGUAGE:auto", "language"
            )
        return code

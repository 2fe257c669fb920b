"""The settings a client may change in a session: language, hotwords, replacements. They survive START."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from realtime_server.core import messages as m
from realtime_server.core.jobs import Capabilities
from realtime_server.core.languages import code_of
from realtime_server.core.postprocess import neutralise
from realtime_server.core.settings import SessionSettings
from realtime_server.errors import ProtocolError

Setting = m.SetHotwords | m.SetLanguage | m.SetReplacements


class SessionOptions:
    """`decoding` and `replacements` in force; a refused setting leaves them as they are."""

    def __init__(self, settings: SessionSettings, capabilities: Capabilities) -> None:
        # Only word times tell where a sentence passes from one speaker to the next.
        words = settings.options.words or (settings.speakers and capabilities.words)
        self.decoding = replace(settings.options, words=words)
        self.replacements: Mapping[str, str] = {}
        self._limits, self._capabilities = settings.limits, capabilities
        self._warned = False

    def receive_command(self, command: Setting, upto: int) -> list[m.Event]:
        """Obey a setting; return its acknowledgement, or the error that refuses it, stamped with `upto`."""
        try:
            if isinstance(command, m.SetHotwords):
                return self._set_hotwords(command.words, upto)
            if isinstance(command, m.SetLanguage):
                return self._set_language(command.name, upto)
            self._check_list("replacements", [*command.replacements.keys(), *command.replacements.values()])
            self.replacements = dict(command.replacements)
            return [m.ReplacementsSet(upto=upto, replacements=self.replacements)]
        except ProtocolError as error:
            return [m.Failed(upto=upto, code="bad_request", message=str(error))]

    def _check_list(self, what: str, words: list[str]) -> None:
        """Raise ProtocolError naming the limit that a list of words passes."""
        if len(words) > self._limits.hotwords:
            raise ProtocolError(f"{len(words)} {what} are too many; the limit is {self._limits.hotwords}")
        characters = sum(map(len, words))
        if characters > self._limits.hotword_characters:
            limit = self._limits.hotword_characters
            raise ProtocolError(
                f"{what} of {characters} characters are too long; the limit is {limit} together"
            )

    def _set_hotwords(self, words: tuple[str, ...], upto: int) -> list[m.Event]:
        self._check_list("hotwords", list(words))
        safe = tuple(word for word in map(neutralise, words) if word)
        support = self._capabilities.hotwords
        self.decoding = replace(self.decoding, hotwords=safe if support != "none" else ())
        events: list[m.Event] = [m.HotwordsSet(upto=upto, words=safe)]
        if safe and support != "full" and not self._warned:
            self._warned = True
            can = (
                "uses hotwords only as a hint"
                if support == "soft"
                else "cannot use hotwords: they are ignored"
            )
            events.append(m.Warned(upto=upto, code="hotwords", message=f"this recognizer {can}"))
        return events

    def _set_language(self, name: str, upto: int) -> list[m.Event]:
        code = code_of(name)
        known = self._capabilities.languages
        if code is not None and (known is None or code not in known):
            raise ProtocolError(f"this recognizer cannot be told the language '{name}'; send LANGUAGE:auto")
        self.decoding = replace(self.decoding, language=code)
        return [m.LanguageSet(upto=upto, name=name)]

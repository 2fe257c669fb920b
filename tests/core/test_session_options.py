"""Settings that a client changes, and the words with which they are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from realtime_server.core import messages as m
from realtime_server.core.session_options import SessionOptions
from realtime_server.core.settings import Limits, SessionSettings
from tests.core.driver import CAPABILITIES

LIMITS = Limits(hotwords=3, hotword_characters=10)


def options(**capabilities: object) -> SessionOptions:
    return SessionOptions(SessionSettings(limits=LIMITS), replace(CAPABILITIES, **capabilities))  # type: ignore[arg-type]


def test_hotwords_are_acknowledged_as_they_are_used() -> None:
    it = options()
    (event,) = it.receive_command(m.SetHotwords(("张三", "<|a|>x", "<>")), 7)
    assert isinstance(event, m.HotwordsSet)
    assert event.upto == 7
    assert event.words == it.decoding.hotwords
    assert event.words[0] == "张三"
    assert all("<|" not in word for word in event.words)
    assert all(event.words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b", "c", "d"), "4 hotwords are too many; the limit is 3"),
        (("x" * 11,), "hotwords of 11 characters"),
    ],
)
def test_too_many_hotwords_are_refused_naming_the_limit(words: tuple[str, ...], message: str) -> None:
    it = options()
    it.receive_command(m.SetHotwords(("a",)), 0)
    (event,) = it.receive_command(m.SetHotwords(words), 0)
    assert isinstance(event, m.Failed)
    assert message in event.message
    assert it.decoding.hotwords == ("a",)


@pytest.mark.parametrize(("support", "used"), [("none", ()), ("soft", ("a",)), ("full", ("a",))])
def test_what_the_recognizer_does_with_them_is_told_once(support: str, used: tuple[str, ...]) -> None:
    it = options(hotwords=support)
    first = it.receive_command(m.SetHotwords(("a",)), 0)
    again = it.receive_command(m.SetHotwords(("a",)), 0)
    assert it.decoding.hotwords == used
    assert [type(event) for event in first] == [m.HotwordsSet] + [m.Warned] * (support != "full")
    assert [type(event) for event in again] == [m.HotwordsSet]


def test_a_language_by_any_name() -> None:
    it = options()
    assert it.receive_command(m.SetLanguage("中文"), 0) == [m.LanguageSet(upto=0, name="中文")]
    assert it.decoding.language == "zh"
    it.receive_command(m.SetLanguage("auto"), 0)
    assert it.decoding.language is None


@pytest.mark.parametrize(
    ("name", "capabilities", "words"),
    [
        ("Klingon", {}, "Klingon"),
        ("German", {}, "cannot be told the language 'German'"),
        ("English", {"languages": None}, "cannot be told the language 'English'"),
    ],
)
def test_a_language_that_cannot_be_is_refused(name: str, capabilities: dict[str, object], words: str) -> None:
    it = options(**capabilities)
    (event,) = it.receive_command(m.SetLanguage(name), 0)
    assert isinstance(event, m.Failed)
    assert words in event.message
    assert it.decoding.language is None


def test_replacements_are_bounded_like_hotwords() -> None:
    it = options()
    (event,) = it.receive_command(m.SetReplacements({"a": "b"}), 0)
    assert isinstance(event, m.ReplacementsSet)
    (event,) = it.receive_command(m.SetReplacements({"a": "b", "c": "d"}), 0)
    assert isinstance(event, m.Failed)
    assert "4 replacements" in event.message
    assert it.replacements == {"a": "b"}

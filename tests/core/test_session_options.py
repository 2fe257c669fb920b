"""Settings that a client changes, and the words with which they are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from realtime_server.core import messages as m
from realtime_server.core.endpointing_options import OFFLINE_SCHEDULE, EndpointingOptions
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.session_options import SessionOptions
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.core.setup import AudioFormat, EndpointingRequest, Setup, StartRequest
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
    assert event.field == "hotwords"
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
    assert it.receive_command(m.SetLanguage("中文"), 0) == [
        m.LanguageSet(upto=0, name="中文", setup=it.setup)
    ]
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
    assert event.field == "language"
    assert it.decoding.language is None


def test_replacements_are_bounded_like_hotwords() -> None:
    it = options()
    (event,) = it.receive_command(m.SetReplacements({"a": "b"}), 0)
    assert isinstance(event, m.ReplacementsSet)
    (event,) = it.receive_command(m.SetReplacements({"a": "b", "c": "d"}), 0)
    assert isinstance(event, m.Failed)
    assert "4 replacements" in event.message
    assert event.field == "replacements"
    assert it.replacements == {"a": "b"}


# --- START with settings ------------------------------------------------------------------------------------


SERVER = SessionSettings(
    options=DecodingOptions(language="en", hotwords=("Ann",)), speakers=True,
    endpointing=EndpointingOptions(mode="fixed", silence_ms=700), limits=LIMITS,
)  # fmt: skip


def begun(request: StartRequest, settings: SessionSettings = SERVER, **capabilities: object) -> m.Start:
    it = SessionOptions(settings, replace(CAPABILITIES, **capabilities))  # type: ignore[arg-type]
    start = it.prepare(request)
    assert isinstance(start, m.Start)
    assert it.setup.protocol == 1, "nothing is in force before the session begins"
    assert it.begin(start) == start.setup == it.setup
    return start


def test_what_is_not_asked_for_is_as_the_server_has_it() -> None:
    setup = begun(StartRequest()).setup
    assert setup == Setup(
        language="en", hotwords=("Ann",), protocol=2, endpointing=SERVER.endpointing, speakers=True
    )


def test_what_is_asked_for_is_in_force() -> None:
    audio = AudioFormat("mulaw", 8000, 2)
    it = SessionOptions(SERVER, replace(CAPABILITIES, logprobs=True))
    request = StartRequest(
        audio=audio, language="zh", hotwords=("李",), replacements={"a": "b"}, words=True, speakers=False,
        confidence=True, events=False, partials=False,
        endpointing=EndpointingRequest(mode="client", max_segment_ms=5000, eager_ms=300),
    )  # fmt: skip
    start = it.prepare(request)
    assert isinstance(start, m.Start)
    assert start.warnings == ()
    setup = it.begin(start)
    assert setup == Setup(
        language="zh", hotwords=("李",), replacements={"a": "b"}, protocol=2, audio=audio, words=True,
        confidence=True, events=False, partials=False,
        endpointing=EndpointingOptions(mode="client", silence_ms=700, max_segment_ms=5000, eager_ms=300),
    )  # fmt: skip
    assert (it.decoding.language, it.decoding.words, it.decoding.logprobs) == ("zh", True, True)
    assert it.replacements == {"a": "b"}


def test_a_recognizer_that_bears_no_schedule_has_a_fixed_silence() -> None:
    can = replace(CAPABILITIES, schedule=False)
    it = SessionOptions(SessionSettings(), can)
    assert it.begin(m.Start()).endpointing == EndpointingOptions(mode="fixed")
    refused = it.prepare(StartRequest(endpointing=EndpointingRequest(mode="dynamic")))
    assert isinstance(refused, m.Invalid)
    assert refused.field == "endpointing.mode"
    assert "bears no silence schedule" in refused.message
    for mode in ("fixed", "client"):
        assert isinstance(it.prepare(StartRequest(endpointing=EndpointingRequest(mode=mode))), m.Start)


def test_a_language_may_be_left_to_detection_where_the_server_has_one() -> None:
    setup = begun(StartRequest(language="")).setup
    assert setup
    assert setup.language is None


@pytest.mark.parametrize(
    ("request_", "capabilities", "code", "field", "in_force"),
    [
        (StartRequest(words=True), {"words": False}, "words", "words", False),
        (StartRequest(confidence=True), {"logprobs": False}, "confidence", "confidence", False),
        (StartRequest(hotwords=("x",)), {"hotwords": "none"}, "hotwords", "hotwords", ()),
        (StartRequest(hotwords=("x",)), {"hotwords": "soft"}, "hotwords", "hotwords", ("x",)),
    ],
)
def test_what_the_recognizer_lacks_is_a_warning_and_not_in_force(
    request_: StartRequest, capabilities: dict[str, object], code: str, field: str, in_force: object
) -> None:
    start = begun(request_, **capabilities)
    assert [warning[0] for warning in start.warnings] == [code]
    assert getattr(start.setup, field) == in_force


def test_speakers_where_the_server_tells_none_apart_is_a_warning() -> None:
    start = begun(StartRequest(speakers=True), SessionSettings())
    assert [warning[0] for warning in start.warnings] == ["speakers"]
    assert start.setup
    assert not start.setup.speakers


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (StartRequest(language="de"), "language", "cannot be told the language 'de'"),
        (StartRequest(hotwords=tuple("abcd")), "hotwords", "the limit is 3"),
        (StartRequest(replacements={"a": "b", "c": "d"}), "replacements", "the limit is 3"),
        (
            StartRequest(endpointing=EndpointingRequest(mode="client", silence_ms=500)),
            "endpointing.silence_ms",
            "goes with mode fixed, not client",
        ),
        (
            StartRequest(endpointing=EndpointingRequest(schedule=OFFLINE_SCHEDULE)),
            "endpointing.schedule",
            "goes with mode dynamic, not fixed",
        ),
        (
            StartRequest(endpointing=EndpointingRequest(max_segment_ms=30_001)),
            "endpointing.max_segment_ms",
            "at most 30000 on this server",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_in_force(
    request_: StartRequest, field: str, words: str
) -> None:
    it = SessionOptions(SERVER, CAPABILITIES)
    before = it.setup
    refused = it.prepare(request_)
    assert isinstance(refused, m.Invalid)
    assert (refused.field, refused.protocol) == (field, 2)
    assert words in refused.message
    assert it.setup == before


def test_a_bare_start_keeps_what_commands_have_set_and_nothing_else() -> None:
    it = SessionOptions(SERVER, CAPABILITIES)
    start = it.prepare(StartRequest(audio=AudioFormat("alaw", 8000), words=True, speakers=False))
    assert isinstance(start, m.Start)
    it.begin(start)
    it.receive_command(m.SetLanguage("zh"), 0)
    it.receive_command(m.SetHotwords(("b",)), 0)
    assert it.begin(m.Start()) == Setup(
        language="zh", hotwords=("b",), endpointing=SERVER.endpointing, speakers=True
    )


def test_what_commands_have_set_outlives_a_start_with_settings_and_what_that_has_set_does_not() -> None:
    it = SessionOptions(SERVER, CAPABILITIES)
    for command in (m.SetLanguage("zh"), m.SetHotwords(("b",)), m.SetReplacements({"a": "b"})):
        it.receive_command(command, 0)
    start = it.prepare(StartRequest(language="en", hotwords=("c",), replacements={"c": "d"}))
    assert isinstance(start, m.Start)
    it.begin(start)
    assert (it.setup.language, it.setup.hotwords, it.setup.replacements) == ("en", ("c",), {"c": "d"})
    it.receive_command(m.SetHotwords(("e",)), 0)
    assert it.setup.hotwords == ("e",)
    assert it.setup.replacements == {"c": "d"}
    assert it.begin(m.Start()) == Setup(
        language="zh", hotwords=("e",), replacements={"a": "b"}, endpointing=SERVER.endpointing, speakers=True
    )
    it.begin(start)
    it.receive_command(m.SetHotwords(tuple("abcd")), 0)
    assert it.begin(m.Start()).hotwords == ("e",), "what was refused is not kept"


def test_words_are_decoded_where_speakers_need_them_and_told_where_they_were_asked_for() -> None:
    it = SessionOptions(SERVER, CAPABILITIES)
    assert it.decoding.words
    assert not it.setup.words

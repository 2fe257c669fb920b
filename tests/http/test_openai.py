"""OpenAI's own client against a real server: what users of its API see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from realtime_server.http.openai_api import ALIASES
from tests.http.process import TALK_WAV, TEXT, TEXTS, FilesServer
from tests.offline.recordings import silent_flac

TALK = ("talk.wav", TALK_WAV)
WORDS = "one two eight nine ten eleven".split()


@pytest.fixture
def client(files: FilesServer) -> Iterator[OpenAI]:
    with files.openai() as client:
        yield client


def ask(client: OpenAI, **options: Any) -> Any:
    return client.audio.transcriptions.create(file=TALK, model="whisper-1", **options)


def test_json(client: OpenAI) -> None:
    assert ask(client).text == TEXT
    assert ask(client, response_format="json").text == TEXT


def test_text(client: OpenAI) -> None:
    assert ask(client, response_format="text") == f"{TEXT}\n"


def test_srt(client: OpenAI) -> None:
    assert ask(client, response_format="srt") == (
        "1\n00:00:00,000 --> 00:00:01,000\none two\n\n"
        "2\n00:00:03,500 --> 00:00:05,500\neight nine ten eleven\n"
    )


def test_vtt(client: OpenAI) -> None:
    cues = ask(client, response_format="vtt")
    assert cues.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\none two\n")


def test_verbose_json(client: OpenAI) -> None:
    found = ask(client, response_format="verbose_json")
    assert (found.text, found.duration, found.language, found.task) == (TEXT, 8.0, "en", "transcribe")
    assert [segment.text for segment in found.segments] == TEXTS
    assert [segment.id for segment in found.segments] == [0, 1]
    assert [word.word for word in found.words] == WORDS
    assert [word.start for word in found.words] == [0.0, 0.5, 3.5, 4.0, 4.5, 5.0]


@pytest.mark.parametrize(
    ("granularities", "words"),
    [(["segment"], None), (["word"], WORDS), (["word", "segment"], WORDS), (["segment", "word"], WORDS)],
)
def test_times_of_words_or_segments(
    client: OpenAI, granularities: list[str], words: list[str] | None
) -> None:
    found = ask(client, response_format="verbose_json", timestamp_granularities=granularities)
    assert (found.words and [word.word for word in found.words]) == words
    assert [(segment.start, segment.end) for segment in found.segments] == [(0.0, 1.16), (3.24, 5.66)]


def test_diarized_json(client: OpenAI) -> None:
    found = ask(client, response_format="diarized_json")
    assert [(segment.speaker, segment.text) for segment in found.segments] == [("A", text) for text in TEXTS]
    assert found.text == TEXT


def test_spk(client: OpenAI) -> None:
    found = ask(client, response_format="verbose_json", extra_body={"spk": "true"})
    assert [segment.speaker for segment in found.segments] == ["SPK0", "SPK0"]
    assert ask(client, response_format="srt", extra_body={"spk": True}).startswith(
        "1\n00:00:00,000 --> 00:00:01,000\nSpeaker 1: one two\n"
    )


def test_stream(client: OpenAI) -> None:
    events = list(ask(client, stream=True))
    *deltas, done = events
    assert [event.type for event in deltas] == ["transcript.text.delta"] * 2
    assert [event.delta for event in deltas] == ["one two", " eight nine ten eleven"]
    assert (done.type, done.text) == ("transcript.text.done", TEXT)


def test_stream_with_speakers(client: OpenAI) -> None:
    events = list(ask(client, stream=True, response_format="diarized_json"))
    kinds = [event.type.removeprefix("transcript.text.") for event in events]
    assert kinds == ["delta", "segment", "delta", "segment", "done"]
    assert [(event.id, event.speaker, event.text) for event in events[1::2]] == [
        ("seg_0", "A", "one two"),
        ("seg_1", "A", "eight nine ten eleven"),
    ]
    assert [event.segment_id for event in events[:-1:2]] == ["seg_0", "seg_1"]
    assert "".join(event.delta for event in events[:-1:2]) == events[-1].text


@pytest.mark.parametrize("language", ["en", "English", "英语", "zh", "中文", "Mandarin", "auto"])
def test_a_language_by_any_name(client: OpenAI, language: str) -> None:
    found = ask(client, response_format="verbose_json", language=language)
    assert found.language == ("zh" if language in ("zh", "中文", "Mandarin") else "en")


def test_hints(client: OpenAI) -> None:
    hints: dict[str, Any] = {"prompt": "FunASR, 张三", "temperature": 0.2, "keywords": ["Qwen", "vLLM"]}
    assert ask(client, **hints, extra_body={"hotwords": "北京,上海"}, chunking_strategy="auto").text == TEXT


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by OpenAI, not here
def test_translation(client: OpenAI) -> None:
    found = client.audio.translations.create(file=TALK, model="whisper-1", response_format="verbose_json")
    assert (found.text, found.language, found.task) == (TEXT, "en", "translate")  # type: ignore[attr-defined]
    assert client.audio.translations.create(file=TALK, model="whisper-1").text == TEXT


def test_models(client: OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["fake", *ALIASES]
    assert client.models.retrieve("whisper-1").id == "whisper-1"
    for name in names:
        assert client.audio.transcriptions.create(file=TALK, model=name).text == TEXT


# --- errors -----------------------------------------------------------------------------------------------


def test_an_unknown_model(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.audio.transcriptions.create(file=TALK, model="whisper-9")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert "there is no model 'whisper-9' here" in refused.value.message
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("whisper-9")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("language", "Klingon", "unknown language 'Klingon'"),
        ("response_format", "docx", "response_format must be json or text or srt"),
        ("temperature", 2, "temperature must be a number from 0 to 1, not '2'"),
        ("temperature", "warm", "temperature must be a number"),
        ("timestamp_granularities", ["letter"], "timestamp_granularities must be word or segment, not 'letter'"),
        ("stream", "perhaps", "stream must be true or false, not 'perhaps'"),
        ("chunking_strategy", "never", "chunking_strategy must be auto"),
        ("prompt", "a" * 20_000, "hotwords of 20000 characters are too long"),
        ("spk", "maybe", "spk must be true or false, not 'maybe'"),
        ("langauge", "en", "there is no field 'langauge' here"),
        ("known_speaker_names", ["me"], "there is no field 'known_speaker_names[]' here"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be(client: OpenAI, field: str, value: object, words: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, extra_body={field: value})
    assert words in refused.value.message
    assert str(refused.value.param).removesuffix("[]") == field
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize("response_format", ["srt", "vtt", "verbose_json"])
def test_what_cannot_be_streamed(client: OpenAI, response_format: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, stream=True, response_format=response_format)
    assert refused.value.param == "stream"


@pytest.mark.parametrize(
    ("data", "code"), [(b"", "empty"), (b"this is no recording" * 100, "undecodable"), (TALK_WAV[:44], "empty")]
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_no_recording(client: OpenAI, data: bytes, code: str, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(file=("a.wav", data), model="whisper-1", stream=stream)
    assert (refused.value.param, refused.value.code) == ("file", code)


@pytest.mark.parametrize(
    ("send", "kind", "status", "code"),
    [
        (lambda client: ask(client, language="Klingon"), openai.BadRequestError, 400, "unknown_language"),
        (lambda client: client.models.retrieve("whisper-9"), openai.NotFoundError, 404, "model_not_found"),
        (
            lambda client: client.audio.transcriptions.create(
                file=("a.flac", silent_flac(1.0, 48_000)), model="whisper-1"
            ),
            openai.APIStatusError, 413, "too_long",
        ),
        (
            lambda client: client.post("/audio/transcriptions", cast_to=object, body={"model": "whisper-1"}),
            openai.APIStatusError, 415, "unsupported_media_type",
        ),
    ],
    ids=["400", "404", "413", "415"],
)  # fmt: skip
def test_each_status_is_an_exception_of_its_own(
    client: OpenAI, send: Callable[[OpenAI], object], kind: type[openai.APIStatusError], status: int, code: str
) -> None:  # fmt: skip
    """Those of tokens are in test_doors.py; those of a server that has too much to do or fails, in test_requests.py."""
    with pytest.raises(openai.APIStatusError) as refused:
        send(client)
    assert type(refused.value) is kind
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert refused.value.type == "invalid_request_error"

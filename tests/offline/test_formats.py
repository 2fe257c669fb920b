"""What is sent and written says what the transcription says, in the shapes that clients expect."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from realtime_server.core.segments import Word
from realtime_server.offline.formats import (
    WRITERS,
    Json,
    asr_answer,
    json_line,
    openai_diarized_json,
    openai_json,
    openai_verbose_json,
    tsv,
    txt,
)
from realtime_server.offline.transcription import Transcription, one_line
from tests.offline.transcriptions import sentence, transcription, transcriptions

MEETING = transcription(
    sentence(
        "砸了。", 1700, 2400, language="zh", speaker=0, confidence=0.5,
        words=[Word("砸", 2020, 2080, 0.9), Word("了。", 2260, 2320)],
    ),
    sentence("Oh\tno", 3000, 4500, id=1, language="en", speaker=1, channel=1, flags=("recovered",)),
    sentence("", 5000, 6000, id=2, flags=("failed",)),
    duration_ms=227_400,
)  # fmt: skip
NOTHING = transcription(duration_ms=0)


# Files


def test_txt_is_a_line_per_sentence() -> None:
    assert txt(MEETING) == "砸了。\nOh no\n"
    assert txt(MEETING, speakers=True) == "Speaker 1: 砸了。\nSpeaker 2: Oh no\n"
    assert txt(NOTHING) == ""


def test_tsv_has_a_speaker_where_asked_for() -> None:
    assert tsv(MEETING) == "start\tend\ttext\n1700\t2400\t砸了。\n3000\t4500\tOh no\n5000\t6000\t\n"
    assert tsv(MEETING, speakers=True).splitlines() == [
        "start\tend\tspeaker\ttext", "1700\t2400\tSPK0\t砸了。", "3000\t4500\tSPK1\tOh no", "5000\t6000\t\t",
    ]  # fmt: skip
    assert tsv(NOTHING) == "start\tend\ttext\n"


@given(transcriptions(channels=2))
def test_tsv_is_read_back(whole: Transcription) -> None:
    read = csv.reader(io.StringIO(tsv(whole, speakers=True)), delimiter="\t", quoting=csv.QUOTE_NONE)
    assert list(read)[1:] == [
        [str(one.start_ms), str(one.end_ms), f"SPK{one.speaker}", one_line(one.text)]
        for one in whole.sentences
    ]


def test_a_json_line_tells_everything() -> None:
    line = json_line(replace(MEETING, notes=("damaged",)), key="a/b.wav")
    assert line.endswith("}\n")
    assert "砸" in line
    read = json.loads(line)
    assert {key: read[key] for key in read if key != "sentences"} == {
        "key": "a/b.wav", "text": "砸了。Oh no", "task": "transcribe", "language": None, "duration_ms": 227_400,
        "notes": ["damaged"],
    }  # fmt: skip
    assert read["sentences"][0] == {
        "id": 0, "channel": 0, "text": "砸了。", "start_ms": 1700, "end_ms": 2400, "language": "zh",
        "confidence": 0.5, "speaker": 0, "flags": [],
        "words": [
            {"word": "砸", "start_ms": 2020, "end_ms": 2080, "confidence": 0.9},
            {"word": "了。", "start_ms": 2260, "end_ms": 2320, "confidence": None},
        ],
    }  # fmt: skip
    assert [one["flags"] for one in read["sentences"]] == [[], ["recovered"], ["failed"]]


@given(transcriptions(channels=2))
def test_a_json_line_is_one_line_and_is_read_back(whole: Transcription) -> None:
    line = json_line(whole, key="a\nb")
    assert line.count("\n") == 1
    assert json.loads(line)["text"] == whole.text


def test_a_path_that_is_no_utf_8_is_written_and_read_back() -> None:
    path = b"caf\xe9.wav".decode(errors="surrogateescape")
    line = json_line(NOTHING, key=path)
    line.encode()
    assert json.loads(line)["key"] == path


@pytest.mark.parametrize("name", list(WRITERS))
def test_every_writer_names_speakers_where_asked_for(name: str) -> None:
    label = "SPK1" if name == "tsv" else "Speaker 2"  # a table is for programs
    assert label in WRITERS[name](MEETING, speakers=True)
    assert not re.search("SPK|Speaker", WRITERS[name](MEETING))


# POST /asr


def test_the_asr_answer_is_the_guides() -> None:
    answer = asr_answer(MEETING, processing_s=3.4221, speakers=True, words=True)
    assert answer == {
        "text": "砸了。Oh no",
        "segments": [
            {
                "text": "砸了。", "start": 1.7, "end": 2.4, "speaker": "SPK0",
                "words": [
                    {"word": "砸", "start": 2.02, "end": 2.08},
                    {"word": "了。", "start": 2.26, "end": 2.32},
                ],
            },
            {"text": "Oh\tno", "start": 3.0, "end": 4.5, "speaker": "SPK1", "words": [], "flags": ["recovered"]},
            {"text": "", "start": 5.0, "end": 6.0, "speaker": None, "words": [], "flags": ["failed"]},
        ],
        "duration": 227.4, "processing_time": 3.422, "rtf": 0.015,
    }  # fmt: skip
    assert list(answer) == ["text", "segments", "duration", "processing_time", "rtf"]


def test_the_asr_answer_leaves_out_what_was_not_asked_for() -> None:
    answer: Any = asr_answer(MEETING, processing_s=1.0, speakers=False, words=False)
    assert answer["segments"][0] == {"text": "砸了。", "start": 1.7, "end": 2.4}


def test_the_asr_answer_of_nothing() -> None:
    assert asr_answer(NOTHING, processing_s=0.5) == {
        "text": "", "segments": [], "duration": 0.0, "processing_time": 0.5, "rtf": 0.0,
    }  # fmt: skip


# OpenAI


def test_json_is_the_text() -> None:
    assert openai_json(MEETING) == {"text": "砸了。Oh no"}


def test_verbose_json_has_segments_as_whisper_and_as_the_guide() -> None:
    answer: Any = openai_verbose_json(MEETING, speakers=True, words=True)
    first = answer["segments"][0]
    assert {name: answer[name] for name in ("task", "language", "duration", "text")} == {
        "task": "transcribe", "language": "en", "duration": 227.4, "text": "砸了。Oh no",
    }  # fmt: skip
    assert first.pop("compression_ratio") == pytest.approx(9 / 17)
    assert first == {
        "id": 0, "seek": 170, "start": 1.7, "end": 2.4, "text": "砸了。", "tokens": [], "temperature": 0.0,
        "avg_logprob": math.log(0.5), "no_speech_prob": 0.0, "speaker": "SPK0", "words": answer["words"],
    }  # fmt: skip
    assert answer["words"][1] == {"word": "了。", "start": 2.26, "end": 2.32}
    assert answer["segments"][1]["avg_logprob"] == 0.0
    assert [one["id"] for one in answer["segments"]] == [0, 1, 2]


def test_verbose_json_leaves_out_what_was_not_asked_for() -> None:
    answer: Any = openai_verbose_json(MEETING)
    assert "words" not in answer
    assert not {"words", "speaker"} & set(answer["segments"][0])


@pytest.mark.parametrize(
    ("whole", "language"),
    [
        (transcription(sentence("a", language="de"), language="fr"), "fr"),
        (transcription(sentence("a", 0, 5, language="de"), sentence("b", 5, 9, language="fr")), "de"),
        (transcription(sentence("a", 0, 5), sentence("b", 5, 6, language="fr")), "fr"),
        (transcription(sentence("a")), "und"),
        (transcription(sentence("a", language="de"), language="de", task="translate"), "en"),
    ],
)
def test_verbose_json_says_the_language_of_the_text(whole: Transcription, language: str) -> None:
    assert openai_verbose_json(whole)["language"] == language


def test_repetition_is_seen_in_the_compression_ratio() -> None:
    answer: Any = openai_verbose_json(transcription(sentence("no no " * 100), sentence("No, it is not.")))
    assert answer["segments"][0]["compression_ratio"] > 2.4 > answer["segments"][1]["compression_ratio"]


def test_diarized_json_names_speakers_as_openai_does() -> None:
    answer: Any = openai_diarized_json(MEETING)
    assert [one["speaker"] for one in answer["segments"]] == ["A", "B", "unknown"]
    assert answer["segments"][0] == {
        "type": "transcript.text.segment", "id": "seg_0", "start": 1.7, "end": 2.4, "text": "砸了。", "speaker": "A",
    }  # fmt: skip
    many: Any = openai_diarized_json(transcription(*[sentence("a", speaker=at) for at in (25, 26, 702)]))
    assert [one["speaker"] for one in many["segments"]] == ["Z", "AA", "AAA"]


@given(transcriptions(channels=2))
def test_openais_own_types_accept_the_answers(whole: Transcription) -> None:
    audio = pytest.importorskip("openai.types.audio", reason="needs the openai package")

    def check(model: Any, answer: Json) -> Any:
        return model.model_validate_json(json.dumps(answer), strict=True)

    assert check(audio.Transcription, openai_json(whole)).text == whole.text
    assert check(audio.Translation, openai_json(whole)).text == whole.text
    verbose = check(audio.TranscriptionVerbose, openai_verbose_json(whole, speakers=True, words=True))
    assert [word.word for word in verbose.words] == [word.text for word in whole.words]
    assert [one.text for one in verbose.segments] == [one.text for one in whole.sentences]
    check(audio.TranslationVerbose, openai_verbose_json(whole))
    diarized = check(audio.TranscriptionDiarized, openai_diarized_json(whole))
    assert [one.end for one in diarized.segments] == [one.end_ms / 1000 for one in whole.sentences]

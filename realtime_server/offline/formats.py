"""What is sent or written of a Transcription; subtitles are in subtitles.py.

Speakers and words appear where they are asked for; a sentence's flags (recovered, truncated, failed) wherever there is
room for a field of ours. Speakers are SPK0, SPK1, ... for programs, and "Speaker 1", "Speaker 2", ... in what people
read; one that is not known is null or left out.

OpenAI's clients need fields that our recognizers have no figures for. Those get the value that says least:
no `tokens`, `no_speech_prob` 0 (speech was detected before anything was decoded), `avg_logprob` 0 unless the recognizer
gives a confidence, whose logarithm it is. `temperature` is 0, as decoding takes the likeliest token; `seek` is the
segment's start in frames of 10 ms, and `compression_ratio` that of the text in zlib, both as Whisper has them.

`language` in verbose_json is a code ("zh"), as the service's guide shows it and as vLLM and servers on
faster-whisper send it. OpenAI itself and whisper.cpp write the English name ("chinese"). A code is what the request's
own `language` takes, and needs no table to read. It is "und" (undetermined, ISO 639-2) if nobody knows.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from realtime_server.core.segments import Sentence, Word
from realtime_server.offline.subtitles import srt, vtt
from realtime_server.offline.transcription import Transcription, one_line

Json = dict[str, object]


class Writer(Protocol):
    """Writes the text of a file; speakers: name them, where they are known."""

    def __call__(self, transcription: Transcription, *, speakers: bool = False) -> str: ...


# --- files ------------------------------------------------------------------------------------------------


def txt(transcription: Transcription, *, speakers: bool = False) -> str:
    """A line per sentence."""
    lines = []
    for sentence in transcription.sentences:
        if text := one_line(sentence.text):
            name = (
                f"{transcription.name_of(sentence.speaker)}: "
                if speakers and sentence.speaker is not None
                else ""
            )
            lines.append(f"{name}{text}\n")
    return "".join(lines)


def tsv(transcription: Transcription, *, speakers: bool = False) -> str:
    """Start and end in ms, the speaker, the text, in columns set apart by tabs, below their names."""
    rows = [["start", "end", *["speaker"] * speakers, "text"]]
    for sentence in transcription.sentences:
        times = [str(sentence.start_ms), str(sentence.end_ms)]
        rows.append([*times, *[_label(sentence) or ""] * speakers, one_line(sentence.text)])
    return "".join("\t".join(row) + "\n" for row in rows)


def json_record(transcription: Transcription, *, key: str) -> Json:
    """A recording as a JSON object; key: how its owner calls it, such as its path.

    Sentences have the fields that the live service's protocol 2 gives them; times are in ms.
    """
    return {
        "key": key,
        "text": transcription.text,
        "task": transcription.task,
        "language": transcription.language,
        "duration_ms": transcription.duration_ms,
        "sentences": [_sentence(sentence) for sentence in transcription.sentences],
        "notes": list(transcription.notes),
    }


def json_line(transcription: Transcription, *, key: str) -> str:
    """The same as a line of a JSON Lines file."""
    # A path may hold bytes that are no UTF-8, as half surrogate pairs: these stay escaped, the only way to write them.
    text = json.dumps(json_record(transcription, key=key), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


WRITERS: Mapping[str, Writer] = {"txt": txt, "tsv": tsv, "srt": srt, "vtt": vtt}  # by file extension


# --- answers ----------------------------------------------------------------------------------------------


def asr_answer(
    transcription: Transcription, *, processing_s: float, speakers: bool = False, words: bool = True
) -> Json:
    """The answer of POST /asr; times in seconds.  rtf: processing_s per second of audio."""
    duration_s = _seconds(transcription.duration_ms)
    return {
        "text": transcription.text,
        "segments": [
            _segment(sentence, speakers=speakers, words=words) for sentence in transcription.sentences
        ],
        "duration": duration_s,
        "processing_time": round(processing_s, 3),
        "rtf": round(processing_s / duration_s, 4) if duration_s else 0.0,
    }


def openai_json(transcription: Transcription) -> Json:
    """OpenAI's response format `json`."""
    return {"text": transcription.text}


def openai_verbose_json(transcription: Transcription, *, speakers: bool = False, words: bool = False) -> Json:
    """OpenAI's response format `verbose_json`; times in seconds.

    words: for the granularity `word`, at the top as OpenAI has them, and in their segments as the service's guide has
    them. A translation's language is that of its text, English, as OpenAI defines it.
    """
    answer: Json = {
        "task": transcription.task,
        "language": "en" if transcription.task == "translate" else _language(transcription),
        "duration": _seconds(transcription.duration_ms),
        "text": transcription.text,
        "segments": [
            {
                "id": number,
                "seek": sentence.start_ms // 10,
                **_segment(sentence, speakers=speakers, words=words),
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": math.log(sentence.confidence) if sentence.confidence else 0.0,
                "compression_ratio": _compression_ratio(sentence.text),
                "no_speech_prob": 0.0,
            }
            for number, sentence in enumerate(transcription.sentences)
        ],
    }
    if words:
        answer["words"] = [_word(word) for word in transcription.words]
    return answer


def openai_diarized_json(transcription: Transcription) -> Json:
    """OpenAI's response format `diarized_json`, of a transcription, not a translation; times in seconds.

    Speakers are A, B, ... as there; one that is not known is "unknown", as the field cannot be empty.
    """
    return {
        "task": transcription.task,
        "duration": _seconds(transcription.duration_ms),
        "text": transcription.text,
        "segments": [
            {
                "type": "transcript.text.segment",
                "id": f"seg_{number}",
                **_segment(sentence, speakers=False, words=False),
                "speaker": "unknown" if sentence.speaker is None else _letters(sentence.speaker),
            }
            for number, sentence in enumerate(transcription.sentences)
        ],
    }


# --- their parts ------------------------------------------------------------------------------------------


def _seconds(ms: int) -> float:
    return ms / 1000


def _label(sentence: Sentence) -> str | None:
    return None if sentence.speaker is None else f"SPK{sentence.speaker}"


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 3)


def _word(word: Word) -> Json:
    return {"word": word.text, "start": _seconds(word.start_ms), "end": _seconds(word.end_ms)}


def _segment(sentence: Sentence, *, speakers: bool, words: bool) -> Json:
    segment: Json = {
        "text": sentence.text,
        "start": _seconds(sentence.start_ms),
        "end": _seconds(sentence.end_ms),
    }
    if speakers:
        segment["speaker"] = _label(sentence)
    if words:
        segment["words"] = [_word(word) for word in sentence.words]
    if sentence.flags:
        segment["flags"] = list(sentence.flags)
    return segment


def _sentence(sentence: Sentence) -> Json:
    return {
        "id": sentence.id,
        "channel": sentence.channel,
        "text": sentence.text,
        "start_ms": sentence.start_ms,
        "end_ms": sentence.end_ms,
        "language": sentence.language,
        "confidence": _rounded(sentence.confidence),
        "speaker": sentence.speaker,
        "flags": list(sentence.flags),
        "words": [
            {
                "word": word.text,
                "start_ms": word.start_ms,
                "end_ms": word.end_ms,
                "confidence": _rounded(word.confidence),
            }
            for word in sentence.words
        ],
    }


def _language(transcription: Transcription) -> str:
    """The recording's language, else the one that most of its time is in."""
    spoken_ms: Counter[str] = Counter()
    for sentence in transcription.sentences:
        if sentence.language:
            spoken_ms[sentence.language] += sentence.end_ms - sentence.start_ms
    most = spoken_ms.most_common(1)
    return transcription.language or (most[0][0] if most else "und")


def _compression_ratio(text: str) -> float:
    """How much shorter zlib makes the text: repetition makes it large."""
    raw = text.encode("utf-8", "replace")
    return len(raw) / len(zlib.compress(raw))


def _letters(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    rest = _letters(number // 26 - 1) if number >= 26 else ""
    return rest + chr(ord("A") + number % 26)

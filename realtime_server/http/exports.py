"""Transcripts of live sessions as files: what was said so far, as text, subtitles or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from realtime_server.core.record import Record
from realtime_server.core.segments import Sentence, to_ms
from realtime_server.errors import FieldError
from realtime_server.offline.formats import Json, json_record, txt
from realtime_server.offline.steps import Steps
from realtime_server.offline.subtitles import srt_steps, vtt_steps
from realtime_server.offline.transcription import Transcription, one_line

NAMED = re.compile(
    r"(\d{1,4}(?:\.\d{1,4})?):(.+)", re.DOTALL
)  # of a speaker, a channel, or a speaker of a channel
MOST_NAMES, LONGEST_NAME = 100, 40
MEDIA_TYPES = {
    "txt": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "json": "application/json",
}


@dataclass(frozen=True, slots=True)
class Speakers:
    """Whether speakers are named, and how.

    names: by number; of a session of several channels by channel, or by channel and speaker, as "0.1".
    """

    shown: bool = True
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Speakers:
        """Read `on`, `off` or `0:Ann,1:Bob`; None is `on`. Raises FieldError."""
        if text is None or text in ("on", "off"):
            return cls(shown=text != "off")
        found = [NAMED.fullmatch(part.strip()) for part in text.split(",")]
        names = {pair[1]: one_line(pair[2]) for pair in found if pair}
        fitting = 0 < len(names) == len(found) <= MOST_NAMES
        if not fitting or not all(0 < len(name) <= LONGEST_NAME for name in names.values()):
            raise FieldError(
                "speakers must be on, off, or names like 0:Ann,1:Bob; of the speaker 1 of channel 0: 0.1:Ann",
                "speakers",
            )
        return cls(names=names)


def snapshot(record: Record) -> Transcription:
    """What was said so far; it does not change while the record does."""
    notes = (f"ended early: {record.problem}",) if record.problem else ()
    return Transcription(record.sentences, to_ms(record.upto), record.language, notes=notes)


def name_speakers(found: Transcription, channels: int, given: Mapping[str, str]) -> Transcription:
    """The same with their names; of several channels, speakers are the voices of each."""
    if channels > 1:
        return _with_channels(found, given)
    return replace(found, names={int(key): name for key, name in given.items() if "." not in key})


def _with_channels(found: Transcription, given: Mapping[str, str]) -> Transcription:
    """The same, with a number for each voice of each channel in place of its speaker."""
    voices = sorted({(s.channel, -1 if s.speaker is None else s.speaker) for s in found.sentences})
    numbers = {voice: number for number, voice in enumerate(voices)}

    def name(channel: int, speaker: int) -> str:
        whole = given.get(str(channel))
        if speaker < 0:
            return whole or f"Channel {channel + 1}"
        one = given.get(f"{channel}.{speaker}") or whole
        return one or f"Channel {channel + 1}, Speaker {speaker + 1}"

    def renumbered(sentence: Sentence) -> Sentence:
        speaker = -1 if sentence.speaker is None else sentence.speaker
        return replace(sentence, speaker=numbers[sentence.channel, speaker])

    names = {number: name(*voice) for voice, number in numbers.items()}
    return replace(found, sentences=tuple(map(renumbered, found.sentences)), names=names)


@dataclass(frozen=True, slots=True)
class Export:
    """A file as things stood when it was asked for. key: of the session, for JSON."""

    form: str
    found: Transcription
    channels: int
    final: bool
    speakers: Speakers
    key: str

    @classmethod
    def of(cls, form: str, record: Record, speakers: Speakers, *, key: str) -> Export:
        """Take what was said so far; it does not change while the record does."""
        return cls(form, snapshot(record), record.channels, record.stopped, speakers, key)

    def write(self) -> Steps[str]:
        """Write it, best on another thread."""
        if self.form == "json":
            return (yield from self._json())
        named = name_speakers(self.found, self.channels, self.speakers.names)
        if self.form == "txt":
            return txt(named, speakers=self.speakers.shown)
        write = {"srt": srt_steps, "vtt": vtt_steps}[self.form]
        return (yield from write(named, speakers=self.speakers.shown))

    def _json(self) -> Steps[str]:
        """A step writes one sentence: other threads stand still while json writes, however much that is."""
        record = {**json_record(self.found, key=self.key), "final": self.final}
        sentences = []
        for sentence in cast(list[Json], record.pop("sentences")):
            sentences.append(json.dumps(sentence, ensure_ascii=False))
            yield
        rest = json.dumps(record, ensure_ascii=False).removesuffix("}")
        return f'{rest}, "sentences": [{", ".join(sentences)}]}}\n'

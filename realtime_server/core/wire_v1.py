"""Protocol 1 on the wire: text commands in; whole lists of sentences out, each sentence encoded once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from realtime_server.core.commands import read_command
from realtime_server.core.messages import (
    Closing,
    Command,
    Committed,
    Event,
    Failed,
    Finished,
    HotwordsSet,
    LanguageSet,
    PartialChanged,
    ReplacementsSet,
    SegmentClosed,
    SegmentLocked,
    SegmentOpened,
    SpeakersRevised,
    Started,
    Stopped,
    Warned,
)
from realtime_server.core.partials import join_texts
from realtime_server.core.segments import Sentence, to_ms


def dumps(value: object) -> str:
    """Write a value as JSON that can be sent: compact, not escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair, as in an engine's error about a file name, has no UTF-8 and could not be sent.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class WireV1:
    """Protocol 1: text commands; every result repeats the whole list of sentences, each encoded once."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._sentences: dict[int, str] = {}  # encoded, by id, in lock order
        self._locked: dict[int, Sentence] = {}  # the same, for speakers that are revised
        self._open: dict[int, tuple[int, str]] = {}  # segments not locked yet: start, partial
        self._upto = 0

    def decode(self, frame: str | bytes) -> Iterable[Command | bytes]:
        """Return one command or one piece of PCM16 audio; see Wire."""
        return [read_command(frame)] if isinstance(frame, str) else [frame]

    def encode(self, events: Sequence[Event]) -> list[str]:
        """Return the messages; consecutive changes of the transcript become one result."""
        messages: list[str] = []
        changed = False
        for event in events:
            if isinstance(event, Warned | Closing):
                continue
            direct = self._encode_direct(event)
            if direct is None:
                changed = self._receive_change(event) or changed
                continue
            if changed and not isinstance(event, Finished | Committed):
                messages.append(self._result())
            changed = False
            messages += direct
        return [*messages, self._result()] if changed else messages

    def _encode_direct(self, event: Event) -> list[str] | None:
        """Messages of an event that is told at once; None for a change of the transcript."""
        match event:
            case Started():
                self._forget()
                return [dumps({"event": "started"})]
            case HotwordsSet(words=words):
                return [dumps({"event": "hotwords_set", "hotwords": words})]
            case LanguageSet(name=name):
                return [dumps({"event": "language_set", "language": name})]
            case ReplacementsSet(replacements=mapping):
                return [dumps({"event": "postprocess_hotwords_set", "postprocess_hotwords": dict(mapping)})]
            case Failed(message=message):
                return [dumps({"event": "error", "error": message})]
            case Finished() | Committed():
                self._upto = event.upto
                final = self._result(final=True)
                self._sentences.clear()
                self._locked.clear()
                self._open.clear()
                return [final]
            case Stopped():
                return [dumps({"event": "stopped"})]
        return None

    def _receive_change(self, event: Event) -> bool:
        """Note a change of the transcript; True if clients should be told."""
        self._upto = event.upto
        match event:
            case SegmentOpened(segment=segment, start=start):
                self._open[segment] = (start, "")
                return False
            case SegmentClosed():
                return False
            case PartialChanged(segment=segment, start=start, text=text):
                self._open[segment] = (start, text)
            case SegmentLocked(segment=segment, sentences=sentences):
                self._open.pop(segment, None)
                for sentence in sentences:
                    if sentence.text:
                        self._keep_sentence(sentence)
            case SpeakersRevised(changes=changes):
                shown = [change for change in changes if change.id in self._locked]
                for change in shown:
                    self._keep_sentence(replace(self._locked[change.id], speaker=change.after))
                return bool(shown)
        return True

    def _keep_sentence(self, sentence: Sentence) -> None:
        self._sentences[sentence.id] = self._encode_sentence(sentence)
        self._locked[sentence.id] = replace(sentence, words=())

    @staticmethod
    def _encode_sentence(sentence: Sentence) -> str:
        fields: dict[str, object] = {
            "text": sentence.text, "start": sentence.start_ms, "end": sentence.end_ms,
        }  # fmt: skip
        if sentence.speaker is not None:
            fields["spk"] = sentence.speaker
        return dumps(fields)

    def _result(self, *, final: bool = False) -> str:
        partial = "" if final else join_texts(text for _, text in self._open.values())
        start = 0 if final else min((start for start, _ in self._open.values()), default=self._upto)
        rest = {
            "partial": partial,
            "partial_start_ms": to_ms(start),
            "duration_ms": to_ms(self._upto),
            "is_final": final,
        }
        return '{"sentences":[' + ",".join(self._sentences.values()) + "]," + dumps(rest)[1:]

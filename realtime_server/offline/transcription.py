"""What a recording says: its sentences in order, and the texts that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from realtime_server.core.jobs import Task
from realtime_server.core.partials import join_texts
from realtime_server.core.postprocess import strip_invisible
from realtime_server.core.segments import Sentence, Word


@dataclass(frozen=True, slots=True)
class Transcription:
    """A whole recording in text.

    sentences: in the order in which they are to be read; times in ms from the recording's start. Sentences of
    different channels may overlap.  language: a code, as asked for or as detected, None if neither.  notes: for
    people, what was asked for and could not be done; empty for most recordings.  names: of speakers, by number, where
    people are to read others than those of speaker_name.
    """

    sentences: tuple[Sentence, ...]
    duration_ms: int
    language: str | None = None
    task: Task = "transcribe"
    notes: tuple[str, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All sentences in one line."""
        return join_texts(one_line(sentence.text) for sentence in self.sentences)

    @property
    def words(self) -> tuple[Word, ...]:
        """All words in the order of the sentences; none of a sentence whose word times are not known."""
        return tuple(word for sentence in self.sentences for word in sentence.words)

    def name_of(self, speaker: int) -> str:
        """What people are shown: a name that was given, else that of speaker_name."""
        return self.names.get(speaker) or speaker_name(speaker)


def one_line(text: str) -> str:
    """The text without control characters, each run of white space one space, none at the edges."""
    return " ".join(strip_invisible(text).split())


def speaker_name(speaker: int) -> str:
    """What people are shown: Speaker 1, Speaker 2, ... as on the page."""
    return f"Speaker {speaker + 1}"

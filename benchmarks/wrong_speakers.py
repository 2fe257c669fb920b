"""How far the speakers that were told are from those who spoke.

Diarization error rates are pyannote.metrics': missed speech, false alarms and speech of the wrong speaker, through all
speech; of these, confusion is the speech of the wrong speaker. Speakers are paired so that the error is the smallest.
A sentence of a recognizer lasts from its first word to its last: what it left out is missed speech, nobody's. One of
known words lasts as long as it says, pauses within it included, which count as false alarms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.conversations import Conversation, Said
from benchmarks.hearing import Told, speech_of
from benchmarks.libraries import needed
from realtime_server.core.segments import Sentence

COLLAR_S = 0.25  # on either side of each boundary

Speaking = list[tuple[int, int, int]]  # from, to (ms), speaker


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one conversation, in percent; words: of those said while one person spoke, told as another's."""

    error: float
    confusion: float
    collar_error: float
    collar_confusion: float
    words: float
    speakers: int  # told


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one conversation."""

    live: Rates
    final: Rates
    changed: float  # percent of the words that had a speaker: it was another after STOP
    swaps: int  # before STOP


def score(conversation: Conversation, told: Told, *, by_words: bool) -> Scores:
    """Compare; by_words: the words are a recognizer's. Raises ConfigurationError if pyannote.metrics is missing."""
    final = {number: sentence.speaker for number, sentence in told.sentences.items()}
    had = [each for each in told.sentences.values() if told.live[each.id] is not None]
    changed = [each for each in had if told.live[each.id] != final[each.id]]
    return Scores(
        _rates(conversation, told, told.live, by_words=by_words),
        _rates(conversation, told, final, by_words=by_words),
        100 * _count(changed) / max(1, _count(had)),
        told.swaps,
    )


def right_turns(conversation: Conversation, told: Told, *, live: bool = False) -> list[Said]:
    """The true turns that are told as their speaker's, for most of what was told of them."""
    speakers = told.live if live else {number: each.speaker for number, each in told.sentences.items()}
    heard = speech_of(told.sentences.values(), speakers, by_words=True)
    names = _names(conversation, heard)
    return [said for said in conversation.said if names.get(_most(said, heard)) == said.speaker]


def _rates(
    conversation: Conversation, told: Told, speakers: dict[int, int | None], *, by_words: bool
) -> Rates:
    heard = speech_of(told.sentences.values(), speakers, by_words=by_words)
    error, confusion = _error(conversation, heard, collar_s=0.0, overlap=True)
    collar_error, collar_confusion = _error(conversation, heard, collar_s=COLLAR_S, overlap=False)
    names = _names(conversation, heard)
    right = wrong = 0
    for sentence in told.sentences.values():
        for word in sentence.words:
            middle = (word.start_ms + word.end_ms) / 2
            true = [said.speaker for said in conversation.said if said.start <= middle < said.end]
            if len(set(true)) == 1:
                speaker = speakers[sentence.id]
                right += speaker is not None and names.get(speaker) == true[0]
                wrong += speaker is None or names.get(speaker) != true[0]
    ids = {speaker for *_, speaker in heard}
    words = 100 * wrong / max(1, right + wrong)
    return Rates(error, confusion, collar_error, collar_confusion, words, len(ids))


def _error(
    conversation: Conversation, heard: Speaking, *, collar_s: float, overlap: bool
) -> tuple[float, float]:
    """Diarization error rate and, of it, confusion, in percent."""
    metric = _metrics().DiarizationErrorRate(collar=2 * collar_s, skip_overlap=not overlap)
    core = needed("pyannote.core", "dev")
    whole = core.Timeline([core.Segment(0, conversation.ms / 1000)])
    parts = metric(
        _annotation((each.start, each.end, each.speaker) for each in conversation.said),
        _annotation(heard), uem=whole, detailed=True,
    )  # fmt: skip
    total = max(parts["total"], 1e-9)
    return 100 * parts["diarization error rate"], 100 * parts["confusion"] / total


def _names(conversation: Conversation, heard: Speaking) -> dict[int, str]:
    """Whose each speaker's number is."""
    said = _annotation((each.start, each.end, each.speaker) for each in conversation.said)
    pairs: dict[int, str] = _metrics().DiarizationErrorRate().optimal_mapping(said, _annotation(heard))
    return pairs


def _metrics() -> Any:
    return needed("pyannote.metrics.diarization", "dev")


def _annotation(rows: Iterable[tuple[int, int, int | str]]) -> Any:
    """The same as pyannote has it."""
    core = needed("pyannote.core", "dev")
    annotation = core.Annotation()
    for number, (start, end, speaker) in enumerate(rows):
        annotation[core.Segment(start / 1000, end / 1000), number] = speaker
    return annotation


def _most(said: Said, heard: Speaking) -> int:
    """Who was told for most of a turn; -1 for nobody."""
    shares: dict[int, int] = {}
    for start, end, speaker in heard:
        shares[speaker] = shares.get(speaker, 0) + max(0, min(end, said.end) - max(start, said.start))
    return max(shares, key=lambda speaker: shares[speaker]) if any(shares.values()) else -1


def _count(sentences: Iterable[Sentence]) -> int:
    return sum(len(sentence.words) for sentence in sentences)

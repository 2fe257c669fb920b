"""How steady the text of what is being said is: what partials take back, and what the sentences make of them.

The CPU recognizer hears recordings through a session as if everything were computed in no time, so the outcome does
not depend on the machine. A word counts as kept if the next message of its segment has it at the same place; words are
compared by their letters, characters where a script has no spaces. Both protocols are looked at: in protocol 2 stable
text stays, protocol 1 tells each partial as it was recognised. What steadiness costs is how late a word is first shown.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.hearing import Models, Told, hear
from benchmarks.recordings import RECORDINGS, shared
from realtime_server import weights
from realtime_server.bench import speech
from realtime_server.bench.figures import Report, percentile
from realtime_server.core import messages as m
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.segments import Sentence, to_ms
from realtime_server.core.settings import SessionSettings
from realtime_server.core.stabilization import letters, spoken_size, word_ends
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer

SETTINGS = SessionSettings(options=DecodingOptions(words=True))  # the times of words tell how late they are
MOVED = 0.12  # of the words of a message, at most


@dataclass(slots=True)
class Moves:
    """Words in partials, each time they are shown; moved: of them, those that the next message has not in place."""

    shown: int = 0
    moved: int = 0

    def take(self, text: str, following: str) -> None:
        """A partial's text, and that of the next message of its segment."""
        self.shown += len(_words(text))
        self.moved += _not_in_place(text, following)

    @property
    def share(self) -> float:
        """Moved over shown."""
        return self.moved / max(1, self.shown)


@dataclass(slots=True)
class Steadiness:
    """What became of the words that partials showed, over any number of sessions.

    plain: of protocol 1, which tells the text as it was recognised.  stable, contradicted: words that were stable when
    a segment was locked, and those that the sentence has not in place.  broken: partials whose stable text is not the
    beginning's of the one before, which must never be.  late: ms from where each word of a sentence ends until a
    message of its segment has as many words; not where a segment was cut in mid-speech, whose first words were shown
    with the one before.
    """

    recordings: int = 0
    segments: int = 0
    partials: int = 0
    moves: Moves = field(default_factory=Moves)
    plain: Moves = field(default_factory=Moves)
    stable: int = 0
    sentence_words: int = 0
    contradicted: int = 0
    contradicting: int = 0  # sentences with at least one such word
    broken: int = 0
    late: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A segment that is not locked: its latest partial, and when so many words were first shown, ms."""

    last: m.PartialChanged | None = None
    reached: list[int] = field(default_factory=list)

    def reach(self, words: int, now_ms: int) -> None:
        self.reached += [now_ms] * (words - len(self.reached))


@dataclass(slots=True)
class Heard(Told):
    """One session, as it is told."""

    found: Steadiness = field(default_factory=lambda: Steadiness(recordings=1))
    said: str = ""
    opened: dict[int, _Open] = field(default_factory=dict)
    locked_ms: int = -1  # where the sentences end

    def take(self, events: Iterable[m.Event]) -> None:
        """Note what the client is told."""
        for event in events:
            if isinstance(event, m.PartialChanged) and event.text:
                self._take_partial(event, self.opened.setdefault(event.segment, _Open()))
            elif isinstance(event, m.SegmentLocked):
                self.said += " ".join(["", *(sentence.text for sentence in event.sentences)])
                self._take_sentences(event.sentences, self.opened.pop(event.segment, _Open()))

    @property
    def unspaced(self) -> bool:
        """Whether most of what was said is written without spaces between words."""
        spelling = letters(self.said)
        return spoken_size(spelling) > 2 * len(spelling)

    def _take_partial(self, event: m.PartialChanged, known: _Open) -> None:
        self.found.partials += 1
        if before := known.last:
            self.found.moves.take(_shown(before), _shown(event))
            self.found.plain.take(before.text, event.text)
            self.found.broken += not event.stable.startswith(before.stable)
        known.last = event
        known.reach(len(_words(_shown(event))), to_ms(self.now))

    def _take_sentences(self, sentences: Sequence[Sentence], known: _Open) -> None:
        found, text = self.found, " ".join(sentence.text for sentence in sentences)
        if last := known.last:
            wrong = _not_in_place(last.stable, text)
            found.segments += 1
            found.moves.take(_shown(last), text)
            found.plain.take(last.text, text)
            found.stable += len(_words(last.stable))
            found.sentence_words += len(_words(text))
            found.contradicted += wrong
            found.contradicting += wrong > 0
        if sentences and sentences[0].start_ms > self.locked_ms:
            timed = [word for sentence in sentences for word in sentence.words]
            ends = [word.end_ms for word in timed for _ in _words(word.text)]
            known.reach(len(ends), to_ms(self.now))
            found.late += [at - end for at, end in zip(known.reached, ends, strict=False)]
        self.locked_ms = max([self.locked_ms, *(sentence.end_ms for sentence in sentences)])


def _shown(event: m.PartialChanged) -> str:
    return event.stable + event.unstable


def _words(text: str) -> list[str]:
    return [word for word, _ in word_ends(text)]


def _not_in_place(before: str, after: str) -> int:
    """How many words of one text the other has not at the same place."""
    old, new = _words(before), _words(after)
    kept = sum(one == other for one, other in zip(old, new, strict=False))
    return len(old) - kept


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recordings."""
    parser.add_argument(
        "--recordings", type=Path, default=RECORDINGS, metavar="FOLDER",
        help="a folder with a MANIFEST.tsv, whose English and Mandarin recordings are heard beside the fetched ones",
    )  # fmt: skip
    parser.add_argument("--files", nargs="+", type=Path, metavar="FILE", help="these recordings instead")


def run(arguments: argparse.Namespace) -> Report:
    """Measure."""
    files = arguments.files or _find(arguments.recordings)
    return report_of(files, asyncio.run(_hear_all(files)))


def report_of(files: Sequence[Path], heard: Sequence[Heard]) -> Report:
    """What was heard in files: a column for scripts with spaces, one for those without."""
    report = Report("stability", f"{len(files)} recordings, the CPU recognizer, as if it took no time")
    for case, unspaced in (("words", False), ("characters", True)):
        _add(report, case, add_up(each.found for each in heard if each.unspaced == unspaced))
    return report


def add_up(sessions: Iterable[Steadiness]) -> Steadiness:
    """All of them as one."""
    total = Steadiness()
    for one in sessions:
        for moves, more in ((total.moves, one.moves), (total.plain, one.plain)):
            moves.shown += more.shown
            moves.moved += more.moved
        total.recordings += one.recordings
        total.segments += one.segments
        total.partials += one.partials
        total.stable += one.stable
        total.sentence_words += one.sentence_words
        total.contradicted += one.contradicted
        total.contradicting += one.contradicting
        total.broken += one.broken
        total.late += one.late
    return total


def _add(report: Report, case: str, found: Steadiness) -> None:
    """A column: recordings in scripts with spaces, or without."""
    if not found.moves.shown:
        return
    stable, segments = max(1, found.stable), max(1, found.segments)
    moved = "words of a message not in place in the next"
    report.add("partials that take stable text back", found.broken, at_most=0, case=case)
    report.add(moved, found.moves.share, at_most=MOVED, case=case)
    report.add(f"{moved}, protocol 1", found.plain.share, at_most=MOVED, case=case)
    late, mean = "a word is first shown after it was said", sum(found.late) / max(1, len(found.late))
    report.add(f"{late}, mean", mean, "ms", case=case)
    report.add(f"{late}, p95", percentile(found.late, 95), "ms", case=case)
    report.add("stable words that the sentence has not in place", found.contradicted / stable, case=case)
    report.add("sentences with such a word", found.contradicting / segments, case=case)
    report.add(
        "words that were stable when the sentence came",
        found.stable / max(1, found.sentence_words),
        case=case,
    )
    report.notes.append(
        f"{case}: {found.recordings} recordings, {found.segments} segments, {found.partials} partials, "
        f"{found.moves.shown} shown in them"
    )


async def _hear_all(files: Sequence[Path]) -> list[Heard]:
    options = EngineOptions("embedded")
    models = Models(load_engine(options), load_scorer(options, "fsmn"), partials=True)
    try:
        return [await _hear(path, models) for path in files]
    finally:
        await models.engine.aclose()
        await models.scorer.aclose()


async def _hear(path: Path, models: Models) -> Heard:
    heard = Heard()
    await hear(speech.load(path).samples, models, str(path), SETTINGS, heard)
    return heard


def _find(folder: Path) -> list[Path]:
    """The fetched recordings, and those of the folder if it exists."""
    files = [
        *sorted(weights.find("clips").glob("*/*.wav")),
        *sorted(weights.find("recordings").glob("*.wav")),
    ]
    more = shared(folder, "en/", "zh/") if (folder / "MANIFEST.tsv").exists() else []
    return [*files, *(recording.path for recording in more)]

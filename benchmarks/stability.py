"""How steady the text of what is being said is: what partials take back, and what the sentences make of them.

The CPU recognizer hears recordings through a session as if everything were computed in no time, so the outcome does
not depend on the machine. A word counts as kept if the next message of its segment has it at the same place; words are
compared by their letters, characters where a script has no spaces.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.hearing import Models, Told, hear
from realtime_server import weights
from realtime_server.bench import speech
from realtime_server.bench.figures import Report
from realtime_server.core import messages as m
from realtime_server.core.settings import SessionSettings
from realtime_server.core.stabilization import word_ends
from realtime_server.engines.loading import EngineOptions, load_engine, load_scorer


@dataclass(slots=True)
class Steadiness(Told):
    """What became of the words that partials showed, over any number of sessions.

    shown: words in partials, each time they are shown.  moved: of them, those that the next message has not in place.
    stable, contradicted: words that were stable when a segment was locked, and those that the sentence has not in
    place.  broken: partials whose stable text is not the beginning's of the one before, which must never be.
    """

    segments: int = 0
    partials: int = 0
    shown: int = 0
    moved: int = 0
    stable: int = 0
    sentence_words: int = 0
    contradicted: int = 0
    contradicting: int = 0  # sentences with at least one such word
    broken: int = 0
    opened: dict[int, m.PartialChanged] = field(default_factory=dict)  # the latest partial of each segment

    def take(self, events: Iterable[m.Event]) -> None:
        """Note what the client is told."""
        for event in events:
            if isinstance(event, m.PartialChanged) and event.text:
                self._take_partial(event)
            elif isinstance(event, m.SegmentLocked) and (last := self.opened.pop(event.segment, None)):
                self._take_sentences(" ".join(sentence.text for sentence in event.sentences), last)

    def _take_partial(self, event: m.PartialChanged) -> None:
        text = event.stable + event.unstable
        self.partials += 1
        self.shown += len(_words(text))
        if before := self.opened.get(event.segment):
            self.broken += not event.stable.startswith(before.stable)
            self.moved += _not_in_place(before.stable + before.unstable, text)
        self.opened[event.segment] = event

    def _take_sentences(self, text: str, last: m.PartialChanged) -> None:
        self.segments += 1
        self.moved += _not_in_place(last.stable + last.unstable, text)
        wrong = _not_in_place(last.stable, text)
        self.stable += len(_words(last.stable))
        self.sentence_words += len(_words(text))
        self.contradicted += wrong
        self.contradicting += wrong > 0


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
        "--recordings",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="recordings of speech (default: the fetched ones)",
    )


def run(arguments: argparse.Namespace) -> Report:
    """Measure."""
    recordings = arguments.recordings or _fetched()
    found = asyncio.run(_hear_all(recordings))
    report = Report("stability", f"{len(recordings)} recordings, the CPU recognizer, as if it took no time")
    report.add("partials that take stable text back", found.broken, at_most=0)
    report.add("words of a message not in place in the next", found.moved / max(1, found.shown), at_most=0.12)
    report.add("stable words that the sentence has not in place", found.contradicted / max(1, found.stable))
    report.add("sentences with such a word", found.contradicting / max(1, found.segments))
    report.add("words that were stable when the sentence came", found.stable / max(1, found.sentence_words))
    report.notes.append(
        f"{found.segments} segments, {found.partials} partials, {found.shown} words shown in them"
    )
    return report


async def _hear_all(recordings: Sequence[Path]) -> Steadiness:
    options = EngineOptions("embedded")
    models = Models(load_engine(options), load_scorer(options, "fsmn"), partials=True)
    found = Steadiness()
    try:
        for number, path in enumerate(recordings):
            found.opened.clear()
            await hear(speech.load(path).samples, models, str(number), SessionSettings(), found)
    finally:
        await models.engine.aclose()
        await models.scorer.aclose()
    return found


def _fetched() -> list[Path]:
    return [*sorted(weights.find("clips").glob("*/*.wav")), *sorted(weights.find("recordings").glob("*.wav"))]

"""One speaker for five minutes: he must stay one, and somebody else who speaks once must still be found."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from benchmarks import conversations, telephone
from benchmarks.conversations import Conversation
from benchmarks.hearing import Models, Told, hear
from benchmarks.wrong_speakers import right_turns, score
from realtime_server.bench.figures import Report
from realtime_server.bench.speech import Recording
from realtime_server.core.settings import SessionSettings

SETTINGS = SessionSettings(speakers=True)
ALONE_MS = 5000  # of speech of their own have those who are heard alone
WHEN = (("live", True), ("after STOP", False))

Speakers = Mapping[str, Sequence[Recording]]
ModelsOf = Callable[[Conversation], Models]


async def add(
    report: Report, case: str, speakers: Speakers, arguments: argparse.Namespace, models: ModelsOf
) -> None:
    """Add the figures of a set of speakers: alone, --times each, and --guests with somebody who speaks once."""
    seconds, seed = arguments.alone, arguments.seed
    await _add_alone(report, f"{case}, alone", speakers, seconds, range(seed, seed + arguments.times), models)
    if len(speakers) < 2:
        return
    seeds = range(seed, seed + arguments.guests)
    talks = [conversations.with_guest(speakers, seconds, each) for each in seeds]
    await _add_guests(report, f"{case}, guest", talks, models)
    by_telephone = [talk.through(telephone.g711) for talk in talks]
    await _add_guests(report, f"{case}, guest, telephone", by_telephone, models)


async def _add_alone(
    report: Report, case: str, speakers: Speakers, seconds: float, seeds: Sequence[int], models: ModelsOf
) -> None:
    """Add how many speakers are told where there is one, of everybody."""
    worst, lines = dict.fromkeys((when for when, _ in WHEN), 0), []
    able = [name for name, parts in speakers.items() if sum(each.spoken_ms for each in parts) >= ALONE_MS]
    for name in able:
        told = []
        for seed in seeds:
            talk = conversations.alone(name, speakers[name], seconds, seed)
            scores = score(talk, await _hear(talk, models), by_words=False)
            for when, rates in (("live", scores.live), ("after STOP", scores.final)):
                worst[when] = max(worst[when], rates.speakers)
            told.append(
                f"seed {seed}: {scores.live.speakers} live, {scores.final.speakers} after STOP "
                f"({scores.final.words:.1f} % of the words not the first's)"
            )
        lines.append(f"{case}, {name}, {seconds:g} s: " + "; ".join(told))
    for when, most in worst.items():
        report.add(f"speakers of one {when}, worst", most, at_most=1, case=case)
    report.add("recordings", len(able) * len(seeds), case=case)
    report.notes += lines


async def _add_guests(report: Report, case: str, talks: Sequence[Conversation], models: ModelsOf) -> None:
    """Add how many of those who speak once are told as somebody of their own, and who was told too many."""
    found, many = dict.fromkeys((when for when, _ in WHEN), 0), dict.fromkeys((when for when, _ in WHEN), 0)
    for talk in talks:
        told = await _hear(talk, models)
        scores = score(talk, told, by_words=True)
        (guest,) = [said for said in talk.said if talk.name.endswith(f", once {said.speaker}")]
        for when, live in WHEN:
            is_found = guest in right_turns(talk, told, live=live)
            found[when] += is_found
            many[when] += (scores.live if live else scores.final).speakers > talk.speakers
            if not is_found:
                report.notes.append(f"{case}: {talk.name} for {guest.end - guest.start} ms, not found {when}")
    for when, count in found.items():
        report.add(f"found {when}, of {len(talks)}", count, case=case)
    for when, count in many.items():
        report.add(f"speakers too many {when}, of {len(talks)}", count, case=case)


async def _hear(talk: Conversation, models: ModelsOf) -> Told:
    return await hear(talk.samples, models(talk), talk.name, SETTINGS)

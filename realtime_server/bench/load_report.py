"""The figures of one step of a load, with the bounds that the server must keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from realtime_server.bench import accounting, summary, swarm
from realtime_server.bench.accounting import Heard
from realtime_server.bench.climbing import CLIENTS, PARTIALS
from realtime_server.bench.figures import Report, percentile
from realtime_server.bench.full_load import Outcome
from realtime_server.bench.options import Load

PERCENTS = (50, 95, 99)
NO_PARTIAL_MS = 1200  # speech until STOP that is too short to ask for a partial

Times = Sequence[tuple[float, float | None]]


def report_on(load: Load, title: str, takes: Sequence[Sequence[swarm.Take]], outcome: Outcome) -> Report:
    """One step: a sequence of takes for each client, and what came of them."""
    report = Report("load", title)
    report.add(CLIENTS, len(takes))
    report.add("speech in what they say", 100 * _spoken_s(takes) / _audio_s(takes), "%")
    if load.paced:
        _add_text(report, load, outcome)
    else:
        report.add("audio recognized", _audio_s(takes) / _whole_s(outcome), "s/s")
    _add_times(report, "STOP to final", load, outcome, _finals, bound=load.stop_ms if load.paced else None)
    _add_partials(report, load, takes, outcome)
    summary.add_answers(report, outcome.logs, takes=sum(map(len, takes)))
    if outcome.server:
        summary.add_server(report, *outcome.server)
        summary.add_front(report, outcome)
    summary.add_clients(report, outcome)
    if outcome.client_cores > summary.NEAR_A_CORE:
        report.notes.append(
            f"with {len(takes)} clients their own process used {outcome.client_cores:.2f} of the one core that it can "
            "use: it may be the limit"
        )
    return report


def _add_text(report: Report, load: Load, outcome: Outcome) -> None:
    def firsts(heard: Heard) -> Times:
        found = accounting.first_partials(heard, pause_ms=load.pause_ms)
        return [(start, ms) for start, ms in found if heard.stop_ms - start > NO_PARTIAL_MS]

    def locks(heard: Heard) -> Times:
        return accounting.locks(heard, pause_ms=load.pause_ms)

    _add_times(report, "first partial from speech onset", load, outcome, firsts)
    report.add("onsets without a partial", outcome.under_load(firsts).count(None))
    _add_times(report, "text lag", load, outcome, accounting.text_lags, bound=load.lag_ms)
    _add_times(report, "speech end to locked", load, outcome, locks)


def _add_times(
    report: Report, name: str, load: Load, outcome: Outcome, find: Callable[[Heard], Times], *,
    bound: float | None = None,
) -> None:  # fmt: skip
    values = [ms / (load.pace or 1) for ms in outcome.under_load(find) if ms is not None]
    bounds = None if bound is None else {95: bound}
    report.add_percentiles(name, values, "ms", bounds=bounds, percents=PERCENTS)


def _finals(heard: Heard) -> Times:
    return [(heard.stop_ms, accounting.final_ms(heard))]


def _add_partials(
    report: Report, load: Load, takes: Sequence[Sequence[swarm.Take]], outcome: Outcome
) -> None:  # fmt: skip
    """How often texts came, without which neither their age nor their changes can be compared."""
    heards = summary.takes_of(outcome.logs)
    partials = sum(len(accounting.partials(heard)) for heard in heards)
    report.add("partials per client", partials / len(takes))
    report.add(PARTIALS, partials / _spoken_s(takes))
    if load.paced:
        _add_times(report, "partial interval", load, outcome, accounting.intervals)
        gaps = [ms / load.pace for ms in outcome.under_load(accounting.without_text)]
        report.add("speech without text, p95", percentile(gaps, 95), "ms")
    changes = [accounting.word_changes(heard) for heard in heards]
    shown, changed = sum(each[0] for each in changes), sum(each[1] for each in changes)
    report.add("shown words that changed", 100 * changed / max(1, shown), "%")


def _audio_s(takes: Sequence[Sequence[swarm.Take]]) -> float:
    return sum(len(take.frames) for each in takes for take in each) * swarm.FRAME_MS / 1000


def _spoken_s(takes: Sequence[Sequence[swarm.Take]]) -> float:
    return sum(end - start for each in takes for take in each for start, end in take.spells) / 1000


def _whole_s(outcome: Outcome) -> float:
    """From the first client's beginning to the last one's final."""
    times = [
        (began_s, began_s + heard.results[-1].at_ms / 1000)
        for log in outcome.logs
        for heard, began_s in zip(log.takes, log.began_s, strict=True)
        if heard.results
    ]
    return max(end for _, end in times) - min(begin for begin, _ in times) if times else float("inf")

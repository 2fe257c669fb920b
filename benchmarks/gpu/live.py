"""Live streams on one GPU: how many the server holds with random weights of the real shapes and scripted texts.

Everything is real but the weights' meaning: sockets, voice activity, the sessions, the encoder, vLLM; scripted.py says
what is scripted. More and more clients speak, until texts or finals come too late or too seldom; first with the voice
activity in the front end's process, then, where the server has the flag, in processes of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from benchmarks.gpu import profiling, script
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.live_clients import Crowd, Told, takes_for
from benchmarks.gpu.live_server import FRONT, WORKERS
from benchmarks.gpu.programs import Program, started
from realtime_server.bench.accounting import without_text
from realtime_server.bench.climbing import PARTIALS, Step
from realtime_server.bench.figures import Figure, Report
from realtime_server.bench.full_load import Moment, Outcome
from realtime_server.bench.load_report import report_on
from realtime_server.bench.machine import Usage
from realtime_server.bench.options import Load
from realtime_server.bench.swarm import Take

EVERY_MS = 1200  # somebody who speaks is to see text at least this often
READY_S = 240.0  # for a server to load its models
CLOSING_S = 12.0  # of the benchmark's time, for what follows the last step
PROFILED_S = 8.0
NOTES = (
    f"{script.TOKENS_PER_S:g} tokens per second of audio, none fewer or more; of a partial all but the last "
    f"{script.UNSTABLE} are stable when\nthe next one begins; a text's words are scripted, its tokens are generated",
    "text lag: when a result comes that accounts for more speech than before, its time of receipt less its\n"
    "duration_ms; partial interval: between such results within speech; frames hold 100 ms",
)
KEPT = (
    "first partial from speech onset, p95", "text lag, p50", "text lag, p95", "text lag, p99",
    "speech end to locked, p95", "STOP to final, p50", "STOP to final, p95", "STOP to final, p99", PARTIALS,
    "partial interval, p50", "partial interval, p95", "spells without text for at most 1.2 s",
    "shown words that changed", "takes", "takes with a final", "errors", "CPU of server", "CPU of EngineCore",
    "CPU of other processes", "busiest client process", "server memory", "GPU memory", "GPU busy",
)  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried. counts: rising.  first: of them, the first one tried.  step_s: what a step takes."""

    load: Load
    counts: tuple[int, ...]
    first: int
    processes: int  # with clients

    @property
    def step_s(self) -> float:
        """From one step's beginning to the next one's, about."""
        return self.load.seconds + self.load.stagger_s + 5.0


REAL = Plan(
    Load(seconds=20.0, stagger_s=4.0), (25, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600), 150, 6
)  # fmt: skip
TINY = Plan(Load(seconds=12.0, stagger_s=2.0), (1, 2, 4), 2, 2)


def measure(bench: Bench) -> Report:
    """Climb in each place of the voice activity, and profile the largest load that held."""
    plan = plan_of(bench)
    report = bench.report("live", f"one engine, {plan.load.title}; place of the voice activity, streams")
    report.notes += NOTES
    workers = bench.live.vad_workers
    with Crowd(plan.processes, bench.live.speech) as crowd, serving(bench, vad_workers=workers) as server:
        report.add("start", server.took_s, "s", case="engine")
        places, first = [FRONT, *([WORKERS] if workers else [])], plan.first
        for left, place in zip(range(len(places), 0, -1), places, strict=True):
            until_s = time.monotonic() + (bench.left_s - CLOSING_S) / left
            spot = Spot(bench, crowd, server, place, server.urls[place])
            steps = list(climb(plan.counts, first, spot.measure_with(plan), until_s - 2 * plan.step_s))
            add(report, place, steps)
            first = next((count for count in plan.counts if count > held(steps)), plan.counts[-1])
            if until_s - time.monotonic() > plan.step_s:
                report.notes += spot.profile(plan, held(steps) or min(plan.counts))
            bench.tell(report)  # the next place may fail
        report.notes += server.troubles()
    return report


def plan_of(bench: Bench) -> Plan:
    """What is tried; the command line may name the counts, of which the first is tried first."""
    plan = TINY if bench.tiny else REAL
    return (
        replace(plan, counts=tuple(sorted(bench.live.streams)), first=bench.live.streams[0])
        if bench.live.streams
        else plan
    )


def serving(
    bench: Bench, *, vad_workers: int = 0, interval_ms: int | None = None
) -> AbstractContextManager[Program]:
    """Our own server while a block runs."""
    given = [
        "--model", str(bench.folder), "--device", bench.device, "--max-model-len", str(bench.options.max_model_len),
        "--max-sessions", "5000", "--vad-model", str(bench.live.vad_model),
    ]  # fmt: skip
    ours = ["--vad-workers", str(vad_workers)] if vad_workers else []
    ours += ["--interval-ms", str(interval_ms)] if interval_ms else []
    return started(
        ["benchmarks.gpu.live_server", *ours, "--", *given],
        names=[FRONT, *[WORKERS] * bool(vad_workers)],
        ready_s=READY_S,
    )


@dataclass(frozen=True, slots=True)
class Spot:
    """One address of a server, and who speaks to it."""

    bench: Bench
    crowd: Crowd
    server: Program
    name: str
    url: str

    def measure_with(self, plan: Plan) -> Callable[[int], Report]:
        """What measures a number of clients."""

        def measure(clients: int) -> Report:
            report = self.measure(plan, clients)
            self.bench.tell(report)
            return report

        return measure

    def measure(self, plan: Plan, clients: int) -> Report:
        """Let so many clients speak."""
        title = f"{self.name}, {plan.load.title}"
        with profiling.watching(self.server.pid) as watched:
            begin_s = self.crowd.begin(self.url, plan.load, clients)
            told = self.crowd.end(plan.load, begin_s)
        takes = takes_for(plan.load, self.bench.live.speech, clients)
        return step_report(plan.load, (f"gpu live {self.name}", title), takes, told, watched)

    def profile(self, plan: Plan, clients: int) -> list[str]:
        """Let so many clients speak and sample the server's processes meanwhile; tables as notes."""
        pids = {"server": self.server.pid}
        if engine := profiling.engine_of(self.server.pid):
            pids["engine"] = engine
        begin_s = self.crowd.begin(self.url, plan.load, clients)
        time.sleep(max(0.0, begin_s + plan.load.stagger_s + 1 - time.monotonic()))
        seconds = min(PROFILED_S, plan.load.seconds - plan.load.stagger_s - 2)
        notes = []
        try:
            files = profiling.record(
                {f"{self.name}-{name}": pid for name, pid in pids.items()}, seconds, self.bench.keep
            )
            for name, path in files.items():
                what = f"CPU profile of {name} with {clients} streams, {seconds:g} s"
                notes.append(profiling.table(path.read_text().splitlines(), seconds, what))
        except OSError as error:
            notes.append(f"no profile: {error}")
        self.crowd.end(plan.load, begin_s)
        return notes


def climb(
    counts: Sequence[int], first: int, measure: Callable[[int], Report], until_s: float
) -> Iterator[Step]:
    """From `first` upwards until one is not held; if that is not, downwards until one is; then what lies between.

    No step begins after until_s, but for the first.
    """
    place = min(range(len(counts)), key=lambda n: abs(counts[n] - first))
    way, last = 0, Step(counts[place], measure(counts[place]))
    yield last
    while time.monotonic() < until_s:
        way = way or (1 if last.held else -1)
        place += way
        if not 0 <= place < len(counts):
            return
        step = Step(counts[place], measure(counts[place]))
        yield step
        if step.held != last.held:
            between = (step.clients + last.clients) // 2
            if between not in (step.clients, last.clients) and time.monotonic() < until_s:
                yield Step(between, measure(between))
            return
        last = step


def step_report(
    load: Load, name: tuple[str, str], takes: Sequence[Sequence[Take]], told: Sequence[Told],
    watched: profiling.Watching,
) -> Report:  # fmt: skip
    """What all processes with clients saw, in the time in which all clients spoke."""
    logs = [log for each in told for log in each.logs]
    begins = [log.began_s[0] for log in logs if log.began_s]
    ends = [
        began_s + heard.stop_ms / 1000
        for log in logs
        for began_s, heard in zip(log.began_s[-1:], log.takes[-1:], strict=True)
        if heard.stop_ms
    ]
    began_s, ended_s = max(begins, default=0.0), min(ends, default=1.0)
    before, after = watched.between(began_s, ended_s)
    busiest = max((each.cores for each in told), default=0.0)
    seconds = ended_s - began_s
    outcome = Outcome(
        logs,
        Moment(began_s, 0.0, _usage(before), 0, 0),
        Moment(ended_s, busiest * seconds, _usage(after), 0, 0),
    )
    report = report_on(load, name[1], takes, outcome)
    report.benchmark = name[0]
    report.figures = [_bounded(figure) for figure in report.figures if "to clients" not in figure.name]
    gaps = outcome.under_load(without_text)
    report.add(
        "spells without text for at most 1.2 s",
        100 * sum(gap <= EVERY_MS for gap in gaps) / max(1, len(gaps)),
        "%",
    )
    for process, used in profiling.cores(before, after).items():
        report.add(f"CPU of {process}", used, "cores")
    report.add("busiest client process", busiest, "cores")
    if watched.gpu:
        report.add("GPU memory", max(used for used, _ in watched.gpu), "MB")
        report.add(
            "GPU busy", sorted(busy for _, busy in watched.gpu)[len(watched.gpu) // 2], "% of the time"
        )
    return report


def held(steps: Sequence[Step]) -> int:
    """The most streams that held, 0 if none did."""
    return max((step.clients for step in steps if step.held), default=0)


def add(report: Report, place: str, steps: Sequence[Step]) -> None:
    """Add the steps of one place, a column each, and how far it held."""
    most = held(steps)
    missed = min((step.clients for step in steps if not step.held), default=None)
    report.add("streams that held", most, case=place)
    if missed is not None:
        (why,) = [step.report.missed for step in steps if step.clients == missed][:1]
        report.notes.append(f"{place}: {most} held; not {missed}: {'; '.join(map(str, why))}")
    else:
        report.notes.append(f"{place}: {most} held, the most that were tried")
    for step in sorted(steps, key=lambda step: step.clients):
        # What a step missed is how a climb ends: here it is no bound.
        shown = [
            replace(each, case=f"{place} {step.clients}", at_most=None, at_least=None)
            for each in step.report.figures
            if each.name in KEPT
        ]
        report.figures += sorted(shown, key=lambda figure: KEPT.index(figure.name))
        report.notes += [note for note in step.report.notes if note not in report.notes]


def _bounded(figure: Figure) -> Figure:
    return replace(figure, at_most=EVERY_MS) if figure.name == "partial interval, p95" else figure


def _usage(look: profiling.Look) -> Usage:
    """Of all processes together."""
    whole = look.processes.values()
    return Usage(look.at_s, sum(cpu_s for _, cpu_s, _ in whole), sum(mb for _, _, mb in whole))

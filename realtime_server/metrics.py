"""What operators can watch: GET /metrics answers `Metrics.render`, as Prometheus text.

What has a distribution is observed when it happens, for about a microsecond each. What is known anyway is read when
somebody asks: `Snapshot`. The registry is the server's own; nothing is kept in the library's global one.
docs/operating.md lists what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from realtime_server.core.counts import SessionCounts
from realtime_server.core.jobs import ClusterJob, EmbedJob, Job, ScoreJob
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.base import Staffed
from realtime_server.errors import EngineError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXTS = ("final", "eager", "partial")  # kinds of what live clients are told
KINDS = (*TEXTS, "file")  # of decodes; a file's rank last, and nobody waits for their text
WORK: dict[type[Job], str] = {ScoreJob: "vad", EmbedJob: "embed", ClusterJob: "cluster"}
LAGS_S = (0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.5, 5.0, 10.0, 30.0, 60.0)
DECODES_S = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the server knows when it is asked."""

    about: Mapping[str, str]  # version, engine and settings
    counts: SessionCounts  # of all connections so far
    sessions: int
    max_sessions: int
    ready: bool
    in_line: Mapping[str, int]  # decodes that the engine has no room for, by kind
    in_engine: Mapping[str, int]  # decodes that the engine has, by kind
    engine_up: bool
    engine_silent_s: float
    late: bool  # newcomers are refused for the sake of those inside
    vad: Staffed | None = None  # if voice activity has processes of its own


class Metrics:
    """The metrics of one server. snapshot: called whenever somebody asks.

    registry: other services of the same process may register collectors of theirs.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Known(snapshot))
        ProcessCollector(registry=self.registry)  # memory, CPU, open files: read from /proc when asked
        self._lags = self._histograms(
            "lag_seconds", TEXTS, LAGS_S, "Age of the newest sound in a text when it was told; of finals, of the sound "
            "at which the end was noticed, or of the client's word or silence that ended it"
        )  # fmt: skip
        self._waits = self._histograms("line_seconds", KINDS, DECODES_S, "What a decode waited for its turn")
        self._decodes = self._histograms(
            "decode_seconds", KINDS, DECODES_S, "What the engine took for a decode"
        )
        work = self._counter("work", "Jobs answered, beside decodes", "job", "outcome")
        self._work = {
            (job, failed): work.labels(name, "failed" if failed else "ok")
            for job, name in WORK.items()
            for failed in (False, True)
        }
        told = self._counter(
            "texts", "Partial texts that clients were sent, or not, for there was a newer", "outcome"
        )
        self._sent, self._superseded = told.labels("sent"), told.labels("superseded")
        self._errors = self._counter("errors", "Errors told to clients", "code")
        self._refused = self._counter("refused", "Handshakes refused", "reason")
        self._connections = self._counter("connections", "Handshakes that became sessions")
        self._messages = self._counter("messages", "Messages sent to clients")
        self._bytes = self._counter("message_bytes", "Bytes of these messages")

    def render(self) -> str:
        """Everything, in Prometheus' text format; to be answered as CONTENT_TYPE."""
        return generate_latest(_Plain(self.registry)).decode()

    # --- what happened ------------------------------------------------------------------------------------

    def observe_lag(self, kind: str, lag_s: float) -> None:
        """A text was told."""
        self._lags[kind].observe(lag_s)

    def observe_decode(self, kind: str, waited_s: float, took_s: float) -> None:
        """The engine answered a decode that had waited for its turn."""
        self._waits[kind].observe(waited_s)
        self._decodes[kind].observe(took_s)

    def observe_job(self, job: Job, error: EngineError | None) -> None:
        """A job was answered, of whatever kind; decodes are told by `observe_decode`."""
        counter = self._work.get((type(job), error is not None))
        if counter:
            counter.inc()

    def count_partials(self, sent: int, superseded: int) -> None:
        """So many partials were sent, so many were not because a newer text was there before."""
        self._sent.inc(sent)
        self._superseded.inc(superseded)

    def count_message(self, size: int) -> None:
        """A message of so many bytes was sent."""
        self._messages.inc()
        self._bytes.inc(size)

    def count_error(self, code: str) -> None:
        """A client was told an error."""
        self._errors.labels(code).inc()

    def count_refused(self, reason: str) -> None:
        """A handshake was refused."""
        self._refused.labels(reason).inc()

    def count_connection(self) -> None:
        """A handshake became a session."""
        self._connections.inc()

    # --- inside -------------------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"realtime_server_{name}", text, labels, registry=self.registry)

    def _histograms(
        self, name: str, kinds: tuple[str, ...], buckets: tuple[float, ...], text: str
    ) -> dict[str, Histogram]:
        """One histogram by kind."""
        whole = Histogram(f"realtime_server_{name}", text, ("kind",), buckets=buckets, registry=self.registry)
        return {kind: whole.labels(kind) for kind in kinds}


class _Known:
    """A collector of what the snapshot says."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        """Names are not needed beforehand: nobody else has this prefix."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's Collector."""
        now = self._snapshot()
        counts = now.counts
        yield InfoMetricFamily("realtime_server", "What runs", dict(now.about))
        yield _gauge("ready", "Whether /ready says so", now.ready)
        yield _gauge("sessions", "Sessions now", now.sessions)
        yield _gauge("max_sessions", "Sessions at once at most", now.max_sessions)
        yield _gauge("engine_up", "Whether the recognizer has not died", now.engine_up)
        yield _gauge(
            "engine_silent_seconds", "Since the recognizer has jobs and answers none", now.engine_silent_s
        )
        yield _gauge("late", "Whether newcomers are refused because texts are late", now.late)
        jobs = GaugeMetricFamily("realtime_server_jobs", "Decodes not answered", labels=("place", "kind"))
        for place, by_kind in (("line", now.in_line), ("engine", now.in_engine)):
            for kind in KINDS:
                jobs.add_metric((place, kind), by_kind.get(kind, 0))
        yield jobs
        up, restarts = (now.vad.up, now.vad.restarts) if now.vad else (0, 0)
        yield _gauge("vad_workers", "Processes for voice activity that take jobs", up)
        yield _total("vad_worker_restarts", "Of them, replaced after they died or hung", restarts)
        yield _total("starts", "STARTs", counts.sessions)
        yield _total("audio_seconds", "Audio heard", counts.audio_samples / SAMPLE_RATE)
        yield _total("segments", "Segments of speech that ended", counts.segments)
        yield _total("sentences", "Sentences locked", counts.sentences)
        yield _total("decode_failures", "Decodes that failed or met their deadline", counts.decode_failures)
        yield _total_by("flagged", "Segments locked with a flag", "flag", {
            "recovered": counts.recovered, "truncated": counts.truncated, "failed": counts.failed,
        })  # fmt: skip
        yield _total_by("partials", "Partials decoded, or not: for lack of time, for the segment's end", "outcome", {
            "decoded": counts.partials, "folded": counts.folded, "cancelled": counts.cancelled,
        })  # fmt: skip


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"realtime_server_{name}", text, float(value))


def _total(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"realtime_server_{name}", text, value)


def _total_by(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"realtime_server_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


class _Plain:
    """A registry without the times of creation that the library adds to every counter."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's Collector."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

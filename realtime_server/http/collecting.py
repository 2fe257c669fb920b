"""What GET /metrics tells of recordings, beside what the live service tells."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from realtime_server.http.service import FileService


class FilesCollector:
    """A collector for the live service's registry; see prometheus_client."""

    def __init__(self, service: FileService) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Return nothing: names are not needed beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read what the service knows."""
        service, counts = self._service, self._service.counts
        name = "realtime_server_files"
        yield GaugeMetricFamily(name, "Requests with recordings, and connections to /ws", service.running)
        held = "Audio of recordings in memory"
        yield GaugeMetricFamily(f"{name}_held_seconds", held, service.audio.held_s)
        yield CounterMetricFamily(f"{name}_audio_seconds", "Audio of recordings transcribed", counts.audio_s)
        ends = CounterMetricFamily(f"{name}_done", "Recordings, by what became of them", labels=("outcome",))
        for outcome in ("transcribed", "failed", "cancelled", "refused"):
            ends.add_metric((outcome,), getattr(counts, outcome))
        yield ends

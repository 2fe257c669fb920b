"""Memory of a server to which a long recording is posted: the most that its process and its decoder occupied.

A server is started for each case, without and with speakers. The kernel keeps the highest mark of every process, and
a server keeps its decoder for the next recording; so one look at the end sees everything.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from contextlib import closing
from typing import Any

from benchmarks import corpus
from benchmarks.posting import HEADERS, files_host, form_of, wav_of
from realtime_server.bench.figures import Report
from realtime_server.bench.machine import Watch, cpu_s, descendants, peak_mb, rss_mb
from realtime_server.bench.serving import ServerError, served
from realtime_server.offline.audio_file import read_recording

ENGINES = ("fake", "embedded")
CASES = {
    "off": ("without speakers",),
    "on": ("with speakers",),
    "both": ("without speakers", "with speakers"),
}
MOST_MB = (1 << 30) / 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--engine", choices=ENGINES, default="fake", help="default: %(default)s")
    add("--hours", type=float, default=2.0, help="of audio (default: %(default)g)")
    add("--speakers", choices=list(CASES), default="both", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> Report:
    """Measure on the fetched recordings, again and again."""
    watch = Watch()
    report = Report("memory", f"{arguments.engine}, a recording of {arguments.hours:g} hours")
    spoken = [read_recording(each.path) for each in corpus.fetched()]
    wav = wav_of(corpus.repeated(spoken, 3600 * arguments.hours))
    for case in CASES[arguments.speakers]:
        _add(report, case, arguments.engine, wav)
    report.notes.append(
        f"a WAV file of {len(wav) / 1e6:.0f} MB, posted to /asr, word times included; models and libraries are in the\n"
        "figures of the server; what processes share counts for each"
    )
    report.conditions = watch.conditions()
    return report


def _add(report: Report, case: str, engine: str, wav: bytes) -> None:
    speakers = case == "with speakers"
    flags = ["--engine", engine, "--http-port", "0", *["--speakers"] * speakers]
    with served(flags) as server:
        idle_mb, began_s = rss_mb(server.pid), time.monotonic()
        answer = _post(files_host(server), form_of(wav, {"spk": str(speakers).lower()}))
        took_s = time.monotonic() - began_s
        most_mb, used_s = peak_mb(server.pid), cpu_s(server.pid)
        decoders_mb = sum(map(peak_mb, descendants(server.pid)))
    segments = answer["segments"]
    add = report.add
    add("server before", idle_mb, "MB", case=case)
    add("server, most", most_mb, "MB", at_most=MOST_MB, case=case)
    add("its decoder, most", decoders_mb, "MB", case=case)
    add("segments", len(segments), case=case)
    add("of them failed", sum("failed" in each.get("flags", ()) for each in segments), at_most=0, case=case)
    if speakers:
        add("speakers", len({each["speaker"] for each in segments}), case=case)
    add("time", took_s, "s", case=case)
    add("server CPU, start included", used_s, "s", case=case)


def _post(host: str, form: bytes) -> dict[str, Any]:
    with closing(http.client.HTTPConnection(host)) as connection:
        connection.request("POST", "/asr", form, HEADERS)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != http.client.OK:
        raise ServerError(f"the recording was refused: {answer.status} {body[:200]!r}")
    told: dict[str, Any] = json.loads(body)
    return told

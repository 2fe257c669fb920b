"""Silence schedules and endpointing options: what they read, what they refuse."""

from __future__ import annotations

import pytest

from realtime_server.core.endpointing_options import (
    LIVE_SCHEDULE,
    OFFLINE_SCHEDULE,
    EndpointingOptions,
    ReferenceCounting,
    SilenceSchedule,
)
from realtime_server.errors import ConfigurationError


def test_the_last_millisecond_of_a_row_belongs_to_it() -> None:
    assert LIVE_SCHEDULE.silence_ms(5000) == 2000
    assert LIVE_SCHEDULE.silence_ms(5000.001) == 1500
    assert LIVE_SCHEDULE.silence_ms(10**9) == 100


def test_speech_longer_than_every_row_takes_the_last() -> None:
    assert SilenceSchedule.parse("5000:2000,10000:500").silence_ms(11_000) == 500


def test_tables() -> None:
    assert LIVE_SCHEDULE.rows == (
        (5000, 2000), (10_000, 1500), (15_000, 1000), (30_000, 800), (45_000, 400), (float("inf"), 100),
    )  # fmt: skip
    assert OFFLINE_SCHEDULE.rows == (
        (10_000, 2000), (20_000, 1000), (30_000, 800), (45_000, 600), (50_000, 400), (60_000, 200),
        (float("inf"), 100),
    )  # fmt: skip


def test_where_a_schedule_cannot_be_borne_a_fixed_silence_ends_segments() -> None:
    dynamic = EndpointingOptions(silence_ms=700, eager_ms=None, reference=ReferenceCounting(idle_counts=True))
    assert dynamic.fitting(schedule=True) == dynamic
    assert dynamic.fitting(schedule=False) == EndpointingOptions("fixed", silence_ms=700, eager_ms=None)
    for mode in ("fixed", "client"):
        other = EndpointingOptions(mode)
        assert other.fitting(schedule=False) == other


def test_a_schedule_from_pairs_equals_one_from_text() -> None:
    pairs = SilenceSchedule.parse([(5000, 1500), (20000, 800), (float("inf"), 300)])
    assert pairs == SilenceSchedule.parse("5000:1500, 20000:800 ,inf:300")
    assert pairs == SilenceSchedule.parse([["5000", 1500], [20000.0, "800"], ["inf", 300]])


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "LENGTH_MS:SILENCE_MS"),
        ("5000", "LENGTH_MS:SILENCE_MS"),
        ("5000:1:2", "LENGTH_MS:SILENCE_MS"),
        ("five:2000", "LENGTH_MS:SILENCE_MS"),
        ([5000, 2000], "LENGTH_MS:SILENCE_MS"),
        ([(5000, float("inf"))], "LENGTH_MS:SILENCE_MS"),
        ([], "rising"),
        ("5000:2000,5000:1000", "rising"),
        ("inf:2000,5000:1000", "rising"),
        ("0:2000", "rising"),
        ("nan:2000", "not a number"),
        ("5000:2000,inf:90", "at least 100"),
    ],
)
def test_schedules_that_cannot_work_are_refused(source: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        SilenceSchedule.parse(source)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("dynamic", EndpointingOptions()),
        (
            " dynamic:5000:2000,inf:500 ",
            EndpointingOptions(schedule=SilenceSchedule.parse("5000:2000,inf:500")),
        ),
        ("fixed:600", EndpointingOptions(mode="fixed", silence_ms=600)),
        ("client", EndpointingOptions(mode="client")),
    ],
)
def test_options_from_text(text: str, options: EndpointingOptions) -> None:
    assert EndpointingOptions.parse(text) == options


@pytest.mark.parametrize(
    "text", ["", "fixed", "fixed:", "fixed:0.6", "fixed:-600", "client:600", "static", "fixed:²"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected dynamic, "):
        EndpointingOptions.parse(text)


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"mode": "static"}, "expected dynamic, fixed or client"),
        ({"mode": "fixed", "silence_ms": 99}, "at least 100"),
        ({"max_segment_ms": 999}, "at least 1000"),
        ({"eager_ms": 169}, "at least 170"),
        ({"reference": ReferenceCounting(idle_counts=True)}, "eager_ms None"),
        (
            {"reference": ReferenceCounting(idle_counts=True), "mode": "fixed", "eager_ms": None},
            "mode dynamic",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(kwargs: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        EndpointingOptions(**kwargs)  # type: ignore[arg-type]

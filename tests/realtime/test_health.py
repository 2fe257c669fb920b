"""When the recognizer counts as broken, and when it is believed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from realtime_server.core.jobs import (
    ClusterJob,
    DecodeJob,
    DecodingOptions,
    EmbedJob,
    Priority,
    ScoreJob,
    WaitJob,
)
from realtime_server.errors import EngineError, EngineTimeoutError, UnsupportedError
from realtime_server.realtime.health import FAILURES, FORGOTTEN_S, Health

AUDIO = np.zeros(160, np.float32)
DECODE = DecodeJob(0, "s", 1, 0, "final", Priority.FINAL, 0, 0, 160, AUDIO, "", DecodingOptions())
SCORE = ScoreJob(1, "s", 1, 0, AUDIO, first=True, last=False)
BROKEN = EngineError("broken")


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def failing(clock: Clock | None = None) -> Health:
    health = Health(clock or Clock())
    for _ in range(FAILURES):
        assert health.problem is None
        health.observe(DECODE, EngineTimeoutError("no answer"))
    assert health.problem == "the recognizer failed 3 times in a row"
    return health


def test_some_failures_in_a_row_are_a_problem_and_one_answer_ends_it() -> None:
    health = failing()
    health.observe(DECODE, None)
    assert health.problem is None
    health.observe(DECODE, BROKEN)
    assert health.problem is None


def test_answers_of_the_scorer_say_nothing_about_the_recognizer() -> None:
    health = failing()
    health.observe(SCORE, None)
    assert health.problem
    health.observe(DECODE, None)
    for _ in range(FAILURES):
        health.observe(SCORE, BROKEN)
    assert health.problem == "voice activity detection failed 3 times in a row"


def test_a_refused_request_is_no_failure() -> None:
    health = Health(Clock())
    for _ in range(FAILURES):
        health.observe(DECODE, UnsupportedError("no such language"))
    assert health.problem is None


def test_a_recording_says_nothing_about_the_recognizer_of_those_who_speak() -> None:
    """Neither its failures nor its answers."""
    of_a_file = replace(DECODE, priority=Priority.FILE)
    health = Health(Clock())
    for _ in range(2 * FAILURES):
        health.observe(of_a_file, BROKEN)
    assert health.problem is None
    health = failing()
    health.observe(of_a_file, None)
    assert health.problem


def test_when_nobody_has_asked_for_a_while_the_problem_is_forgotten() -> None:
    clock = Clock()
    health = failing(clock)
    clock.now_s += FORGOTTEN_S
    assert health.problem
    clock.now_s += 1
    assert health.problem is None
    health.observe(DECODE, BROKEN)
    assert health.problem


def test_speakers_may_fail_without_the_recognizer_being_broken() -> None:
    health = Health(Clock())
    cluster = ClusterJob(2, "s", 1, 0, (), np.zeros((0, 8), np.float32), final=False)
    for job in (EmbedJob(1, "s", 1, 0, 0, (), ()), cluster, WaitJob(3, "s", 1, 0, 300)):
        for _ in range(FAILURES):
            health.observe(job, BROKEN)
    assert health.problem is None

"""Whether the recognizer answers, judged by what became of the sessions' jobs.

A recording's decodes do not count, whether they fail or not: several fail together for one recording's bad audio,
which is no reason to turn speakers away. An engine that is dead, or answers nobody, is noticed without: see
Engine.healthy and Dispatcher.problem.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from realtime_server.core.jobs import DecodeJob, Job, Priority, ScoreJob
from realtime_server.errors import EngineError, UnsupportedError

FAILURES = 3  # in a row: one may be the audio's fault, three are not
FORGOTTEN_S = 30.0


class Health:
    """`problem` says what is wrong: the last jobs of one kind all failed, the latest not long ago.

    It is forgotten after FORGOTTEN_S without a job: a load balancer that sends nobody because of it must try
    again some time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = {"the recognizer": 0, "voice activity detection": 0}  # in a row
        self._failed_s = 0.0

    def observe(self, job: Job, error: EngineError | None) -> None:
        """A job was answered; a refused request says nothing about the engine."""
        if isinstance(error, UnsupportedError) or not isinstance(job, DecodeJob | ScoreJob):
            return  # speakers may fail: recognition goes on without
        if isinstance(job, DecodeJob) and job.priority == Priority.FILE:
            return
        kind = "the recognizer" if isinstance(job, DecodeJob) else "voice activity detection"
        self._failures[kind] = self._failures[kind] + 1 if error else 0
        if error:
            self._failed_s = self._clock()

    @property
    def problem(self) -> str | None:
        """One sentence for operators, or None."""
        if self._clock() - self._failed_s > FORGOTTEN_S:
            return None
        bad = (f"{kind} failed {n} times in a row" for kind, n in self._failures.items() if n >= FAILURES)
        return next(bad, None)

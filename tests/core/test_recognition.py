"""One segment's way to its text: partials, eager finals, retries and fallbacks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, DecodingOptions, Finish, Priority
from realtime_server.core.partials import PartialPlanner
from realtime_server.core.recognition import Recognition
from realtime_server.core.segments import Word
from realtime_server.core.settings import Pace
from realtime_server.errors import EngineError, EngineTimeoutError

S = 16_000
PROVEN = "当然可以。目前我们已经完成了第一阶段的调查研究工作。"


class Bench:
    """A Recognition that starts at sample 0, with what it asked for."""

    def __init__(self, *, continues: bool = False) -> None:
        self.jobs: list[DecodeJob] = []
        self.cancelled: list[DecodeJob] = []
        self.hastened: list[DecodeJob] = []
        self._ids = itertools.count()
        planner = PartialPlanner(0, pace=Pace(), window_s=8.0, find_quiet=lambda first, last: last)
        self.it = Recognition(
            0, 0, 0, planner=planner, submit=self._submit, cancel=self.cancelled.append,
            hasten=self.hastened.append, continues=continues,
        )  # fmt: skip

    def _submit(self, kind: DecodeKind, priority: Priority, start: int, end: int, prefix: str) -> DecodeJob:
        audio = np.zeros(end - start, np.float32)
        job = DecodeJob(
            next(self._ids), "s", 1, 0, kind, priority, 0, start, end, audio, prefix, DecodingOptions()
        )
        self.jobs.append(job)
        return job

    def partial(self, text: str, seconds: float) -> None:
        """A partial up to `seconds` is asked for and answered."""
        self.it.receive_position(round(seconds * S), load_ms=0)
        assert self.jobs[-1].kind == "partial"
        self.it.receive_decoded(self.jobs[-1], Decoded(text))

    def close(self, seconds: float, heard_until: float | None = None) -> None:
        until = seconds if heard_until is None else heard_until
        self.it.receive_close(
            0, round(seconds * S), heard_until=round(until * S), noticed=round((until + 0.5) * S)
        )

    def final(self, answer: Decoded | str) -> None:
        self.it.receive_decoded(self.jobs[-1], Decoded(answer) if isinstance(answer, str) else answer)

    @property
    def asked(self) -> list[tuple[str, int]]:
        return [(job.kind, int(job.priority)) for job in self.jobs]


def test_from_partials_to_the_final() -> None:
    bench = Bench()
    bench.partial("hello", 0.5)
    assert (bench.it.shown, bench.it.covered) == ("hello", S // 2)
    bench.partial("hello world", 1.5)
    bench.close(2.0)
    bench.final("Hello, world.")
    assert bench.it.settled
    assert (bench.it.settled.text, bench.it.settled.flags) == ("Hello, world.", ())
    assert bench.asked == [("partial", 2), ("partial", 3), ("final", 0)]


def test_partials_continue_their_stable_text_and_finals_are_free() -> None:
    bench = Bench(continues=True)
    bench.partial("one two", 0.5)
    bench.partial("one two three", 1.5)
    bench.partial("one two three four", 2.5)
    bench.it.receive_pause(3 * S, eager=True)
    bench.it.receive_resume()
    bench.close(4.0)
    assert [job.prefix_text for job in bench.jobs] == ["", "", "one two", "", ""]


def test_a_later_window_has_no_known_beginning() -> None:
    bench = Bench(continues=True)
    for second in range(1, 12):
        bench.partial("one two", second)
    assert bench.jobs[7].prefix_text == "one two"
    assert bench.jobs[-1].start > 0
    assert bench.jobs[-1].prefix_text == ""


def test_a_partial_in_flight_is_cancelled_when_the_segment_closes() -> None:
    bench = Bench()
    bench.it.receive_position(S, load_ms=0)
    bench.close(1.5)
    assert [job.kind for job in bench.cancelled] == ["partial"]


def test_in_a_pause_the_whole_is_decoded_eagerly_and_nothing_else() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    bench.it.receive_position(2 * S, load_ms=0)
    assert bench.asked == [("eager", 1)]
    assert (bench.jobs[0].start, bench.jobs[0].end) == (0, S)


def test_the_eager_text_is_shown_and_becomes_the_final() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    bench.final(Decoded("Yes.", words=(Word("Yes.", 0, 500),), language="en"))
    assert (bench.it.shown, bench.it.covered, bench.it.settled) == ("Yes.", S, None)
    bench.close(1.0)
    assert bench.it.settled
    assert bench.it.settled.text == "Yes."
    assert bench.it.settled.words == (Word("Yes.", 0, 500),)
    assert len(bench.jobs) == 1


def test_what_windows_settled_does_not_change_in_a_pause_and_back() -> None:
    bench = Bench()
    bench.it.receive_position(round(8.1 * S), load_ms=0)
    bench.it.receive_decoded(bench.jobs[-1], Decoded("享受着凉爽的秋风。"))
    bench.partial("黄昏", 9.0)
    bench.it.receive_pause(10 * S, eager=True)
    bench.final("享受着这两爽的秋风。黄昏时分")
    assert (bench.it.shown, bench.it.covered) == ("享受着凉爽的秋风。黄昏时分", 10 * S)
    bench.it.receive_resume()
    bench.partial("黄昏时分，街道", 11.0)
    assert bench.it.shown == "享受着凉爽的秋风。黄昏时分，街道"
    bench.it.receive_pause(12 * S, eager=True)
    bench.final("享受着这两爽的秋风。黄昏时分，街道上")
    bench.close(12.0)
    assert bench.it.settled
    assert bench.it.settled.text == "享受着这两爽的秋风。黄昏时分，街道上"


def test_an_eager_decode_that_still_runs_when_the_endpoint_confirms_is_the_final() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    assert not bench.hastened
    bench.close(1.0)
    assert bench.it.settled is None
    assert bench.hastened == bench.jobs
    bench.final("Yes.")
    assert bench.it.settled
    assert (bench.it.settled.eager, bench.it.settled.noticed) == (True, S + S // 2)
    assert len(bench.jobs) == 1


def test_where_nothing_can_be_hastened_an_eager_decode_is_waited_for() -> None:
    jobs: list[DecodeJob] = []
    other = Bench()
    planner = PartialPlanner(0, pace=Pace(), window_s=8.0, find_quiet=lambda first, last: last)

    def submit(*wish: Any) -> DecodeJob:
        jobs.append(other._submit(*wish))
        return jobs[-1]

    it = Recognition(0, 0, 0, planner=planner, submit=submit, cancel=jobs.remove)
    it.receive_pause(S, eager=True)
    it.receive_close(0, S, heard_until=S)
    it.receive_decoded(jobs[0], Decoded("Yes."))
    assert it.settled
    assert (it.settled.text, it.settled.noticed) == ("Yes.", S)


def test_a_partial_whose_turn_comes_late_covers_what_was_heard_meanwhile() -> None:
    bench = Bench()
    bench.it.receive_position(S, load_ms=0)
    asked = bench.jobs[0]
    assert bench.it.receive_turn(asked, 3 * S) == 3 * S
    bench.it.receive_decoded(replace(asked, end=3 * S), Decoded("one two three"))
    assert (bench.it.shown, bench.it.covered) == ("one two three", 3 * S)
    assert bench.it.receive_turn(asked, 4 * S) == S
    bench.close(4.0)
    assert bench.it.folded == 3


def test_when_speech_resumes_the_eager_decode_is_discarded() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    bench.it.receive_resume()
    assert [job.kind for job in bench.cancelled] == ["eager"]
    bench.it.receive_pause(3 * S, eager=True)
    bench.final("Yes and no.")
    bench.it.receive_resume()
    bench.close(4.0)
    assert bench.asked[-1] == ("final", 0)
    assert len(bench.cancelled) == 1


def test_an_eager_decode_of_other_samples_is_not_the_final() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    bench.close(1.5)
    assert [job.kind for job in bench.cancelled] == ["eager"]
    assert bench.asked[-1] == ("final", 0)


def test_without_an_eager_decode_a_pause_still_shows_its_last_words() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=False)
    bench.partial("hello", 1.5)
    bench.it.receive_position(3 * S, load_ms=0)
    assert len(bench.jobs) == 1


def test_an_older_partial_does_not_replace_what_covers_more() -> None:
    bench = Bench()
    bench.it.receive_position(S, load_ms=0)
    bench.it.receive_pause(2 * S, eager=True)
    bench.it.receive_decoded(bench.jobs[1], Decoded("Whole sentence."))
    bench.it.receive_decoded(bench.jobs[0], Decoded("whole"))
    assert bench.it.shown == "Whole sentence."


def test_a_failed_partial_changes_nothing() -> None:
    bench = Bench()
    bench.it.receive_position(S, load_ms=0)
    bench.it.receive_failure(bench.jobs[0], EngineError("broken"))
    assert (bench.it.shown, bench.it.settled) == ("", None)
    bench.partial("hello", 2.0)
    assert bench.it.shown == "hello"


def test_a_failed_eager_decode_is_replaced_by_a_final() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    bench.close(1.0)
    bench.it.receive_failure(bench.jobs[0], EngineError("broken"))
    bench.final("Yes.")
    assert bench.it.settled
    assert bench.asked == [("eager", 1), ("final", 0)]


def test_an_eager_decode_that_fails_before_the_endpoint_leaves_the_final_to_do() -> None:
    bench = Bench()
    bench.it.receive_pause(S, eager=True)
    bench.it.receive_failure(bench.jobs[0], EngineError("broken"))
    bench.close(1.0)
    assert bench.asked == [("eager", 1), ("final", 0)]


def test_a_failed_final_is_tried_once_more() -> None:
    bench = Bench()
    bench.close(1.0)
    bench.it.receive_failure(bench.jobs[0], EngineError("broken"))
    assert bench.it.settled is None
    bench.final("Yes.")
    assert bench.it.settled
    assert bench.it.settled.text == "Yes."


def test_twice_failed_the_partial_that_covers_everything_stands_in() -> None:
    bench = Bench()
    bench.partial("hello world", 1.5)
    bench.close(1.0, heard_until=2.0)
    bench.it.receive_failure(bench.jobs[-1], EngineError("broken"))
    bench.it.receive_failure(bench.jobs[-1], EngineError("broken"))
    assert bench.it.settled
    assert (bench.it.settled.text, bench.it.settled.flags) == ("hello world", ("recovered",))
    assert bench.it.settled.error is None


def test_twice_failed_a_partial_of_a_part_is_kept_but_the_sentence_failed() -> None:
    bench = Bench()
    bench.partial("hello", 0.5)
    bench.close(2.0)
    bench.it.receive_failure(bench.jobs[-1], EngineError("broken"))
    bench.it.receive_failure(bench.jobs[-1], EngineError("broken"))
    assert bench.it.settled
    assert (bench.it.settled.text, bench.it.settled.flags) == ("hello", ("failed",))
    assert bench.it.settled.error == "broken"


def test_a_partial_that_reaches_into_the_next_segment_does_not_stand_in() -> None:
    bench = Bench()
    bench.partial("one two", 1.0)
    bench.partial("one two three", 2.0)
    bench.close(1.5, heard_until=1.5)
    bench.it.receive_failure(bench.jobs[-1], EngineError("broken"))
    bench.it.receive_failure(bench.jobs[-1], EngineError(""))
    assert bench.it.settled
    assert (bench.it.settled.text, bench.it.settled.flags) == ("one two", ("failed",))
    assert bench.it.settled.error == "EngineError"


def test_after_a_timeout_there_is_no_second_try() -> None:
    bench = Bench()
    bench.close(1.0)
    bench.it.receive_failure(bench.jobs[0], EngineTimeoutError("no answer"))
    assert bench.it.settled
    assert bench.it.settled.flags == ("failed",)
    assert len(bench.jobs) == 1


@pytest.mark.parametrize("eager", [False, True])
def test_the_decode_that_is_to_be_the_final_is_tried_twice_but_waited_for_once(eager: bool) -> None:
    def closed() -> Bench:
        bench = Bench()
        if eager:
            bench.it.receive_pause(S, eager=True)
        bench.close(1.0)
        return bench

    broken, late = closed(), closed()
    broken.it.receive_failure(broken.jobs[0], EngineError("broken"))
    broken.it.receive_failure(broken.jobs[1], EngineError("broken"))
    late.it.receive_failure(late.jobs[0], EngineTimeoutError("no answer"))
    for bench, tries in ((broken, 2), (late, 1)):
        assert bench.it.settled
        assert bench.it.settled.flags == ("failed",)
        assert len(bench.jobs) == tries


@pytest.mark.parametrize(
    ("final", "finish"),
    [
        ("当然可以。", "stop"),
        ("好", "stop"),
        ("好，拜拜。" * 80, "stop"),
        ("好，拜拜。" * 80, "length"),
        ("", "stop"),
        ("", "gated"),
    ],
)
def test_a_final_that_lost_what_was_proven_keeps_it(final: str, finish: Finish) -> None:
    bench = Bench()
    bench.partial(PROVEN, 5.0)
    bench.partial(PROVEN, 6.0)
    bench.close(6.0)
    bench.final(Decoded(final, words=(Word("当", 0, 100),), finish=finish))
    assert bench.it.settled
    assert (bench.it.settled.text, bench.it.settled.flags) == (PROVEN, ("recovered",))
    assert bench.it.settled.words == ()


def test_a_final_at_its_token_limit_is_marked() -> None:
    bench = Bench()
    bench.close(6.0)
    bench.final(Decoded("a long text", finish="length"))
    assert bench.it.settled
    assert (bench.it.settled.text, bench.it.settled.flags) == ("a long text", ("truncated",))


def test_answers_to_jobs_nobody_waits_for_are_ignored() -> None:
    bench = Bench()
    bench.it.receive_position(S, load_ms=0)
    stale = bench.jobs[0]
    bench.it.receive_decoded(stale, Decoded("one"))
    bench.it.receive_decoded(stale, Decoded("two"))
    bench.it.receive_failure(stale, EngineError("broken"))
    assert bench.it.shown == "one"
    assert bench.it.settled is None

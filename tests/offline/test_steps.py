"""Work in steps gives what it gives at once, however it is divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from realtime_server.offline.cues import cues
from realtime_server.offline.steps import Steps, advance, finish
from realtime_server.offline.subtitles import srt, srt_steps, vtt, vtt_steps
from realtime_server.offline.transcription import Transcription
from tests.offline.transcriptions import ENGLISH, sentence, transcription


def counting(steps: int, done: list[int]) -> Steps[str]:
    for number in range(steps):
        done.append(number)
        yield
    return "all"


def test_all_of_it() -> None:
    done: list[int] = []
    assert finish(counting(3, done)) == "all"
    assert done == [0, 1, 2]


@pytest.mark.parametrize(("for_s", "calls"), [(0.0, 4), (60.0, 1)])
def test_a_while_of_it(for_s: float, calls: int) -> None:
    done: list[int] = []
    work = counting(3, done)
    found = [advance(work, for_s) for _ in range(calls)]
    assert found == [None] * (calls - 1) + [("all",)]
    assert done == [0, 1, 2]


def test_cues_are_cut_in_steps_of_one_sentence() -> None:
    whole = transcription(*(sentence(ENGLISH, 9000 * n, 9000 * n + 8000) for n in range(5)))
    work, steps = cues(whole), 0
    while (found := advance(work, 0.0)) is None:
        steps += 1
    assert found == (finish(cues(whole)),)
    assert steps == len(whole.sentences) + len(found[0])


@pytest.mark.parametrize(("in_steps", "at_once"), [(srt_steps, srt), (vtt_steps, vtt)])
def test_subtitles_are_written_in_steps_of_one_cue(
    in_steps: Callable[[Transcription], Steps[str]], at_once: Callable[[Transcription], str]
) -> None:
    whole = transcription(*(sentence(ENGLISH, 9000 * n, 9000 * n + 8000) for n in range(5)))
    work, steps = in_steps(whole), 0
    while (found := advance(work, 0.0)) is None:
        steps += 1
    assert found == (at_once(whole),)
    assert steps == len(whole.sentences) + 2 * found[0].count("-->")

"""What the clients of a load say: somebody who talks on and on, or one side of a call.

Every stream begins with another utterance of the recording, so that what is said differs. A stream is divided into
takes, each of which ends right behind a word: there STOP is sent, before any pause could be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from realtime_server.bench import speech
from realtime_server.bench.speech import Recording

LEAD_MS = 600  # of silence before the first word
CALL_SHARE = 0.45  # of a call that one side speaks
CALL_LEAD_MS = (300, 4000)  # of the other side, before
TURN_MS = (2000, 8000)  # how long somebody speaks before the other side does
PAUSE_SPREAD = (0.5, 1.5)  # of the pause that would bring the share to CALL_SHARE
SHORTEST_PAUSE_MS = 300


def talks(recording: Recording, ms: int) -> Iterator[Recording]:
    """The recording from each of its utterances on, again and again: speech and its own pauses."""
    for start, _ in recording.spells:
        turned = recording.from_on(max(0, start - speech.EDGE_MS))
        whole = speech.join([speech.quiet(LEAD_MS), *[turned] * (ms // recording.ms + 1)])
        yield whole.cut(0, ms)


def calls(recording: Recording, ms: int) -> Iterator[Recording]:
    """Turns of the recording from each of its utterances on, and silence while the other side speaks."""
    for number in range(len(recording.spells)):
        yield _call(recording, number, ms)


LOADS: dict[str, Callable[[Recording, int], Iterator[Recording]]] = {"talk": talks, "call": calls}


def divide(stream: Recording, every_ms: int) -> list[Recording]:
    """Takes of at least this length, but for the last; what follows the last word is left out."""
    takes, begin = [], 0
    for number, (_, end) in enumerate(stream.spells, start=1):
        if end - begin >= every_ms or number == len(stream.spells):
            takes.append(stream.cut(begin, end))
            begin = end
    return takes


def _call(recording: Recording, number: int, ms: int) -> Recording:
    draw, spells = np.random.default_rng(number), recording.spells
    parts = [speech.quiet(int(draw.integers(*CALL_LEAD_MS)))]
    length_ms, spoken_ms = 0, 0  # behind the first pause
    while length_ms < ms:
        last, until_ms = number, spells[number][0] + int(draw.integers(*TURN_MS))
        while last + 1 < len(spells) and spells[last + 1][1] <= until_ms:
            last += 1
        begin, end = spells[number][0] - speech.EDGE_MS, spells[last][1] + speech.EDGE_MS
        turn, number = recording.cut(max(0, begin), min(recording.ms, end)), (last + 1) % len(spells)
        spoken_ms += turn.spoken_ms
        owed_ms = spoken_ms / CALL_SHARE - length_ms - turn.ms
        pause = speech.quiet(max(SHORTEST_PAUSE_MS, int(owed_ms * draw.uniform(*PAUSE_SPREAD))))
        parts += [turn, pause]
        length_ms += turn.ms + pause.ms
    return speech.join(parts).cut(0, ms)

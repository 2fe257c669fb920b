"""What people say who take turns with their server: an utterance or two, then STOP, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_server.bench import speech, swarm

PAUSE_MS = 1600  # before every utterance: long enough to lock the one before, at the end of its silence
PER_TAKE = 2  # utterances before a STOP


def takes_of_turns(parts: Sequence[speech.Recording], speaker: int, seconds: float) -> list[swarm.Take]:
    """What one speaker says: the same utterances as the others, from another one on."""
    takes: list[swarm.Take] = []
    place, said_ms = speaker * 5, 0
    while said_ms < 1000 * seconds:
        some = [parts[(place + n) % len(parts)] for n in range(PER_TAKE)]
        spoken = speech.with_pauses(some, PAUSE_MS)
        takes.append(swarm.take(spoken))
        place, said_ms = place + PER_TAKE, said_ms + spoken.ms
    return takes

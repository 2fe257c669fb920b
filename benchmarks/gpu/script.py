"""What is "said" where the weights are random: so many tokens per second of audio, and texts that grow as partials do.

Random weights never say the same of more audio, so that no beginning of theirs becomes stable, and their answers end
anywhere. So the number of tokens is fixed, and what a decode is taken to have said is scripted: one sign for each
token, the same for the same place of a segment, but for the last few of a partial, which differ with its end.
"""

from __future__ import annotations

import math

from realtime_server.core.segments import FRAME, SAMPLE_RATE

TOKENS_PER_S = 4.5  # of Mandarin, read
UNSTABLE = 2  # signs at the end of a partial that the next one has otherwise
SIGNS = tuple(chr(0x4E00 + number) for number in range(200))  # each is one token and, by itself, a word


def tokens(samples: int) -> int:
    """What so much audio has."""
    return max(1, math.ceil(TOKENS_PER_S * samples / SAMPLE_RATE))


def places(samples: int, *, seed: int = 0, unstable_at: int | None = None) -> list[int]:
    """What is said in so many samples, as places in SIGNS, one for each token.

    seed: whose speech it is.  unstable_at: the sample at which a partial ends.
    """
    said = [(seed + number) % len(SIGNS) for number in range(tokens(samples))]
    if unstable_at is not None:
        shift = 50 + unstable_at // FRAME % 100  # never a whole round
        said[-UNSTABLE:] = [(place + shift) % len(SIGNS) for place in said[-UNSTABLE:]]
    return said


def text(samples: int, *, seed: int = 0, unstable_at: int | None = None) -> str:
    """The same as text."""
    return "".join(SIGNS[place] for place in places(samples, seed=seed, unstable_at=unstable_at))

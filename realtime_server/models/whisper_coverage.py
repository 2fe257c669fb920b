"""Whether a text covers its audio, and where to cut the audio if it does not.

Where the voice changes behind a pause, the decoder may begin with what follows, or end with what went before: the
text is fluent and its probabilities are high, but seconds of speech are missing. Such a text is thin for its audio,
and its words leave sound uncovered. Each part decoded by itself is heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from realtime_server.core.audio import AudioBuffer
from realtime_server.core.jobs import Decoded, Samples
from realtime_server.core.partials import join_texts
from realtime_server.core.segments import HOP, SAMPLE_RATE, Word, to_ms
from realtime_server.core.stabilization import letters, spoken_size

Voiced = NDArray[np.bool_]  # whether there is sound, per 10 ms
Gap = tuple[int, int]  # samples [start, end) to which no word belongs

HOP_MS = to_ms(HOP)
LOUD = 95  # percent of the audio are quieter than what counts as loud ...
FAINT = 0.001  # ... and there is no voice below this share of its power: 30 dB
SMOOTHED = 5  # times 10 ms over which power is averaged
THIN_PER_S = 4.5  # tokens per second of sound: half of the unhurried English texts are looked at
LOST_S = 2.0  # of sound without words; word times of whole texts leave up to 1.3 s
NEAR = 2 * SAMPLE_RATE  # how far from a gap's edge the quietest place may be
SHORTEST = SAMPLE_RATE  # of a part


def voiced(audio: Samples) -> Voiced:
    """Where there is sound, relative to how loud the audio is."""
    power = np.square(audio[: len(audio) // HOP * HOP].reshape(-1, HOP)).mean(axis=1)
    if len(power) < SMOOTHED:
        return np.zeros(len(power), np.bool_)
    smooth = np.convolve(power, np.full(SMOOTHED, 1 / SMOOTHED), mode="same")
    return np.asarray(smooth > FAINT * np.percentile(smooth, LOUD))


def usual_tokens(sound: Voiced) -> float:
    """Tokens of a text that covers so much sound; one that has fewer is looked at. 0 if too little to lose."""
    seconds = _seconds(sound)
    return THIN_PER_S * seconds if seconds > LOST_S else 0.0


def gaps(words: Sequence[Word], sound: Voiced) -> list[Gap]:
    """Where more than LOST_S of sound lie between words, or before the first, or behind the last."""
    edges = [0, *(time // HOP_MS for word in words for time in (word.start_ms, word.end_ms)), len(sound)]
    return [
        (start * HOP, end * HOP)
        for start, end in zip(edges[::2], edges[1::2], strict=True)
        if _seconds(sound[start:end]) > LOST_S
    ]


def parts(audio: Samples, lost: Sequence[Gap]) -> list[Gap]:
    """All of the audio in parts, cut in the quietest place near each edge of the gaps."""
    kept = AudioBuffer()
    kept.append(audio)
    ends = (0, len(audio) // HOP * HOP)
    cuts = [0]
    for edge in (edge for gap in lost for edge in gap):
        first = max(edge - NEAR, cuts[-1] + SHORTEST)
        last = min(edge + NEAR, len(audio) - SHORTEST)
        if edge not in ends and first < last:
            cuts.append(kept.quietest(first, last))
    return list(pairwise([*cuts, len(audio)]))


def says_more(apart: str, whole: str) -> bool:
    """Whether the text of the parts has more letters than that of the whole."""
    return spoken_size(letters(apart)) > spoken_size(letters(whole))


def joined(answers: Sequence[Decoded], spans: Sequence[Gap]) -> Decoded:
    """One answer of those to the parts of an audio; "length" if one of them says nothing of what it takes for speech.

    The language is that of the part which says most.
    """
    timed = [
        word.shifted(to_ms(start))
        for answer, (start, _) in zip(answers, spans, strict=True)
        for word in answer.words or ()
    ]
    scores = [score for answer in answers for score in answer.token_logprobs or ()]
    mute = any(answer.finish != "gated" and not answer.text for answer in answers)
    return Decoded(
        join_texts(answer.text for answer in answers),
        words=tuple(timed) if any(answer.words is not None for answer in answers) else None,
        token_logprobs=tuple(scores)
        if any(answer.token_logprobs is not None for answer in answers)
        else None,
        language=max(answers, key=lambda answer: len(answer.text)).language,
        finish="length" if mute or any(answer.finish == "length" for answer in answers) else "stop",
    )


def _seconds(sound: Voiced) -> float:
    return float(np.count_nonzero(sound)) * HOP / SAMPLE_RATE

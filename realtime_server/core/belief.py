"""Which clusters of a channel's windows are believed to be speakers, and which are only phrases that sound odd.

Theory. What 1.5 s sound like depends on what is said as well as on who says it: by a narrow telephone some phrases are
less like the mean of him who says them (cosines down to 0.14) than other people are. Within hundreds of windows there
are several, and they make a cluster. But a phrase is short, and what is said next is like the rest again, whereas
another person goes on. So a voice must have gone on for LASTING, with no pause and nobody else in between, or be a
good part of all that was heard: somebody who gives many short answers. With less evidence it must be less like the
others: so little that no phrase is (ALIEN), or, while little was heard and odd phrases are few, unlike them (UNLIKE)
in more than one window in a row. What is not believed is the nearest speaker's, until more is heard.

LASTING lies between the longest such phrase, 2.6 s of speech, and the 3 s of a sentence; no phrase of more than a
window that was UNLIKE its speaker came before EARLY. This was measured with eight speakers who said the same for five
minutes, three times each, at changing levels, in noise and by telephone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from realtime_server.core.jobs import Embeddings, Labels, Window
from realtime_server.core.segments import to_samples
from realtime_server.core.speaker_windows import LENGTH, Speech

LASTING = to_samples(2750)  # of speech without a pause, which makes a speaker whatever it is like
EARLY = 120  # windows before which little was heard: 90 s of speech
UNLIKE = 0.35  # likeness to anybody else below which, until then, more than a window in a row is enough
SHARE = 6  # a cluster with this part of the windows is a speaker; of EARLY, if there are fewer
ALIEN = 0.10  # likeness to anybody else that no phrase of theirs has


def believed(
    labels: Labels, embeddings: Embeddings, evidence: Sequence[Window | None], speech: Speech,
    *, known: Iterable[int], least: int,
) -> set[int]:  # fmt: skip
    """Return the `known` clusters and those that are believed to be somebody else, who has `least` windows at least.

    labels, embeddings (n, width): of the windows, in order of time. evidence: the window itself, or None for what
    tells nothing about its cluster, because it has a speaker already. Without known ones the largest cluster is one.
    """
    means = {int(label): _mean(embeddings[labels == label]) for label in np.unique(labels)}
    heard = {
        label: [window if label == at else None for window, at in zip(evidence, labels.tolist(), strict=True)]
        for label in means
    }
    sizes = {label: sum(window is not None for window in windows) for label, windows in heard.items()}
    found = list(known)
    for label in sorted(means, key=lambda label: -sizes[label]):
        if label in found or sizes[label] < least:
            continue
        likeness = max((float(means[label] @ means[other]) for other in found), default=-1.0)
        longest = longest_in_a_row(heard[label], speech)
        if (
            longest >= LASTING
            or SHARE * sizes[label] >= max(len(labels), EARLY)
            or likeness < (UNLIKE if longest > LENGTH and len(labels) < EARLY else ALIEN)
        ):
            found.append(label)
    return set(found)


def longest_in_a_row(windows: Iterable[Window | None], speech: Speech) -> int:
    """Samples of speech without a pause in the longest row of windows, in order of time; None interrupts it."""
    rows = (list(row) for is_one, row in groupby(windows, key=lambda window: window is not None) if is_one)
    spans = ([window for window in row if window] for row in rows)
    return max((speech.longest(span[0].start, span[-1].end) for span in spans), default=0)


def _mean(embeddings: Embeddings) -> Embeddings:
    """Of length 1."""
    total: Embeddings = embeddings.sum(axis=0)
    mean: Embeddings = total / max(float(np.linalg.norm(total)), float(np.finfo(np.float32).tiny))
    return mean

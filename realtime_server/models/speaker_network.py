"""What every speaker network offers, whichever library computes it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

MEL_BINS = 80  # numbers of a frame
CAMPPLUS_FILE = "campplus_cn_en_common.pt"  # as the hub names their weights
ERES2NETV2_FILE = "pretrained_eres2netv2.ckpt"


class SpeakerNetwork(Protocol):
    """Features to embeddings; for one thread at a time."""

    @property
    def width(self) -> int:
        """Numbers of an embedding."""

    @property
    def fewest_frames(self) -> int:
        """Frames that a window needs: there is no standard deviation of what a shorter one leaves."""

    @property
    def channel(self) -> Floats:
        """Directions (n, width), orthonormal, in which a telephone moves every voice; none if they are not known."""

    def embed(self, features: Floats) -> Floats:
        """Embeddings (batch, width), not normalised, of windows (batch, frames, 80) of one length."""

"""Directions in which a telephone moves the embeddings of CAM++, whoever speaks.

A line that carries 300 to 3400 Hz, or 8 kHz coded by mu-law, moves every voice in nearly the same direction, which
makes one speaker two as soon as the line changes, and different speakers alike while it does not. What lies along
these two directions is therefore taken out of every embedding. They were found by scripts/channel_directions.py, from
twelve speakers; other speakers move alike (cosine 0.84 to 0.90 between the directions of two halves of them).

Source: Solomonoff, Campbell, Boardman, "Advances in channel compensation for SVM speaker recognition" (2005), which
calls this nuisance attribute projection.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realtime_server.models.campplus_layout import WIDTH

Floats = NDArray[np.float32]

TABLE = (  # int8, one direction after the other
    "Qi7OEhg77O36GUPP8tpYzTvzwsXRCeLJGds9ItecLgH/UtX9RFnaAhPRPwsCtkvF3s37+ww68IG83v0pNvPu6jYScDYZ5tTr"
    "+gw6yy7eO8pQokD/BfuZ3FYEXOsP8izo3bvvASJLCRe5QJudBgPlB9wxD+Hb4Ogu7DjmSScN+h3G5kTu6CpG3d9I3S/5/THC"
    "IT/b9Rn4KEL9XT9C/D05O8K7AKjN5hcPOMXdWSvwDvfRuAMkEvkVtAEB8f/W8PD14yvVEhYIxubRQjPrAN0woDrTB/n/NQ74"
    "QctFDP/gKwMX/roxVTYBxzzmSzfuC2XBm7jlLhZNpqjC9x70U8DB+v/ZIFgdBsQTwPYhwA7XCeAfrjHo1/ja2ygRHzAW6Brm"
    "q//8Dmg11SLMAoa43kDABdIZzsoQBu8/JyLnYBoNMtHE9SA92U9KDOAo3Q3uxiwDUiDaEwsd4S8BCChS3jZaJPL2aMHgNsVI"
    "RMoP1SDLBBLI5P85DfHhqCv68ws4y+v6"
)


def orthonormal(directions: NDArray[Any]) -> Floats:
    """Directions (n, width) of length 1, at right angles, that span the same."""
    basis: Floats = np.linalg.qr(directions.T.astype(np.float64))[0].T.astype(np.float32)
    return basis


def channel_directions() -> Floats:
    """The directions (2, 192), orthonormal."""
    return orthonormal(np.frombuffer(base64.b64decode(TABLE), np.int8).reshape(-1, WIDTH))

"""What goes between a WorkerScorer and its processes; all numbers are little-endian.

job      kind (1 byte, of Kind), stream (4), known (4), samples (4), then known + samples float32 values.
         A NEW stream begins with the `known` samples, which were scored elsewhere and are not answered;
         one is forgotten after its LAST job, which is flushed, and on DROP
message  kind (1 byte, of Told), stream (4), length (4), then so many bytes: probabilities, float32, or a text
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag

import numpy as np

from realtime_server.core.jobs import Samples

JOB = struct.Struct("<BIII")
MESSAGE = struct.Struct("<BII")


class Kind(IntFlag):
    """What a job wants."""

    SCORE = 0
    NEW = 1
    LAST = 2
    DROP = 4


class Told(IntEnum):
    """What a message is."""

    READY = 0  # the network is loaded
    UNUSABLE = 1  # it cannot be: a text
    SCORES = 2
    FAILED = 3  # a job, and its stream with it: a text


def pack_job(kind: Kind, stream: int, known: Samples, samples: Samples) -> bytes:
    """A job as bytes."""
    head = JOB.pack(kind, stream, len(known), len(samples))
    return b"".join([head, known.tobytes(), samples.tobytes()])


def split_messages(data: bytearray) -> Iterator[tuple[Told, int, bytes]]:
    """Take whole messages from the beginning of `data`."""
    while len(data) >= MESSAGE.size:
        kind, stream, length = MESSAGE.unpack_from(data)
        end = MESSAGE.size + length
        if len(data) < end:
            return
        yield Told(kind), stream, bytes(data[MESSAGE.size : end])
        del data[:end]


def take_job(data: bytearray) -> tuple[Kind, int, Samples, Samples] | None:
    """Take a whole job from the beginning of `data`: kind, stream, known, samples; None if there is none."""
    if len(data) < JOB.size:
        return None
    kind, stream, known, count = JOB.unpack_from(data)
    end = JOB.size + 4 * (known + count)
    if len(data) < end:
        return None
    samples = np.frombuffer(bytes(data[JOB.size : end]), "<f4")
    del data[:end]
    return Kind(kind), stream, samples[:known], samples[known:]


def pack_message(kind: Told, stream: int, content: bytes = b"") -> bytes:
    """A message as bytes."""
    return MESSAGE.pack(kind, stream, len(content)) + content

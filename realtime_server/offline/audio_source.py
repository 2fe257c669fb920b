"""Where recordings come from: a path, bytes or a file object becomes one real file, not larger than allowed.

Decoders get a file descriptor and nothing else: no name to guess a format from, and nothing that could be taken
for an address.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike
from typing import BinaryIO

from realtime_server.core.settings import require_positive
from realtime_server.errors import AudioError

Source = str | PathLike[str] | bytes | BinaryIO

PIECE = 1 << 20  # bytes copied at a time
# File objects whose descriptor holds the bytes that they read; that of an opened gzip file does not.
PLAIN_FILES = (io.FileIO, io.BufferedReader, io.BufferedRandom, tempfile.SpooledTemporaryFile)


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Bounds of recordings. They are checked on what is really read and decoded, whatever a header says."""

    file_bytes: int = 1 << 30  # as sent
    duration_s: float = 5 * 3600.0  # audio, seconds
    decoded_samples: int = (
        4_000_000_000  # before resampling, all channels together: 5 h of 4 channels at 48 kHz
    )
    decode_s: float = 900.0  # time that decoding may take, seconds
    decoder_bytes: int = 768 << 20  # address space of a decoder process; 250 MB of it are libraries
    processes: int = 2  # recordings decoded at once
    waiting: int = 16  # recordings that may wait for one of them

    def __post_init__(self) -> None:
        require_positive(self, tuple(field.name for field in fields(self)))


def open_source(source: Source, limits: AudioLimits) -> BinaryIO:
    """Return a file of our own, unbuffered, at its beginning; the caller closes it.

    A file object is read from its beginning, or from where it stands if it cannot be rewound (a pipe). Raises
    AudioError: unreadable, too_big.
    """
    if isinstance(source, str | PathLike):
        try:
            return _open(source, limits)
        except (OSError, ValueError) as error:  # ValueError: a null character
            why = getattr(error, "strerror", None) or str(error)
            raise AudioError(f"the recording cannot be opened: {why}", "unreadable") from None
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if isinstance(file, PLAIN_FILES) and not isinstance(getattr(file, "raw", None), io.BufferedIOBase):
        file.flush()  # of what its owner wrote
        with suppress(OSError):  # there is no /proc, or this is a pipe
            return _open(
                f"/proc/self/fd/{file.fileno()}", limits
            )  # a position of our own, unlike a duplicate's
    if file.seekable():
        file.seek(0)
    return _copy(file, limits)


def _open(path: str | PathLike[str], limits: AudioLimits) -> BinaryIO:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe would block
    status = os.fstat(number)
    regular = stat.S_ISREG(status.st_mode)
    if regular and status.st_size <= limits.file_bytes:
        return io.FileIO(number)
    os.close(number)
    if regular:
        raise _too_big(limits)
    raise OSError(errno.EINVAL, "this is a folder, a device or a pipe, not a file")


def _copy(file: BinaryIO, limits: AudioLimits) -> BinaryIO:
    copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 # the caller closes it
    try:
        size = 0
        while piece := file.read(PIECE):
            size += len(piece)
            if size > limits.file_bytes:
                raise _too_big(limits)
            copy.write(piece)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def _too_big(limits: AudioLimits) -> AudioError:
    return AudioError(f"the recording is larger than {limits.file_bytes} bytes, the limit", "too_big")

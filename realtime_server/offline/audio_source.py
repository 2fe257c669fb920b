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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from os import PathLike
from typing import BinaryIO

from realtime_server.core.settings import require_positive
from realtime_server.errors import AudioError, BusyError, ConfigurationError

Source = str | PathLike[str] | bytes | BinaryIO

PIECE = 1 << 20  # bytes copied at a time
# File objects whose descriptor holds the bytes that they read; that of an opened gzip file does not.
PLAIN_FILES = (io.FileIO, io.BufferedReader, io.BufferedRandom, tempfile.SpooledTemporaryFile)
_NO_ROOM = "there is no room for the recording on the server's disk"
_NO_FILES = "the server has too many files and connections open"
_NO_MEMORY = "the server is short of memory or processes"
NO_FOLDER = "the server has no folder for temporary files that it can use; its TMPDIR should name one"
SCARCE = {
    errno.ENOSPC: _NO_ROOM, errno.EDQUOT: _NO_ROOM, errno.EMFILE: _NO_FILES, errno.ENFILE: _NO_FILES,
    errno.ENOBUFS: _NO_MEMORY, errno.ENOMEM: _NO_MEMORY, errno.EAGAIN: _NO_MEMORY,
}  # fmt: skip


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


@contextmanager
def scarcity(otherwise: str | None = None) -> Iterator[None]:
    """Raise BusyError, caused by the OSError, where the machine lacks room, descriptors, memory or processes.

    otherwise: what any other OSError means; None: it is raised as it is.
    """
    try:
        yield
    except OSError as error:
        if words := SCARCE.get(error.errno or 0, otherwise):
            raise BusyError(words) from error
        raise


def check_temporary_folder() -> None:
    """Raise ConfigurationError if there is no folder for copies of recordings."""
    try:
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(b"x")
    except OSError as error:
        words = f"recordings cannot be kept while they are worked on: {error.strerror or error}"
        raise ConfigurationError(f"{words}; set TMPDIR to a folder with room") from None


def open_source(source: Source, limits: AudioLimits) -> BinaryIO:
    """Return a file of our own, unbuffered, at its beginning; the caller closes it.

    A file object is read from its beginning, or from where it stands if it cannot be rewound (a pipe). Raises
    AudioError: unreadable, too_big; and BusyError where there is no room for a copy.
    """
    if isinstance(source, str | PathLike):
        try:
            with scarcity():
                return _open(source, limits)
        except (OSError, ValueError) as error:  # ValueError: a null character
            why = getattr(error, "strerror", None) or str(error)
            raise AudioError(f"the recording cannot be opened: {why}", "unreadable") from None
    with scarcity():
        return _open_object(source, limits)


def _open_object(source: bytes | BinaryIO, limits: AudioLimits) -> BinaryIO:
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if isinstance(file, PLAIN_FILES) and not isinstance(getattr(file, "raw", None), io.BufferedIOBase):
        if isinstance(file, tempfile.SpooledTemporaryFile):
            with scarcity(NO_FOLDER):
                file.rollover()  # fileno() would, and what then fails is no reason to read it in another way
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
    with scarcity(NO_FOLDER):
        copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 # the caller closes it
    try:
        size = 0
        while piece := file.read(PIECE):
            size += len(piece)
            if size > limits.file_bytes:
                raise _too_big(limits)
            left = memoryview(piece)
            while left:
                left = left[copy.write(left) :]  # a disk that becomes full takes a part
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def _too_big(limits: AudioLimits) -> AudioError:
    return AudioError(f"the recording is larger than {limits.file_bytes} bytes, the limit", "too_big")

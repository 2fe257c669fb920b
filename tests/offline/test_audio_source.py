"""Paths, bytes and file objects of every kind become one real file, or a clean error."""

from __future__ import annotations

import errno
import gzip
import io
import os
import resource
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from realtime_server.errors import AudioError, BusyError, ConfigurationError
from realtime_server.offline.audio_source import PIECE, SCARCE, AudioLimits, Source, open_source, scarcity

DATA = bytes(range(256)) * 5000  # more than a piece
assert len(DATA) > PIECE


def content(source: Source, limits: AudioLimits | None = None) -> bytes:
    with open_source(source, limits or AudioLimits()) as file:
        os.lseek(file.fileno(), 0, os.SEEK_SET)  # a descriptor is what decoders use
        return file.read()


def refusal(source: Source, limits: AudioLimits | None = None) -> AudioError:
    with pytest.raises(AudioError) as caught:
        open_source(source, limits or AudioLimits())
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "talk.wav"
    path.write_bytes(DATA)
    return path


def test_paths_and_bytes(path: Path) -> None:
    assert content(path) == content(str(path)) == content(DATA) == DATA


@pytest.mark.parametrize("buffering", [0, -1])
def test_an_open_file_is_read_from_its_beginning_and_stays_open(path: Path, buffering: int) -> None:
    with path.open("rb", buffering) as file:
        file.read(1000)
        assert content(file) == DATA
        assert file.read() == DATA[1000:]  # its position has not moved


def test_what_its_owner_has_just_written_is_there(tmp_path: Path) -> None:
    with (tmp_path / "new").open("w+b") as file:
        file.write(DATA[:100])
        assert content(file) == DATA[:100]


def test_file_objects_in_memory() -> None:
    assert content(io.BytesIO(DATA)) == DATA


@pytest.mark.parametrize("size", [100, len(DATA) + 1])
def test_uploads(size: int) -> None:
    """As web frameworks hold them: in memory, or in a file above a size."""
    with tempfile.SpooledTemporaryFile(max_size=size) as upload:
        upload.write(DATA)
        assert content(upload) == DATA  # type: ignore[arg-type] # not declared to be one


@contextmanager
def file_sizes(most: int) -> Iterator[None]:
    """Let this process write no file beyond a size; the error differs from a full disk's, its course does not."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("spooled", [False, True])
def test_no_room_for_a_copy(spooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCARCE, errno.EFBIG, "there is no room")
    upload = tempfile.SpooledTemporaryFile(max_size=len(DATA) + 1) if spooled else io.BytesIO()  # noqa: SIM115
    upload.write(DATA)
    with file_sizes(PIECE + 1000), pytest.raises(BusyError, match="there is no room") as caught:
        open_source(upload, AudioLimits())  # type: ignore[arg-type] # not declared to be one
    assert isinstance(caught.value.__cause__, OSError)
    upload.close()


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "EAGAIN", "ENOMEM"])
def test_what_a_machine_may_lack(name: str) -> None:
    with pytest.raises(BusyError), scarcity():
        raise OSError(getattr(errno, name), name)
    with pytest.raises(FileNotFoundError), scarcity():
        raise FileNotFoundError(errno.ENOENT, name)


def test_what_a_compressed_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav.gz"
    path.write_bytes(gzip.compress(DATA))
    with gzip.open(path) as file:
        assert content(file) == DATA  # type: ignore[arg-type] # not declared to be one
    with io.BufferedReader(gzip.open(path)) as file:  # type: ignore[arg-type, type-var] # the same
        assert content(file) == DATA


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as sink, os.fdopen(reader, "rb") as pipe:
        thread = threading.Thread(target=lambda: (sink.write(DATA), sink.close()))
        thread.start()
        assert content(pipe) == DATA
        thread.join()


def test_sizes_up_to_the_limit(path: Path) -> None:
    assert content(path, AudioLimits(file_bytes=len(DATA))) == DATA
    for source in (path, DATA, io.BytesIO(DATA), path.open("rb", 0)):
        error = refusal(source, AudioLimits(file_bytes=len(DATA) - 1))
        assert (error.code, str(len(DATA) - 1) in str(error)) == ("too_big", True)
        if isinstance(source, io.IOBase):
            source.close()


def test_a_copy_that_grows_too_big_ends_at_the_limit() -> None:
    with pytest.raises(AudioError, match="larger than 100 bytes"), open("/dev/zero", "rb") as endless:  # noqa: PTH123
        open_source(endless, AudioLimits(file_bytes=100))


def test_missing_files_folders_devices_and_names_that_cannot_be(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    wanted = {
        tmp_path / "none.wav": "No such file or directory",
        tmp_path: "not a file",
        tmp_path / "pipe": "not a file",  # and nobody writes to it
        "/dev/zero": "not a file",
        "a\0b": "null",
        "": "No such file or directory",
        "x" * 5000: "File name too long",
        "http://localhost/a.wav": "No such file or directory",
    }
    for source, words in wanted.items():
        error = refusal(source)
        assert (error.code, words in str(error)) == ("unreadable", True), str(error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(path: Path) -> None:
    path.chmod(0)
    assert refusal(path).code == "unreadable"


@pytest.mark.parametrize(
    "name", ["file_bytes", "duration_s", "decoded_samples", "decode_s", "processes", "waiting"]
)
def test_limits_are_above_zero(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        AudioLimits(**{name: 0})

"""Recordings decoded in processes: what comes back, what may be stopped, and what may break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from realtime_server.errors import AudioError, BusyError
from realtime_server.offline import audio_reader
from realtime_server.offline.audio_reader import AudioReader
from realtime_server.offline.audio_source import AudioLimits
from tests.offline.recordings import KINDS, RATE, mp4_index_bomb, mutated, plain, recording, silent_flac, wave


def long() -> bytes:
    """A recording that takes seconds to decode."""
    return silent_flac(4.0, RATE)


def decoders() -> set[int]:
    """Process ids of the decoders that this process has started and that still run."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == os.getpid() and b"audio_worker" in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except (OSError, IndexError):
            continue
    return found


@pytest_asyncio.fixture
async def reader() -> AsyncIterator[AudioReader]:
    reader = AudioReader(AudioLimits(processes=1, waiting=1))
    yield reader
    await reader.aclose()
    assert not decoders()


class Begun:
    """A read that is known to have begun; use as `async with`."""

    def __init__(self, reader: AudioReader) -> None:
        self._reader, self._heard = reader, asyncio.Event()

    async def __aenter__(self) -> asyncio.Task[object]:
        self.task: asyncio.Task[object] = asyncio.create_task(
            self._reader.read(long(), on_progress=lambda _: self._heard.set())
        )
        await self._heard.wait()
        return self.task

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_samples_notes_and_progress_come_back(reader: AudioReader, tmp_path: Path) -> None:
    (tmp_path / "talk.wav").write_bytes(recording("wav", 20.0))
    seen: list[float] = []
    found = await reader.read(tmp_path / "talk.wav", on_progress=seen.append)
    assert np.array_equal(found.read(0, len(found)) * 32768, wave(20.0))
    assert (found.notes, seen[-1], len(seen) > 2) == ([], 20.0, True)
    damaged = await reader.read(recording("flac", 20.0)[:-5000])
    assert damaged.notes


async def test_one_channel(reader: AudioReader) -> None:
    found = await reader.read(plain(np.stack([wave(1.0), -wave(1.0)], axis=1), RATE), channel=1)
    assert np.array_equal(found.read(0, RATE) * 32768, -wave(1.0))


async def test_a_process_serves_many_recordings_and_then_retires(
    reader: AudioReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_reader, "RECORDINGS_PER_PROCESS", 3)
    served = []
    for _ in range(4):
        await reader.read(recording("wav"), on_progress=lambda _: served.append(decoders()))
    assert served[0] == served[1] == served[2] != served[3]


@pytest.mark.parametrize(
    ("data", "code"), [(b"", "empty"), (b"rubbish", "undecodable"), (recording("wav", 3.0), "too_long")]
)
async def test_refusals_come_back_and_the_process_lives(data: bytes, code: str) -> None:
    reader = AudioReader(AudioLimits(duration_s=2.0))
    await reader.read(recording("wav"))
    before = decoders()
    with pytest.raises(AudioError) as caught:
        await reader.read(data)
    assert (caught.value.code, decoders()) == (code, before)
    await reader.aclose()


async def test_files_that_cannot_be_opened_need_no_process(reader: AudioReader, tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="No such file"):
        await reader.read(tmp_path / "none.wav")
    assert not decoders()


async def test_too_many_at_once_are_refused(reader: AudioReader) -> None:
    async with Begun(reader):
        waiting = asyncio.create_task(reader.read(recording("wav")))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="too many"):
            await reader.read(recording("wav"))
        assert len(decoders()) == 1
    assert len(await waiting) == RATE


async def test_one_that_waits_can_be_cancelled(reader: AudioReader) -> None:
    async with Begun(reader) as first:
        waiting = asyncio.create_task(reader.read(recording("wav")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not first.done()
        waiting = asyncio.create_task(reader.read(recording("wav")))  # there is room again
        await asyncio.sleep(0)
    assert len(await waiting) == RATE


async def test_cancelling_ends_the_work(reader: AudioReader, caplog: pytest.LogCaptureFixture) -> None:
    async with Begun(reader) as task:
        assert decoders()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not decoders()
    assert not caplog.records
    assert len(await reader.read(recording("wav"))) == RATE


async def test_cancelling_while_a_source_is_copied_closes_the_copy(reader: AudioReader) -> None:
    """The file that nobody waits for any more would be reported as not closed."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as pipe:
        task = asyncio.create_task(reader.read(pipe))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        os.close(sink)
        await asyncio.sleep(0.02)


async def test_cancelling_leaves_no_temporary_file_open_that_its_owner_closes_at_once(
    reader: AudioReader,
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    class Slow(tempfile.SpooledTemporaryFile[bytes]):
        def rollover(self) -> None:
            begun.set()
            may_go_on.wait()
            super().rollover()

    closed: list[bool] = []

    async def own() -> None:
        with Slow() as file:
            file.write(recording("wav"))
            try:
                await reader.read(file)
            finally:
                closed.append(file._file.closed)

    task = asyncio.create_task(own())
    await asyncio.to_thread(begun.wait)
    task.cancel()
    try:
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closed
    finally:
        may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [False]


async def test_decoding_that_takes_too_long_is_ended() -> None:
    reader = AudioReader(AudioLimits(decode_s=0.01))  # less than a process takes to start
    with pytest.raises(AudioError) as caught:
        await reader.read(long())
    assert (caught.value.code, decoders()) == ("too_slow", set())
    await reader.aclose()


async def test_closing_ends_all_reads(reader: AudioReader) -> None:
    async with Begun(reader) as first:
        waiting = asyncio.create_task(reader.read(recording("wav")))
        await asyncio.sleep(0)
        await reader.aclose()
        results = await asyncio.gather(first, waiting, return_exceptions=True)
    with pytest.raises(BusyError, match="stopping"):
        await reader.read(recording("wav"))
    assert [type(result) for result in results] == [BusyError, BusyError]
    assert not decoders()


class Killer:
    """Ends decoders in the middle of their work, as often as told; give `heard` as `on_progress`."""

    def __init__(self, number: signal.Signals, times: int) -> None:
        self._number, self._left, self._killed = number, times, set[int]()

    def heard(self, seconds: float) -> None:
        for process in decoders() - self._killed if self._left else ():
            self._left -= 1
            self._killed.add(process)
            os.kill(process, self._number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_recording_whose_process_dies_is_tried_once_more(
    reader: AudioReader, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    data = silent_flac(0.2, RATE)
    whole = await reader.read(data)
    found = await reader.read(data, on_progress=Killer(number, 1).heard)
    assert (len(found), found.notes) == (len(whole), whole.notes)
    assert f"exit status -{number}; its recording is tried once more" in caplog.text


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (signal.SIGSEGV, AudioError, "decoder broke down"),
        (signal.SIGKILL, BusyError, "may be short of memory"),
    ],
)
async def test_two_crashes_cost_one_recording(
    reader: AudioReader, number: signal.Signals, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await reader.read(long(), on_progress=Killer(number, 2).heard)
    assert len(await reader.read(recording("wav"))) == RATE


async def test_no_descriptors_left(reader: AudioReader, tmp_path: Path) -> None:
    (tmp_path / "talk.wav").write_bytes(recording("wav"))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = os.open(os.devnull, os.O_RDONLY)
    os.close(opened)
    try:
        for room in range(4):  # descriptors run out at one place after another
            resource.setrlimit(resource.RLIMIT_NOFILE, (opened + room, before[1]))
            with pytest.raises(BusyError, match="too many files"):
                await reader.read(tmp_path / "talk.wav")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(await reader.read(tmp_path / "talk.wav")) == RATE


async def test_a_process_that_died_unused_is_replaced(reader: AudioReader) -> None:
    await reader.read(recording("wav"))
    for process in decoders():
        os.kill(process, signal.SIGKILL)
    for _ in range(500):
        await asyncio.sleep(0.01 if decoders() else 0)
    assert len(await reader.read(recording("wav"))) == RATE


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux bounds address space")
@pytest.mark.parametrize("entries", [20_000_000, 2**32 - 1])
async def test_a_memory_bomb_stays_in_its_process(reader: AudioReader, entries: int) -> None:
    """FFmpeg would take 0.7 GB and more for these 4.5 kB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AudioError):
        await reader.read(mp4_index_bomb(entries))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert len(await reader.read(recording("wav"))) == RATE


@pytest.mark.parametrize("kind", KINDS)
async def test_damaged_recordings_are_read_or_refused(reader: AudioReader, kind: str) -> None:
    data, before = recording(kind, 0.3), set[int]()
    for seed in range(40):
        with contextlib.suppress(AudioError):
            assert len(await reader.read(mutated(data, seed))), seed
        before = before or decoders()
    assert decoders() == before  # not one broke down

"""A call's file: whole lines as they come, one error when the disk is full."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from realtime_server.http import call_files
from realtime_server.http.call_files import MOST_WAITING, CallFile
from tests.realtime.harness import eventually


def contents(folder: Path) -> dict[str, list[str]]:
    return {
        path.name: [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
        for path in folder.iterdir()
    }


async def test_lines_can_be_read_while_the_call_runs_and_the_name_says_when_it_is_whole(
    tmp_path: Path,
) -> None:
    file = CallFile(tmp_path, "desk-7", "abc")
    running = asyncio.create_task(file.run())
    file.put({"text": "Grüße\n"})
    await eventually(lambda: contents(tmp_path) == {f"{file.path.name}.part": ["Grüße\n"]})
    file.put({"text": "two"})
    file.finish()
    await running
    assert contents(tmp_path) == {file.path.name: ["Grüße\n", "two"]}
    assert file.path.name.endswith("-desk-7-abc.jsonl")


async def test_a_call_without_a_message_leaves_no_file(tmp_path: Path) -> None:
    file = CallFile(tmp_path, "desk-7", "abc")
    file.finish()
    await file.run()
    assert contents(tmp_path) == {}


async def test_a_full_disk_is_told_of_once_and_leaves_what_was_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[bytes] = []

    def write(file: BinaryIO, data: bytes) -> None:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(data)
        call_files.write(file, data)

    file = CallFile(tmp_path, "desk-7", "abc", write)
    running = asyncio.create_task(file.run())
    for text in ("one", "two", "three"):
        file.put({"text": text})
        await eventually(lambda: written and not file._lines)
    await running
    file.put({"text": "four"})
    file.finish()
    assert contents(tmp_path) == {f"{file.path.name}.part": ["one"]}
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().rpartition(": ")[2] for record in told] == ["No space left on device"]


async def test_a_disk_that_hangs_holds_so_many_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, going = threading.Event(), threading.Event()

    def write(file: BinaryIO, data: bytes) -> None:
        hangs.set()
        going.wait()

    file = CallFile(tmp_path, "desk-7", "abc", write)
    running = asyncio.create_task(file.run())
    file.put({"text": "one"})
    await eventually(hangs.is_set)
    for _ in range(2 * MOST_WAITING):
        file.put({"text": "more"})
    assert len(file._lines) == 0
    going.set()
    file.finish()
    await running
    assert list(contents(tmp_path)) == [f"{file.path.name}.part"]
    assert caplog.text.count("the disk does not take it") == 1


async def test_a_disk_that_hangs_does_not_keep_the_server_from_ending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = os.pipe()
    hangs, files = threading.Event(), list[BinaryIO]()

    def write(file: BinaryIO, data: bytes) -> None:
        if not files:
            os.dup2(writing, file.fileno())  # nobody reads what is written there
            files.append(file)
        hangs.set()
        call_files.write(file, data)

    file = CallFile(tmp_path, "desk-7", "abc", write)
    running = asyncio.create_task(file.run())
    file.put({"text": "x" * 1_000_000})
    await eventually(hangs.is_set)
    freed = threading.Timer(5.0, os.close, [reading])  # a loop that stands must not stand for ever
    freed.start()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert freed.is_alive()
    assert "the server ended before the disk had taken the transcript" in caplog.text
    freed.cancel()
    os.close(reading)
    os.close(writing)
    await eventually(lambda: files[0].closed)


async def test_a_call_that_is_cut_off_keeps_what_was_written(tmp_path: Path) -> None:
    files = list[BinaryIO]()

    def write(file: BinaryIO, data: bytes) -> None:
        files.append(file)
        call_files.write(file, data)

    file = CallFile(tmp_path, "desk-7", "abc", write)
    running = asyncio.create_task(file.run())
    file.put({"text": "one"})
    await eventually(lambda: contents(tmp_path) == {f"{file.path.name}.part": ["one"]})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await eventually(lambda: files[0].closed)
    assert contents(tmp_path) == {f"{file.path.name}.part": ["one"]}

"""Where the transcriptions of `realtime-server transcribe` go: standard output, a folder of files, or one file.

What is in a folder or a file is whole: it appears under its name when it is complete, or is a complete line. So a run
that was interrupted goes on where it was when it is started again.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TextIO

from realtime_server.errors import ConfigurationError
from realtime_server.offline.formats import WRITERS, json_line, json_record
from realtime_server.offline.inputs import Item
from realtime_server.offline.transcription import Transcription

FORMATS = (*WRITERS, "json", "jsonl")
SEVERAL = ("txt", "jsonl")  # formats of which several fit into one stream
TIMED = ("srt", "vtt", "json", "jsonl")  # formats that show when words are said


class Output(ABC):
    """Takes transcriptions in any order."""

    def __init__(self, form: str, *, speakers: bool) -> None:
        self._form, self._speakers = form, speakers
        self.times = form in TIMED  # whether word times are of use

    @abstractmethod
    def has(self, item: Item) -> bool:
        """Whether the item's transcription is there from an earlier run."""

    @abstractmethod
    def write(self, item: Item, transcription: Transcription) -> None:
        """Write one. Raises OSError."""

    def skip(self, item: Item) -> None:  # noqa: B027 # most outputs have no order
        """There will be none for this item."""

    def close(self) -> None:  # noqa: B027 # most outputs hold nothing
        """Nothing more will come."""

    def _text(self, item: Item, transcription: Transcription) -> str:
        if self._form == "jsonl":
            return json_line(transcription, key=item.key)
        if self._form == "json":
            return json.dumps(json_record(transcription, key=item.key), ensure_ascii=False, indent=2) + "\n"
        return WRITERS[self._form](transcription, speakers=self._speakers)


class Stream(Output):
    """Standard output, in the order of the items; several texts are set apart by lines that name them."""

    def __init__(self, form: str, *, speakers: bool, stream: TextIO, items: Sequence[Item]) -> None:
        super().__init__(form, speakers=speakers)
        self._stream = stream
        self._places = {id(item): place for place, item in enumerate(items)}
        self._waiting: dict[int, str] = {}  # texts by place; "" for none
        self._next = 0
        self._titled = form == "txt" and len(items) > 1

    def has(self, item: Item) -> bool:
        """Never."""
        return False

    def write(self, item: Item, transcription: Transcription) -> None:
        """Write it when those before it are there."""
        title = f"==> {item.key} <==\n" if self._titled else ""
        end = "\n" if self._titled else ""
        self._place(item, title + self._text(item, transcription) + end)

    def skip(self, item: Item) -> None:
        """Do not wait for this one."""
        self._place(item, "")

    def close(self) -> None:
        """Write what waits for others that did not come."""
        for place in sorted(self._waiting):
            self._stream.write(self._waiting.pop(place))
        self._stream.flush()

    def _place(self, item: Item, text: str) -> None:
        self._waiting[self._places[id(item)]] = text
        while self._next in self._waiting:
            self._stream.write(self._waiting.pop(self._next))
            self._next += 1
        self._stream.flush()


class Folder(Output):
    """A file for each recording, called by its key; keys with slashes make folders."""

    def __init__(self, form: str, *, speakers: bool, folder: Path, overwrite: bool) -> None:
        """Raises ConfigurationError if the folder cannot be made."""
        super().__init__(form, speakers=speakers)
        self._folder, self._overwrite = folder, overwrite
        _make(folder)

    def path(self, item: Item) -> Path:
        """Where an item's transcription lies: in the folder, whatever the key says."""
        parts = [part for part in PurePosixPath(item.key.replace("\0", "")).parts if part not in ("/", "..")]
        return self._folder.joinpath(*parts[:-1], f"{parts[-1] if parts else 'recording'}.{self._form}")

    def has(self, item: Item) -> bool:
        """Whether the file exists."""
        try:
            return not self._overwrite and self.path(item).exists()
        except OSError:  # it cannot be there; why, writing will tell
            return False

    def write(self, item: Item, transcription: Transcription) -> None:
        """Write the file."""
        path = self.path(item)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(path, self._text(item, transcription))


class SingleFile(Output):
    """One file with one transcription."""

    def __init__(self, form: str, *, speakers: bool, path: Path, overwrite: bool) -> None:
        """Raises ConfigurationError if its folder cannot be made."""
        super().__init__(form, speakers=speakers)
        self._path, self._overwrite = path, overwrite
        _make(path.parent)

    def has(self, item: Item) -> bool:
        """Whether the file exists."""
        return not self._overwrite and self._path.exists()

    def write(self, item: Item, transcription: Transcription) -> None:
        """Write the file."""
        _write_whole(self._path, self._text(item, transcription))


class Lines(Output):
    """One JSON Lines file, a line for each recording, in the order in which they are done."""

    def __init__(self, *, path: Path, overwrite: bool) -> None:
        """Open the file and learn what it has. Raises ConfigurationError if that cannot be, or if it is another's."""
        super().__init__("jsonl", speakers=True)
        _make(path.parent)
        try:
            self._file = path.open("w+b" if overwrite else "a+b")
            self._keys = self._read(path)
        except OSError as error:
            raise ConfigurationError(f"--output {path}: {error.strerror}") from error

    def has(self, item: Item) -> bool:
        """Whether a line has the item's key."""
        return item.key in self._keys

    def write(self, item: Item, transcription: Transcription) -> None:
        """Add a line."""
        self._file.write(self._text(item, transcription).encode("utf-8", "replace"))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, path: Path) -> set[str]:
        """Keys of the lines; half a line at the end, of a run that was killed, is removed."""
        self._file.seek(0)
        keys, whole = set(), 0
        for line in self._file:
            if not line.endswith(b"\n"):
                self._file.truncate(whole)
                break
            whole += len(line)
            try:
                keys.add(str(json.loads(line)["key"]))
            except (ValueError, TypeError, KeyError):
                self._file.close()
                raise ConfigurationError(
                    f"--output {path}: it holds other lines than ours; use --overwrite"
                ) from None
        return keys


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--output {folder}: {error.strerror}") from error


def _write_whole(path: Path, text: str) -> None:
    """Write a file that has its name only when it is complete."""
    part = path.with_name(f".{os.getpid()}.part")  # one is written at a time
    try:
        part.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise

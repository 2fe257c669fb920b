"""What is to be transcribed: recordings, folders of them, and lists in the forms that FunASR reads, each with a key.

    wav.scp, *.txt   KEY PATH, or only PATH, per line
    *.jsonl          {"key": ..., "source": PATH} per line, other fields do not matter; or the conversations with which
                     Fun-ASR-Nano is trained, {"messages": [... "<|startofspeech|>!PATH<|endofspeech|>" ...]}

A path in a list that is not there from the current folder is looked for beside the list. What Kaldi would run as a
command ("sox ... |") is a path here, and so not found: a list never makes anything run.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from realtime_server.core.jobs import Samples
from realtime_server.errors import ConfigurationError
from realtime_server.offline.audio_source import Source

AUDIO_SUFFIXES = frozenset(
    ".aac .ac3 .aif .aiff .amr .ape .au .avi .caf .flac .flv .m4a .m4b .mka .mkv .mov .mp2 .mp3 .mp4 .mpeg .mpg .oga "
    ".ogg .opus .sph .tta .wav .weba .webm .wma .wv".split()
)  # of the files that are taken from a folder
LIST_SUFFIXES = frozenset((".scp", ".txt", ".jsonl"))
# By the names that FunASR, and others after them, give the two fields.
KEYS = ("key", "id", "utt", "utt_id")
SOURCES = ("source", "wav", "audio", "audio_filepath", "audio_path", "path")
SPEECH = re.compile(r"<\|startofspeech\|>!(.+?)<\|endofspeech\|>")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A recording; key: what its result is called.  source: a file, or samples, float32 (n,), 16 kHz."""

    key: str
    source: Source | Samples


def expand(path: str | PathLike[str]) -> list[Item]:
    """Return the recordings that a path stands for: itself, those in a folder and below it, or those of a list.

    Raises ConfigurationError for a folder or list that is empty or cannot be read; recordings are not looked at.
    """
    path = Path(path)
    if _is_there(path) and path.is_dir():
        return _named(_in_folder(path), f"{path}: there are no recordings in this folder")
    if path.suffix.lower() not in LIST_SUFFIXES:
        return [Item(path.stem, path)]
    read = _read_jsonl if path.suffix.lower() == ".jsonl" else _read_scp
    return _named(read(path, _lines(path)), f"{path}: there are no recordings in this list")


def distinct(items: Iterable[Item]) -> list[Item]:
    """The same recordings with keys that differ: where they do not, the name's ending is added, or the way to it.

    A file that was named twice is there once. Raises ConfigurationError for two recordings with one key in a list.
    """
    kept: dict[object, Item] = {}
    for item in items:
        kept.setdefault((item.key, item.source), item)
    found = list(kept.values())
    for name in (_with_suffix, _with_folders):
        counts = Counter(item.key for item in found)
        found = [item if counts[item.key] == 1 else Item(name(item), item.source) for item in found]
    for key, count in Counter(item.key for item in found).items():
        if count > 1:
            raise ConfigurationError(f"{count} recordings have the key '{key}'")
    return found


def _with_suffix(item: Item) -> str:
    source = item.source
    return (
        item.key + source.suffix if isinstance(source, Path) and item.key.endswith(source.stem) else item.key
    )


def _with_folders(item: Item) -> str:
    source = item.source
    return str(source) if isinstance(source, Path) and str(source).endswith(item.key) else item.key


def _named(items: Iterable[Item], if_none: str) -> list[Item]:
    found = list(items)
    if not found:
        raise ConfigurationError(if_none)
    return found


def _in_folder(folder: Path) -> Iterator[Item]:
    """Recordings in a folder and below, in the order of their names; the key is the path from there."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix.lower() in AUDIO_SUFFIXES and not name.startswith("."):
                yield Item(str(path.relative_to(folder).with_suffix("")), path)


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a list that are not empty, numbered from 1."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: it is not text in UTF-8") from error
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]


def _read_scp(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Item]:
    for _, line in lines:
        # A line that is a file as it stands is a path, with spaces in it or not.
        key, _, rest = ("", "", line) if _is_there(Path(line)) else line.partition(_first_space(line))
        yield _listed(path, key if rest else "", rest.strip() or key)


def _first_space(line: str) -> str:
    return next((sign for sign in line if sign.isspace()), " ")


def _read_jsonl(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Item]:
    for number, line in lines:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: it is not JSON ({error})") from error
        source = _source(fields) if isinstance(fields, dict) else None
        if not source:
            names = ", ".join(SOURCES)
            raise ConfigurationError(f"{path}, line {number}: no field names the recording, such as {names}")
        key = next((fields[name] for name in KEYS if fields.get(name) is not None), "")
        yield _listed(path, str(key), source)


def _source(fields: dict[str, object]) -> str | None:
    found = next((value for name in SOURCES if isinstance(value := fields.get(name), str) and value), None)
    if found or not isinstance(messages := fields.get("messages"), list):
        return found
    speech = SPEECH.search(" ".join(str(turn.get("content")) for turn in messages if isinstance(turn, dict)))
    return speech[1] if speech else None


def _listed(place: Path, key: str, name: str) -> Item:
    path = Path(name)
    if not _is_there(path) and _is_there(place.parent / path):
        path = place.parent / path
    return Item(key or path.stem, path)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False

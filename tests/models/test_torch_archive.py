"""Weights without PyTorch: what is read, and that a hostile file runs nothing."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from realtime_server.errors import WeightsError
from realtime_server.models.torch_archive import read
from tests.models.speaker import archive, tensor, write

RNG = np.random.default_rng(0)


def table(value: bytes) -> bytes:
    """The pickle of {"x": value}."""
    return b"\x80\x02}" + pickle.dumps("x", 2)[2:-1] + value + b"s."


def test_tensors_come_back(tmp_path: Path) -> None:
    tensors = {
        "a.weight": RNG.normal(size=(3, 4, 2)).astype(np.float32),
        "a.bias": np.zeros(0, np.float32),
        "number": np.array(7),
        "transposed": RNG.normal(size=(4, 3)).astype(np.float32),
    }
    archive(tmp_path / "w.pt", tensors)
    found = read(tmp_path / "w.pt")
    assert list(found) == list(tensors)
    for name, values in tensors.items():
        assert found[name].dtype == values.dtype
        assert np.array_equal(found[name], values)


def test_views_of_a_storage(tmp_path: Path) -> None:
    numbers = np.arange(12, dtype=np.float32)
    write(
        tmp_path / "w.pt",
        table(tensor("k", "FloatStorage", 12, (1, (2, 3), (1, 4)))),
        {"k": numbers.tobytes()},
    )
    assert np.array_equal(read(tmp_path / "w.pt")["x"], [[1, 5, 9], [2, 6, 10]])


class Trap:
    """A pickle that makes a folder when it is loaded by an ordinary unpickler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._folder),)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    harmful = pickle.dumps({"x": Trap(tmp_path / "harm")}, 2)
    pickle.loads(harmful)  # it does work
    (tmp_path / "harm").rmdir()
    write(tmp_path / "w.pt", harmful)
    with pytest.raises(
        WeightsError, match=r"refused: it wants to use (posix|nt|os)\.mkdir, and weights need no"
    ):
        read(tmp_path / "w.pt")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "name",
    ["builtins eval", "builtins getattr", "torch load", "torch._utils _rebuild_parameter", "numpy ndarray",
     "torch FloatStorage.__class__", "collections OrderedDict.__init__"],
)  # fmt: skip
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    module, function = name.split()
    write(tmp_path / "w.pt", table(f"c{module}\n{function}\n".encode()))
    with pytest.raises(WeightsError, match="weights need no such thing"):
        read(tmp_path / "w.pt")


@pytest.mark.parametrize(
    "change",
    [b"}(X\x01\x00\x00\x00aK\x01u", b"(N}X\x0c\x00\x00\x00__defaults__K\x01st"],
    ids=["attributes", "slots"],
)
@pytest.mark.parametrize("target", [b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n"])
def test_what_is_handed_out_cannot_be_changed(tmp_path: Path, change: bytes, target: bytes) -> None:
    write(tmp_path / "w.pt", table(target + change + b"b"))
    with pytest.raises(WeightsError):
        read(tmp_path / "w.pt")
    test_tensors_come_back(tmp_path)


@pytest.mark.parametrize(
    "view",
    [(0, (13,), (1,)), (10, (3,), (1,)), (0, (2, 3), (1, 6)), (-1, (2,), (1,)), (0, (2,), (-1,)),
     (0, (2, 3), (1,)), (0, (1 << 30,), (0,)), (1 << 70, (2,), (1,))],
)  # fmt: skip
def test_views_beyond_a_storage_are_refused(
    tmp_path: Path, view: tuple[int, tuple[int, ...], tuple[int, ...]]
) -> None:
    write(tmp_path / "w.pt", table(tensor("k", "FloatStorage", 12, view)), {"k": bytes(48)})
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        read(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("key", "kind", "size"),
    [("k", "FloatStorage", 13), ("no", "FloatStorage", 12), ("../k", "FloatStorage", 12)],
)
def test_storages_are_what_they_are_said_to_be(tmp_path: Path, key: str, kind: str, size: int) -> None:
    write(tmp_path / "w.pt", table(tensor(key, kind, size, (0, (2,), (1,)))), {"k": bytes(48)})
    with pytest.raises(WeightsError):
        read(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x80\x02K\x01.", "no table"),
        (table(b"K\x01"), "'x' is no tensor but int"),
        (b"\x80\x02}(K\x01K\x02u.", "1 is no tensor"),
        (b"\x80\x02", "cannot be read|refused"),
        (b"", "cannot be read"),
        (b"garbage", "cannot be read|refused"),
    ],
)
def test_other_contents_are_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    write(tmp_path / "w.pt", content)
    with pytest.raises(WeightsError, match=complaint):
        read(tmp_path / "w.pt")


def test_files_that_are_no_archives_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"has no w\.pt"):
        read(tmp_path / "w.pt")
    (tmp_path / "w.pt").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        read(tmp_path / "w.pt")
    archive(tmp_path / "w.pt", {"a": RNG.normal(size=1000).astype(np.float32)})
    whole = (tmp_path / "w.pt").read_bytes()
    (tmp_path / "w.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        read(tmp_path / "w.pt")
    (tmp_path / "w.pt").write_bytes(whole.replace(whole[900:904], b"\0\0\0\0"))
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        read(tmp_path / "w.pt")

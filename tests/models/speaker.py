"""CAM++ for tests: the weights, and archives in PyTorch's format made without PyTorch."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from numpy.typing import NDArray

from realtime_server import weights
from realtime_server.errors import WeightsError

if TYPE_CHECKING:
    from realtime_server.models.campplus_onnx import CamPlusPlusOnnx

Array = NDArray[Any]


@cache
def weights_folder() -> Path:
    """Where the network's weights are; skips the test where they are not."""
    try:
        return weights.find("campplus")
    except WeightsError as error:
        pytest.skip(str(error))


@cache
def network() -> CamPlusPlusOnnx:
    """The network, loaded once for all tests."""
    from realtime_server.models.campplus_onnx import CamPlusPlusOnnx

    return CamPlusPlusOnnx.load(weights_folder())


def archive(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write tensors, float32 or int64, as PyTorch does."""
    table = b"".join(_dump(name) + _tensor(str(key), tensors[name]) for key, name in enumerate(tensors))
    write(
        path,
        b"\x80\x02}(" + table + b"u.",
        {str(key): each.tobytes() for key, each in enumerate(tensors.values())},
    )


def write(path: Path, table: bytes, storages: Mapping[str, bytes] | None = None) -> None:
    """Write an archive with this pickle."""
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("archive/data.pkl", table)
        for key, storage in (storages or {}).items():
            members.writestr(f"archive/data/{key}", storage)


def tensor(key: str, kind: str, numbers: int, view: tuple[int, tuple[int, ...], tuple[int, ...]]) -> bytes:
    """The pickle of a view (offset, shape, strides) of a storage."""
    storage = b"(" + _dump("storage") + _name("torch", kind) + _dump((key, "cpu", numbers))[1:-1] + b"tQ"
    offset, shape, strides = view
    unused = b"\x89" + _name("collections", "OrderedDict") + b")R"  # requires no gradient, has no hooks
    return (
        _name("torch._utils", "_rebuild_tensor_v2")
        + b"("
        + storage
        + b"".join(map(_dump, (offset, shape, strides)))
        + unused
        + b"tR"
    )


def _tensor(key: str, values: Array) -> bytes:
    kind = {"float32": "FloatStorage", "int64": "LongStorage"}[values.dtype.name]
    strides = tuple(step // values.itemsize for step in values.strides)
    return tensor(key, kind, values.size, (0, values.shape, strides))


def _name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _dump(value: object) -> bytes:
    """A string, number or tuple of them, in pickle's machine language."""
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_dump, value)) + b"t"
    return pickle.dumps(value, 2)[2:-1]

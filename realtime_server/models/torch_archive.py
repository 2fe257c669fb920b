"""Weights out of PyTorch's file format without PyTorch: names and numpy arrays, nothing else.

The format is a zip archive. `*/data.pkl` is a pickle of the state dict in which each tensor is a call of
`_rebuild_tensor_v2` on a storage, and `*/data/<key>` are the bytes of the storages. A pickle can name any function to
be called; this reader knows four names and refuses all others.

    torch._utils _rebuild_tensor_v2    a view of a storage, copied
    torch FloatStorage, LongStorage    the type of a storage's numbers
    collections OrderedDict
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realtime_server.errors import WeightsError

Array = NDArray[Any]

STORAGES = {"FloatStorage": "<f4", "LongStorage": "<i8"}  # to numpy's names of the type
LARGEST_PICKLE = 16 << 20  # bytes; a name takes about 150
LARGEST_TENSOR = 1 << 26  # numbers


def read(path: Path) -> dict[str, Array]:
    """Tensors by name; raise WeightsError if the file is damaged, or holds anything but tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = _Reader(archive).load()
    except FileNotFoundError as error:
        raise WeightsError(f"{path.parent} has no {path.name}") from error
    except pickle.UnpicklingError as error:
        raise WeightsError(f"{path} is refused: {error}") from error
    except _DAMAGED as error:
        raise WeightsError(f"{path} cannot be read as weights ({error}); get it again") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds no table of tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise WeightsError(f"{path} is refused: {name!r} is no tensor but {type(value).__name__}")
    return dict(content)


# What zipfile, pickle and the arithmetic on what they read raise when a file is not what it claims to be.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, IndexError, ValueError, TypeError, AttributeError,
    OverflowError, MemoryError, RecursionError, NotImplementedError,
)  # fmt: skip


class _Reader(pickle.Unpickler):
    """An unpickler for which only tensors exist."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        pickles = [name for name in archive.namelist() if PurePosixPath(name).name == "data.pkl"]
        if len(pickles) != 1:
            raise ValueError(f"{len(pickles)} members are named data.pkl")
        self._archive, self._root = archive, PurePosixPath(pickles[0]).parent
        if archive.getinfo(pickles[0]).file_size > LARGEST_PICKLE:
            raise ValueError("its table of tensors is too large")
        order = f"{self._root}/byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise ValueError("its numbers are not little-endian")
        super().__init__(io.BytesIO(archive.read(pickles[0])), encoding="utf-8")

    def find_class(self, module: str, name: str) -> Callable[..., Any] | str:
        """Resolve the names that a table of tensors needs.

        What is handed out can be called or compared, but has no state that a pickle could set.
        """
        if module == "torch" and name in STORAGES:
            return name
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise pickle.UnpicklingError(f"it wants to use {module}.{name}, and weights need no such thing")

    def persistent_load(self, pid: Any) -> Array:
        """The numbers of a storage, ("storage", type, key, device, numbers)."""
        kind, dtype, key, _, size = pid
        if kind != "storage" or dtype not in STORAGES or PurePosixPath(key).name != key:
            raise pickle.UnpicklingError("it refers to something that is no tensor's storage")
        storage = np.frombuffer(self._archive.read(f"{self._root}/data/{key}"), STORAGES[dtype])
        if len(storage) != size:
            raise ValueError(f"storage {key} has {len(storage)} numbers, not {size}")
        return storage

    def _tensor(
        self, storage: Array, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_unused: object
    ) -> Array:
        """Copy a view of a storage; the rest of a tensor's state is about training."""
        if not isinstance(storage, np.ndarray) or storage.ndim != 1 or len(shape) != len(strides):
            raise ValueError("a tensor has no storage, or no shape")
        if min((offset, *shape, *strides)) < 0 or math.prod(shape) > LARGEST_TENSOR:
            raise ValueError("a tensor has an impossible shape")
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if 0 not in shape and last >= len(storage):
            raise ValueError("a tensor reaches beyond its storage")
        steps = tuple(stride * storage.itemsize for stride in strides)
        return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False).copy()

"""ONNX graphs written without the onnx package: onnxruntime is all that is needed to make and run one.

A graph is a list of nodes over named tensors; `Graph.model` gives the bytes of a ModelProto. The numbers below are
those of the messages' fields in onnx.proto, version IR 8, operator set 17.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IR_VERSION = 8
OPERATORS = 17
TYPES = {"float32": 1, "int64": 7}  # TensorProto.DataType
FLOAT, INT, INTS = 1, 2, 7  # AttributeProto.AttributeType

Attribute = int | float | Sequence[int]
Shape = Sequence[int | str]


class Graph:
    """Nodes and constants in the order in which they are added; every tensor has a name."""

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def constant(self, values: NDArray[Any]) -> str:
        """Add float32 or int64 values; return their name."""
        name = f"c{len(self._constants)}"
        dims = b"".join(_number(1, size) for size in values.shape)
        data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        kind = _number(2, TYPES[values.dtype.name])
        self._constants.append(dims + kind + _text(8, name) + _bytes(9, data))
        return name

    def integers(self, *values: int) -> str:
        """Add a constant vector of int64."""
        return self.constant(np.array(values, np.int64))

    def add(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node with one output; return its name."""
        name = f"{operator.lower()}{len(self._nodes)}"
        ends = b"".join(_text(1, each) for each in inputs) + _text(2, name)
        settings = b"".join(_bytes(5, _attribute(key, value)) for key, value in attributes.items())
        self._nodes.append(ends + _text(4, operator) + settings)
        return name

    def model(
        self, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape], results: Mapping[str, str]
    ) -> bytes:
        """The bytes of the whole model.

        inputs, outputs: shapes of the float32 tensors with these names; axes of any length have names.  results: which
        tensor each output is.
        """
        ends = [_text(1, results[name]) + _text(2, name) + _text(4, "Identity") for name in outputs]
        graph = b"".join(_bytes(1, node) for node in [*self._nodes, *ends]) + _text(2, "graph")
        graph += b"".join(_bytes(5, constant) for constant in self._constants)
        graph += b"".join(_bytes(11, _value(name, shape)) for name, shape in inputs.items())
        graph += b"".join(_bytes(12, _value(name, shape)) for name, shape in outputs.items())
        return _number(1, IR_VERSION) + _bytes(7, graph) + _bytes(8, _text(1, "") + _number(2, OPERATORS))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers in two's complement
    low = bytearray()
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*low, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, FLOAT)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, INT)
    return _text(1, name) + b"".join(_number(8, each) for each in value) + _number(20, INTS)


def _value(name: str, shape: Shape) -> bytes:
    """A ValueInfoProto: TypeProto > Tensor > TensorShapeProto > Dimension."""
    dims = [_text(2, size) if isinstance(size, str) else _number(1, size) for size in shape]
    tensor = _number(1, TYPES["float32"]) + _bytes(2, b"".join(_bytes(1, dim) for dim in dims))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))

"""CAM++ on onnxruntime: the graph is built from the published weights, without PyTorch.

    features (batch, frames, 80) -> embedding (batch, 192)

It computes what campplus.py computes, with every batch norm that follows a convolution folded into it. The context of
a dense layer is the same for all frames of a 2 s piece, so it is computed once for each piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realtime_server.errors import WeightsError
from realtime_server.models import torch_archive
from realtime_server.models.campplus_channel import channel_directions
from realtime_server.models.campplus_layout import (
    BLOCKS,
    BOTTLENECK,
    CHANNELS,
    EPSILON,
    FEWEST_FRAMES,
    GROWTH,
    HEAD,
    HEAD_HEIGHT,
    PIECE,
    WIDTH,
)
from realtime_server.models.onnx_graph import TYPES, Graph
from realtime_server.models.onnx_session import InferenceSession, open_session
from realtime_server.models.speaker_network import CAMPPLUS_FILE, MEL_BINS, Floats

NAMED = 4  # tensors that an error names
INPUT, OUTPUT = "features", "embedding"


class CamPlusPlusOnnx:
    """A SpeakerNetwork."""

    width = WIDTH
    fewest_frames = FEWEST_FRAMES
    channel = channel_directions()

    def __init__(self, session: InferenceSession) -> None:
        """Wrap a loaded graph."""
        self._session = session

    @classmethod
    def load(cls, folder: Path, threads: int = 1) -> CamPlusPlusOnnx:
        """Build the graph from the weights in `folder`; raise WeightsError if they are missing or damaged."""
        path = folder / CAMPPLUS_FILE
        graph = build(torch_archive.read(path), str(path))
        return cls(open_session(graph, threads, name=str(path), arena=False))  # as fast, in 60 MB less

    def embed(self, features: Floats) -> Floats:
        """Embeddings (batch, 192) of windows (batch, frames, 80), not normalised."""
        embeddings: Floats = self._session.run([OUTPUT], {INPUT: features})[0]
        return embeddings


def build(tensors: Mapping[str, NDArray[Any]], name: str) -> bytes:
    """The graph of the network with these weights, as an ONNX model.

    Raises WeightsError, with `name`, if a tensor is missing, has another shape, or has no place in the network.
    """
    weights = _Weights(tensors)
    model = _Network(weights).model()
    weights.complain(name)
    return model


class _Weights:
    """The published tensors, each taken once by name and shape; keeps account of what is wrong."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        counters = ".num_batches_tracked"  # of training
        self._left = {name: value for name, value in tensors.items() if not name.endswith(counters)}
        self._missing: list[str] = []
        self._misshapen: list[str] = []

    def take(self, name: str, *shape: int) -> Floats:
        """One tensor, or zeros in its place if it is not as it must be."""
        value = self._left.pop(name, None)
        if value is None:
            self._missing.append(name)
        elif value.shape != shape or value.dtype != np.float32:
            self._misshapen.append(f"{name} is {value.dtype} {value.shape}, not float32 {shape}")
        else:
            return value
        return np.zeros(shape, np.float32)

    def batch_norm(self, name: str, channels: int, *, affine: bool = True) -> tuple[Floats, Floats]:
        """A batch norm as what to multiply by and what to add then, (channels,) each."""
        mean = self.take(f"{name}.running_mean", channels).astype(np.float64)
        variance = self.take(f"{name}.running_var", channels).astype(np.float64)
        scale, shift = 1 / np.sqrt(variance + EPSILON), np.zeros(channels)
        if affine:
            scale = scale * self.take(f"{name}.weight", channels)
            shift = self.take(f"{name}.bias", channels).astype(np.float64)
        return scale.astype(np.float32), (shift - mean * scale).astype(np.float32)

    def complain(self, path: str) -> None:
        """Raise WeightsError unless every tensor was there and every one was used."""
        labels = {
            "missing": self._missing,
            "of another shape": self._misshapen,
            "not expected": list(self._left),
        }
        problems = [
            f"{label}: {', '.join(names[:NAMED])}"
            + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            for label, names in labels.items()
            if names
        ]
        if problems:
            raise WeightsError(f"{path} does not hold CAM++; {'; '.join(problems)}")


class _Network:
    """Writes the graph from the input to the output; x is always the name of the tensor so far."""

    def __init__(self, weights: _Weights) -> None:
        self._weights, self._graph = weights, Graph()
        self._averages = ""  # (frames, pieces): what to multiply frames by to get the mean of each 2 s piece
        self._pieces = ""  # (pieces, frames): what to multiply pieces by to give each frame its piece's

    def model(self) -> bytes:
        """Write everything."""
        add, integers = self._graph.add, self._graph.integers
        x = self._head(add("Unsqueeze", add("Transpose", INPUT, perm=(0, 2, 1)), integers(1)))
        x = add("Reshape", x, integers(0, HEAD * HEAD_HEIGHT, -1))
        tdnn = "xvector.tdnn.linear", (CHANNELS, HEAD * HEAD_HEIGHT, 5), "xvector.tdnn.nonlinear.batchnorm"
        x = add("Relu", self._convolution(x, *tdnn, stride=(2,)))
        self._cut(x)
        channels = CHANNELS
        for block, (layers, dilation) in enumerate(BLOCKS, start=1):
            for layer in range(1, layers + 1):
                name = f"xvector.block{block}.tdnnd{layer}"
                x = add("Concat", x, self._layer(x, name, channels, dilation), axis=1)
                channels += GROWTH
            x = self._norm_relu(x, f"xvector.transit{block}.nonlinear.batchnorm", channels)
            x = self._convolution(x, f"xvector.transit{block}.linear", (channels // 2, channels, 1))
            channels //= 2
        x = self._statistics(self._norm_relu(x, "xvector.out_nonlinear.batchnorm", channels))
        dense = "xvector.dense.linear", (WIDTH, 2 * channels, 1), "xvector.dense.nonlinear.batchnorm"
        x = add("Squeeze", self._convolution(x, *dense, affine=False), integers(2))
        return self._graph.model(
            {INPUT: ("batch", "frames", MEL_BINS)}, {OUTPUT: ("batch", WIDTH)}, {OUTPUT: x}
        )

    def _head(self, x: str) -> str:
        """(batch, 1, 80, frames) to (batch, 32, 10, frames)."""
        add, square = self._graph.add, (HEAD, HEAD, 3, 3)
        x = add("Relu", self._convolution(x, "head.conv1", (HEAD, 1, 3, 3), "head.bn1"))
        for name, stride in (("layer1.0", 2), ("layer1.1", 1), ("layer2.0", 2), ("layer2.1", 1)):
            block, strides = f"head.{name}", (stride, 1)
            y = add("Relu", self._convolution(x, f"{block}.conv1", square, f"{block}.bn1", stride=strides))
            y = self._convolution(y, f"{block}.conv2", square, f"{block}.bn2")
            if stride > 1:
                shortcut = f"{block}.shortcut.0", (HEAD, HEAD, 1, 1), f"{block}.shortcut.1"
                x = self._convolution(x, *shortcut, stride=strides)
            x = add("Relu", add("Add", y, x))
        return add("Relu", self._convolution(x, "head.conv2", square, "head.bn2", stride=(2, 1)))

    def _layer(self, x: str, name: str, channels: int, dilation: int) -> str:
        """The 32 channels that a dense layer adds: (batch, channels, frames) to (batch, 32, frames)."""
        add, cam = self._graph.add, f"{name}.cam_layer"
        x = self._norm_relu(x, f"{name}.nonlinear1.batchnorm", channels)
        bottleneck = f"{name}.linear1", (BOTTLENECK, channels, 1), f"{name}.nonlinear2.batchnorm"
        x = add("Relu", self._convolution(x, *bottleneck))
        local = self._convolution(x, f"{cam}.linear_local", (GROWTH, BOTTLENECK, 3), dilation=dilation)
        context = add("Add", add("ReduceMean", x, axes=(2,)), add("MatMul", x, self._averages))
        context = self._convolution(context, f"{cam}.linear1", (BOTTLENECK // 2, BOTTLENECK, 1), bias=True)
        context = self._convolution(
            add("Relu", context), f"{cam}.linear2", (GROWTH, BOTTLENECK // 2, 1), bias=True
        )
        return add("Mul", local, add("MatMul", add("Sigmoid", context), self._pieces))

    def _cut(self, x: str) -> None:
        """Cut the frames of (batch, channels, frames) into pieces of 2 s; the last may be shorter."""
        add, integers = self._graph.add, self._graph.integers
        numbers = (0, 1, 2, PIECE, PIECE - 1)
        zero, one, two, piece, rest = (self._graph.constant(np.array(each, np.int64)) for each in numbers)
        frames = add("Gather", add("Shape", x), two)
        belongs = add("Div", add("Range", zero, frames, one), piece)
        count = add("Div", add("Add", frames, rest), piece)
        inside = add("Equal", add("Unsqueeze", belongs, integers(1)), add("Range", zero, count, one))
        inside = add("Cast", inside, to=TYPES["float32"])
        self._averages = add("Div", inside, add("ReduceSum", inside, integers(0)))
        self._pieces = add("Transpose", inside, perm=(1, 0))

    def _statistics(self, x: str) -> str:
        """Mean and standard deviation over time: (batch, channels, frames) to (batch, 2 x channels, 1)."""
        add = self._graph.add
        mean = add("ReduceMean", x, axes=(2,))
        squares = add("ReduceSumSquare", add("Sub", x, mean), axes=(2,))
        frames = add("Cast", add("Gather", add("Shape", x), self._graph.integers(2)), to=TYPES["float32"])
        one = self._graph.constant(np.array(1, np.float32))
        return add("Concat", mean, add("Sqrt", add("Div", squares, add("Sub", frames, one))), axis=1)

    def _norm_relu(self, x: str, name: str, channels: int) -> str:
        """A batch norm that follows no convolution, and a ReLU."""
        scale, shift = self._weights.batch_norm(name, channels)
        still = [
            self._graph.constant(each) for each in (scale, shift, np.zeros_like(scale), np.ones_like(scale))
        ]
        return self._graph.add("Relu", self._graph.add("BatchNormalization", x, *still, epsilon=0.0))

    def _convolution(
        self, x: str, name: str, shape: tuple[int, ...], norm: str | None = None, *, bias: bool = False,
        affine: bool = True, stride: tuple[int, ...] | None = None, dilation: int = 1,
    ) -> str:  # fmt: skip
        """A convolution that keeps the size unless it has a stride, and the batch norm after it."""
        weight = self._weights.take(f"{name}.weight", *shape)
        offset = self._weights.take(f"{name}.bias", shape[0]) if bias else None
        if norm is not None:
            scale, offset = self._weights.batch_norm(norm, shape[0], affine=affine)
            weight = weight * scale.reshape(-1, *(1 for _ in shape[1:]))
        kernel = shape[2:]
        return self._graph.add(
            "Conv", x, self._graph.constant(weight), *([] if offset is None else [self._graph.constant(offset)]),
            kernel_shape=kernel, strides=stride or (1,) * len(kernel), dilations=(dilation,) * len(kernel),
            pads=tuple((size - 1) // 2 * dilation for size in kernel) * 2,
        )  # fmt: skip

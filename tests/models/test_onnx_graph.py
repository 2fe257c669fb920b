"""Graphs that are written here: onnxruntime loads them, and computes what they say."""

from __future__ import annotations

import numpy as np
import pytest

from realtime_server.errors import WeightsError
from realtime_server.models.onnx_graph import Graph
from realtime_server.models.onnx_session import open_session

pytestmark = pytest.mark.embedded

RNG = np.random.default_rng(0)


def test_a_graph_computes_what_it_says() -> None:
    graph, weights = Graph(), RNG.normal(size=(4, 300)).astype(np.float32)
    x = graph.add("MatMul", "in", graph.constant(weights))
    x = graph.add("LeakyRelu", x, alpha=0.25)
    x = graph.add("Concat", x, x, axis=-1)
    x = graph.add("Transpose", x, perm=(1, 0))
    x = graph.add("Unsqueeze", x, graph.integers(-1))
    session = open_session(graph.model({"in": ("rows", 4)}, {"out": (600, "rows", 1)}, {"out": x}))
    for rows in (1, 5):
        values = RNG.normal(size=(rows, 4)).astype(np.float32)
        expected = values @ weights
        expected = np.where(expected < 0, 0.25 * expected, expected)
        found = session.run(["out"], {"in": values})[0]
        assert np.allclose(found, np.concatenate([expected, expected], 1).T[..., None], atol=1e-5)


def test_numbers_of_any_size_are_written() -> None:
    numbers = np.array([0, 1, -1, 127, 128, 1 << 40, -(1 << 40)])
    graph = Graph()
    x = graph.add("Cast", graph.constant(numbers), to=1)
    session = open_session(graph.model({"in": (1,)}, {"out": (7,)}, {"out": graph.add("Add", "in", x)}))
    assert np.array_equal(session.run(None, {"in": np.zeros(1, np.float32)})[0], numbers.astype(np.float32))


def test_scalars_have_no_axes() -> None:
    graph = Graph()
    half = graph.constant(np.array(0.5, np.float32))
    session = open_session(graph.model({"in": ()}, {"out": ()}, {"out": graph.add("Add", "in", half)}))
    assert session.run(None, {"in": np.array(1, np.float32)})[0] == 1.5


def test_other_types_are_refused() -> None:
    with pytest.raises(KeyError):
        Graph().constant(np.zeros(3))


def test_what_is_no_graph_is_named() -> None:
    with pytest.raises(WeightsError, match="cannot load a thing"):
        open_session(b"no network", name="a thing")

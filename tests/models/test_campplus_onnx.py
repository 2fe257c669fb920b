"""CAM++ on onnxruntime: what the reference says of synthetic voices, and weights that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from realtime_server.errors import WeightsError
from realtime_server.models import torch_archive
from realtime_server.models.campplus_onnx import CamPlusPlusOnnx, build
from realtime_server.models.onnx_session import open_session
from realtime_server.models.speaker_features import features, samples_of
from realtime_server.models.speaker_network import CAMPPLUS_FILE, Floats
from tests.models.speaker import Array, archive, network, weights_folder
from tests.models.voices import VOICES, voice

pytestmark = pytest.mark.embedded

VECTORS = Path(__file__).parents[1] / "data" / "campplus-vectors.json"  # made by tests/reference
TOLERANCE = 1e-5  # of embeddings of length 1


def unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit


@pytest.fixture(scope="module")
def tensors() -> dict[str, Array]:
    return torch_archive.read(weights_folder() / CAMPPLUS_FILE)


@pytest.mark.parametrize("index", range(len(VOICES)))
def test_embeddings_are_the_references(index: int) -> None:
    expected = np.array(json.loads(VECTORS.read_text())[index])
    found = network().embed(features(voice(*VOICES[index]))[None])
    assert found.shape == (1, network().width)
    assert np.abs(unit(found[0]) - unit(expected)).max() < TOLERANCE


def test_windows_of_a_batch_do_not_disturb_each_other() -> None:
    windows = np.stack([features(voice(hz, 1.5, seed)) for seed, hz in enumerate((90, 120, 160, 210, 280))])
    together = network().embed(windows)
    for window, embedding in zip(windows, together, strict=True):
        assert np.abs(unit(network().embed(window[None])[0]) - unit(embedding)).max() < TOLERANCE


@pytest.mark.parametrize("more", [0, 1, 2])
def test_the_shortest_window_has_an_embedding(more: int) -> None:
    shortest = features(voice(150, 1.0)[: samples_of(network().fewest_frames + more)])
    assert np.isfinite(network().embed(shortest[None])).all()


def test_silence_has_an_embedding() -> None:
    embedding = network().embed(features(np.zeros(24_000, np.float32))[None])
    assert np.isfinite(embedding).all()
    assert np.linalg.norm(embedding) > 0.1


def test_the_same_weights_make_the_same_graph(tensors: dict[str, Array]) -> None:
    assert build(tensors, "x") == build(tensors, "x")
    open_session(build(tensors, "x"))


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"has no {CAMPPLUS_FILE}"):
        CamPlusPlusOnnx.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("xvector.transit1.linear.weight", None, "missing: xvector.transit1.linear.weight$"),
        ("head.bn1.bias", np.zeros(31, np.float32),
         r"of another shape: head.bn1.bias is float32 \(31,\), not float32 \(32,\)$"),
        ("head.bn1.bias", np.zeros(32, np.int64), "of another shape: head.bn1.bias is int64"),
        ("xvector.dense.linear.bias", np.zeros(192, np.float32), "not expected: xvector.dense.linear.bias$"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_named(
    tmp_path: Path, tensors: dict[str, Array], name: str, value: Array | None, complaint: str
) -> None:
    changed = {key: each for key, each in tensors.items() if key != name}
    archive(tmp_path / CAMPPLUS_FILE, changed if value is None else changed | {name: value})
    with pytest.raises(WeightsError, match=f"{CAMPPLUS_FILE} does not hold CAM\\+\\+; {complaint}"):
        CamPlusPlusOnnx.load(tmp_path)


def test_weights_of_another_network_are_named() -> None:
    with pytest.raises(
        WeightsError, match=r"missing: head\.conv1\.weight, .* and \d+ more; not expected: other$"
    ):
        build({"other": np.zeros(1, np.float32)}, "x.pt")

"""Speaker networks on PyTorch: loaded strictly, and the same as on onnxruntime where there are both."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from realtime_server.errors import ConfigurationError, WeightsError  # noqa: E402
from realtime_server.models import torch_archive  # noqa: E402
from realtime_server.models.campplus import CamPlusPlus  # noqa: E402
from realtime_server.models.eres2netv2 import ERes2NetV2  # noqa: E402
from realtime_server.models.speaker_network import CAMPPLUS_FILE, ERES2NETV2_FILE, Floats  # noqa: E402
from realtime_server.models.speaker_torch import TorchNetwork  # noqa: E402

pytestmark = pytest.mark.torch

FILES = {CamPlusPlus: CAMPPLUS_FILE, ERes2NetV2: ERES2NETV2_FILE}
TOLERANCE = 1e-5  # of embeddings of length 1


@cache
def random_weights(kind: type[Any]) -> dict[str, Any]:
    """Random weights, and batch norms that have seen some noise: what goes through the network stays of one size."""
    torch.manual_seed(0)
    module = kind().train()
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.momentum = 1.0
            if layer.affine:
                torch.nn.init.normal_(layer.weight, 1.0, 0.2)
                torch.nn.init.normal_(layer.bias, 0.0, 0.2)
    with torch.no_grad():
        module(torch.from_numpy(windows(100, batch=8)))
    return dict(module.state_dict())


def windows(frames: int, batch: int = 2) -> Floats:
    noise: Floats = np.random.default_rng(frames).normal(0, 1, (batch, frames, 80)).astype(np.float32)
    return noise


def unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CAM++ with random weights."""
    path = tmp_path_factory.mktemp("campplus")
    torch.save(random_weights(CamPlusPlus), path / CAMPPLUS_FILE)
    return path


# Pieces of 2 s end where ceil(frames / 2) is 100, 200, ...
@pytest.mark.parametrize("frames", [3, 4, 5, 148, 199, 200, 201, 202, 399, 401, 650])
def test_campplus_is_the_same_on_onnxruntime(folder: Path, frames: int) -> None:
    pytest.importorskip("onnxruntime", reason="the CPU recognizer is not installed")
    from realtime_server.models.campplus_onnx import CamPlusPlusOnnx

    ours, graph = TorchNetwork.load(folder), CamPlusPlusOnnx.load(folder)
    expected, found = ours.embed(windows(frames)), graph.embed(windows(frames))
    assert (ours.width, ours.fewest_frames) == (graph.width, graph.fewest_frames)
    assert found.shape == expected.shape == (2, ours.width)
    assert np.abs(unit(found) - unit(expected)).max() < TOLERANCE
    assert np.abs(expected[0] - expected[1]).max() > 0.01, "a constant would agree too"


def test_archives_are_read_as_pytorch_reads_them(folder: Path) -> None:
    found = torch_archive.read(folder / CAMPPLUS_FILE)
    expected = torch.load(folder / CAMPPLUS_FILE, weights_only=True)
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name], each.numpy()) for name, each in expected.items())


@pytest.mark.parametrize("frames", [9, 10, 148])
def test_eres2netv2_has_the_same_interface(tmp_path: Path, frames: int) -> None:
    torch.save(random_weights(ERes2NetV2), tmp_path / ERES2NETV2_FILE)
    network = TorchNetwork.load(tmp_path)
    assert (network.width, network.fewest_frames) == (192, 9)
    together = network.embed(windows(frames))
    assert np.isfinite(together).all()
    assert np.abs(together[0] - together[1]).max() > 0.01
    alone = np.concatenate([network.embed(each[None]) for each in windows(frames)])
    assert np.abs(unit(alone) - unit(together)).max() < TOLERANCE


def test_eres2netv2_is_of_the_published_size() -> None:
    assert sum(each.numel() for each in ERes2NetV2().parameters()) == 17_859_632


@pytest.mark.parametrize("kind", [CamPlusPlus, ERes2NetV2])
def test_weights_are_loaded_strictly(tmp_path: Path, kind: type[Any]) -> None:
    weights, path = random_weights(kind), tmp_path / FILES[kind]
    torch.save({name: each for name, each in weights.items() if "num_batches" not in name}, path)
    TorchNetwork.load(tmp_path)  # counters of training may be missing
    first, last = next(iter(weights)), [name for name in weights if "num_batches" not in name][-1]
    torch.save({name: each for name, each in weights.items() if name != last}, path)
    with pytest.raises(WeightsError, match=f"missing: {last}"):
        TorchNetwork.load(tmp_path)
    torch.save(weights | {"more": torch.zeros(1)}, path)
    with pytest.raises(WeightsError, match="not expected: more"):
        TorchNetwork.load(tmp_path)
    torch.save(weights | {first: torch.zeros(2, 3)}, path)
    with pytest.raises(WeightsError, match=f"of another shape: {first} is 2x3, not"):
        TorchNetwork.load(tmp_path)


def test_old_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / ERES2NETV2_FILE
    weights = random_weights(ERes2NetV2)
    torch.save(weights, path)
    expected = TorchNetwork.load(tmp_path).embed(windows(150))
    torch.save(weights, path, _use_new_zipfile_serialization=False)
    assert np.array_equal(TorchNetwork.load(tmp_path).embed(windows(150)), expected)


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"has no {CAMPPLUS_FILE}"):
        TorchNetwork.load(tmp_path)
    (tmp_path / CAMPPLUS_FILE).write_bytes(b"version https")
    with pytest.raises(WeightsError, match="cannot be opened"):
        TorchNetwork.load(tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [CamPlusPlus, ERes2NetV2])
def test_a_gpu_says_the_same(tmp_path: Path, kind: type[Any]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    torch.save(random_weights(kind), tmp_path / FILES[kind])
    for frames in (9, 148, 401):
        expected = TorchNetwork.load(tmp_path).embed(windows(frames))
        found = TorchNetwork.load(tmp_path, "cuda").embed(windows(frames))
        assert np.abs(unit(found) - unit(expected)).max() < 10 * TOLERANCE


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_named(folder: Path, device: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot use the device '{device}'"):
        TorchNetwork.load(folder, device)

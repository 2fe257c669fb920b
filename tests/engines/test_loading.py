"""What is loaded by name, and what an operator is told who lacks something."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from realtime_server.core.jobs import Embeddings, EmbedJob, Window
from realtime_server.engines.base import Embedder
from realtime_server.engines.fake import FakeEmbedder
from realtime_server.engines.loading import EngineOptions, SpeakerOptions, load_embedder, load_scorer
from realtime_server.errors import ConfigurationError, WeightsError
from realtime_server.models.speaker_network import CAMPPLUS_FILE, ERES2NETV2_FILE
from tests.models.speaker import weights_folder

ERES2NETV2_WIDTH = 192


async def embed_noise(embedder: Embedder) -> Embeddings:
    """One window through a network, which is closed then."""
    noise = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    try:
        return await embedder.embed(EmbedJob(0, "s", 1, 0, 0, (Window(0, 24_000),), (noise,)))
    finally:
        await embedder.aclose()


def test_the_fake_needs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REALTIME_SERVER_CACHE", str(tmp_path))
    for package in ("scipy", "onnxruntime", "kaldi_native_fbank"):
        monkeypatch.setitem(sys.modules, package, None)
    assert isinstance(load_embedder(SpeakerOptions(), "bands"), FakeEmbedder)


def test_options_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="threads"):
        SpeakerOptions(threads=0)


def test_workers_for_loudness_and_less_than_none_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--vad fsmn only"):
        load_scorer(EngineOptions(vad_workers=1), "level")
    with pytest.raises(ConfigurationError, match="negative"):
        EngineOptions(vad_workers=-1)


@pytest.mark.parametrize("package", ["kaldi_native_fbank", "onnxruntime"])
def test_what_workers_lack_is_told_before_they_are_started(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"'{package}' is not installed; run: .*embedded"):
        load_scorer(EngineOptions(vad_workers=1), "fsmn")


@pytest.mark.embedded
class TestNetwork:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        for package in ("scipy", "threadpoolctl", "onnxruntime", "kaldi_native_fbank"):
            pytest.importorskip(package)

    async def test_fetched_weights_are_used(self) -> None:
        weights_folder()
        embedder = load_embedder(SpeakerOptions(), "network")
        await embedder.warmup()
        assert (await embed_noise(embedder)).shape == (1, 192)

    def test_without_weights_it_says_what_to_run(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("REALTIME_SERVER_CACHE", str(tmp_path))
        with pytest.raises(WeightsError, match=r"models fetch speakers"):
            load_embedder(SpeakerOptions(), "network")

    def test_a_folder_of_the_operators_is_checked(self, tmp_path: Path) -> None:
        (tmp_path / CAMPPLUS_FILE).write_bytes(b"something else")
        with pytest.raises(WeightsError, match=CAMPPLUS_FILE):
            load_embedder(SpeakerOptions(model=tmp_path), "network")

    @pytest.mark.parametrize("package", ["scipy", "threadpoolctl"])
    def test_without_a_package_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch, package: str
    ) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            ConfigurationError, match=rf"'{package}.*pip install 'realtime-server\[speakers\]'"
        ):
            load_embedder(SpeakerOptions(), "network")

    @pytest.mark.parametrize("case", ["device", "other network"])
    def test_without_pytorch_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
    ) -> None:
        weights_folder()
        (tmp_path / ERES2NETV2_FILE).touch()
        options = SpeakerOptions(device="cuda") if case == "device" else SpeakerOptions(model=tmp_path)
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.delitem(sys.modules, "realtime_server.models.speaker_torch", raising=False)
        monkeypatch.delitem(sys.modules, "realtime_server.models.campplus", raising=False)
        with pytest.raises(ConfigurationError, match=r"'torch'.*pip install 'realtime-server\[torch\]'"):
            load_embedder(options, "network")


@pytest.mark.torch
async def test_another_network_is_loaded_from_a_folder(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("scipy")
    from realtime_server.models.eres2netv2 import ERes2NetV2

    torch.save(ERes2NetV2().state_dict(), tmp_path / ERES2NETV2_FILE)
    vectors = await embed_noise(load_embedder(SpeakerOptions(model=tmp_path), "network"))
    assert vectors.shape == (1, ERES2NETV2_WIDTH)

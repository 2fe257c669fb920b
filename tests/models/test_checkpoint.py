"""Checkpoints: found, opened, compared with the model, and named in errors."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.errors import ConfigurationError, WeightsError  # noqa: E402
from realtime_server.models.checkpoint import Checkpoint, dtype_named, locate  # noqa: E402
from realtime_server.models.fun_asr_nano import FunAsrNano  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch

NORM = "audio_encoder.encoders.0.norm1.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return nano.write_folder(tmp_path / "model")


def rewrite(folder: Path, weights: Any) -> Path:
    torch.save(weights, folder / "model.pt")
    return folder


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(folder / "model.pt", weights_only=True))


# --- finding it --------------------------------------------------------------------------------------------


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("model", ["./no/such", "nothing", "/a/b", "a/b/c", "../x", ""])
def test_what_is_neither_folder_nor_name(model: str) -> None:
    with pytest.raises(WeightsError, match="no name of a model on a hub"):
        locate(model if model else "no folder")


@pytest.mark.parametrize(("hub", "package"), [("ms", "modelscope"), ("hf", "huggingface_hub")])
def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch, hub: Any, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        WeightsError, match=f"needs the package {package}: pip install {package}, or give the folder"
    ):
        locate("owner/name", hub)


@pytest.mark.parametrize(("hub", "package"), [("ms", "modelscope"), ("hf", "huggingface_hub")])
@pytest.mark.parametrize("offline", ["", "1"])
def test_the_hubs_own_client_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hub: Any, package: str, offline: str
) -> None:
    asked = []

    def download(model: str, *, local_files_only: bool) -> str:
        asked.append((model, local_files_only))
        return str(tmp_path)

    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    monkeypatch.setitem(sys.modules, package, SimpleNamespace(snapshot_download=download))
    assert locate("FunAudioLLM/Fun-ASR-Nano-2512", hub) == tmp_path
    assert asked == [("FunAudioLLM/Fun-ASR-Nano-2512", bool(offline))]


@pytest.mark.parametrize(
    ("offline", "why"),
    [("", "from Hugging Face: no route to host; check the name"), ("1", "HF_HUB_OFFLINE is set")],
)
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, offline: str, why: str) -> None:
    def download(model: str, *, local_files_only: bool) -> str:
        raise LookupError("no route to host\nand a trace")

    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=download))
    with pytest.raises(WeightsError, match=why):
        locate("owner/name", "hf")


def test_the_real_client_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="asks the real client, which is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsError, match="HF_HUB_OFFLINE is set, and its cache has no copy"):
        locate("realtime-server-tests/no-such-model", "hf")


# --- opening it --------------------------------------------------------------------------------------------


def test_a_whole_checkpoint(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.has_ctc
    assert checkpoint.config.encoder.width == 64
    assert checkpoint.ctc_tokenizer() is not None
    assert checkpoint.text_tokenizer().encode("<|im_end|>") == [262]
    assert caplog.records == []


@pytest.mark.parametrize("wrap", ["state_dict", "model_state_dict", "model"])
def test_what_trainers_wrap_around(folder: Path, wrap: str) -> None:
    plain = Checkpoint.open(folder).tensors
    inner = {f"module.{name}": tensor for name, tensor in weights_of(folder).items()}
    found = Checkpoint.open(rewrite(folder, {wrap: inner, "epoch": 3})).tensors
    assert found.keys() == plain.keys()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        b"PK\x03\x04 cut short",
        b"\x80\x02.",
    ],
)
def test_a_damaged_model_pt_is_named(folder: Path, content: bytes | None) -> None:
    path = folder / "model.pt"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(WeightsError, match=r"model\.pt cannot be opened .* get it again"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("content", [[1, 2], {}, {"state_dict": {}}, {"a": 1}])
def test_a_model_pt_without_weights(folder: Path, content: Any) -> None:
    with pytest.raises(WeightsError, match=r"model\.pt holds no weights"):
        Checkpoint.open(rewrite(folder, content))


def test_a_missing_model_pt(folder: Path) -> None:
    (folder / "model.pt").unlink()
    with pytest.raises(WeightsError, match=r"has no model\.pt"):
        Checkpoint.open(folder)


class Malice:
    """What a pickle could do if it were allowed to."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('executed')",))


def test_nothing_in_it_is_executed(folder: Path) -> None:
    with pytest.raises(WeightsError, match="cannot be opened"):
        Checkpoint.open(rewrite(folder, {"a": Malice()}))


def test_unknown_parts_are_left_out_with_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint.open(rewrite(folder, weights_of(folder) | {"optimizer.x": torch.ones(1)}))
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["optimizer.x"]
    FunAsrNano.load(checkpoint)


# --- comparing it ------------------------------------------------------------------------------------------


def broken(folder: Path, changes: dict[str, torch.Tensor | None]) -> str:
    """The error of a checkpoint whose weights are changed; None removes one."""
    weights = weights_of(folder) | changes
    rewrite(folder, {name: tensor for name, tensor in weights.items() if tensor is not None})
    with pytest.raises(WeightsError) as caught:
        FunAsrNano.load(Checkpoint.open(folder))
    return str(caught.value)


def test_missing_tensors_are_named(folder: Path) -> None:
    assert f"missing: {NORM}" in broken(folder, {NORM: None})


def test_many_missing_tensors_are_counted(folder: Path) -> None:
    names = [name for name in weights_of(folder) if name.startswith("audio_adaptor.")]
    message = broken(folder, dict.fromkeys(names))
    assert "audio_adaptor.linear1.weight" in message
    assert f"and {len(names) - 4} more" in message


def test_unexpected_tensors_are_named(folder: Path) -> None:
    extra = "audio_encoder.encoders.3.norm1.weight"
    assert f"not expected: {extra}" in broken(folder, {extra: torch.ones(64)})


def test_tensors_of_another_shape_are_named(folder: Path) -> None:
    message = broken(folder, {NORM: torch.ones(2, 3), "audio_encoder.tp_norm.bias": torch.tensor(1.0)})
    assert f"of another shape: {NORM} is 2x3, not 64" in message
    assert "audio_encoder.tp_norm.bias is a number, not 64" in message


def test_missing_embeddings_are_named(folder: Path) -> None:
    assert "missing: llm.model.embed_tokens.weight" in broken(folder, {"llm.model.embed_tokens.weight": None})


def test_the_language_models_layers_are_left_alone(folder: Path) -> None:
    layers = {name: t for name, t in weights_of(folder).items() if not name.startswith("llm.model.layers")}
    model = FunAsrNano.load(
        Checkpoint.open(rewrite(folder, layers | {"llm.model.layers.0.odd": torch.ones(1)}))
    )
    loaded = model.state_dict()
    assert loaded
    assert not any(name.startswith("llm.model.layers") for name in loaded)


# --- the CTC branch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["ctc_decoder.", "ctc.", "ctc"])
def test_without_ctc_weights_there_are_no_word_times(
    folder: Path, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    rest = {name: tensor for name, tensor in weights_of(folder).items() if not name.startswith(gone)}
    with caplog.at_level(logging.WARNING):
        checkpoint = Checkpoint.open(rewrite(folder, rest))
        model = FunAsrNano.load(checkpoint)
    assert not checkpoint.has_ctc
    assert checkpoint.ctc_tokenizer() is None
    assert not model.has_ctc
    (record,) = caplog.records
    assert "lacks weights of the CTC branch" in record.getMessage()
    assert "words will have no times" in record.getMessage()


def test_a_checkpoint_that_never_had_a_branch_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = nano.write_folder(tmp_path, {"ctc_decoder": None})
    assert not Checkpoint.open(folder).has_ctc
    assert caplog.records == []


def test_a_ctc_branch_of_another_shape_is_an_error(folder: Path) -> None:
    assert "ctc.ctc_lo.bias is 3, not 300" in broken(folder, {"ctc.ctc_lo.bias": torch.ones(3)})


def test_a_vocabulary_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    folder = nano.write_folder(tmp_path, {"ctc_vocab_size": 250})
    with pytest.raises(WeightsError, match=r"ids up to 265, but config\.yaml has the blank at 249"):
        Checkpoint.open(folder).ctc_tokenizer()


def test_a_missing_vocabulary_is_an_error(folder: Path) -> None:
    (folder / "multilingual.tiktoken").unlink()
    with pytest.raises(WeightsError, match=r"cannot read the CTC vocabulary .*multilingual\.tiktoken"):
        FunAsrNano.load(Checkpoint.open(folder))


# --- dtypes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "fp16", "half"])
def test_float16_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"float16 makes .* use bfloat16"):
        dtype_named(name)


def test_float16_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"float16 makes .* use bfloat16"):
        FunAsrNano.load(Checkpoint.open(folder), dtype=torch.float16)


def test_dtypes_by_name() -> None:
    assert (dtype_named("bfloat16"), dtype_named("fp32")) == (torch.bfloat16, torch.float32)
    with pytest.raises(ConfigurationError, match="'int8' is no dtype"):
        dtype_named("int8")

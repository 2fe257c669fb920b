"""The language model's folder: what is in it, and that it is whole or not there."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.errors import WeightsError  # noqa: E402
from realtime_server.models import llm_weights  # noqa: E402
from realtime_server.models.checkpoint import Checkpoint  # noqa: E402
from realtime_server.models.llm_weights import HEAD, SOURCE, split_llm, write_safetensors  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return nano.write_folder(tmp_path / "model")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def names(cache: Path) -> list[str]:
    """What lies in the cache."""
    return sorted(path.name for path in (cache / "llm").iterdir()) if (cache / "llm").is_dir() else []


def rewrite(folder: Path, changes: dict[str, torch.Tensor | None]) -> None:
    weights = dict(torch.load(folder / "model.pt", weights_only=True)) | changes
    torch.save({name: tensor for name, tensor in weights.items() if tensor is not None}, folder / "model.pt")


# --- what is in it -----------------------------------------------------------------------------------------


def test_weights_are_the_checkpoints(folder: Path, cache: Path) -> None:
    safetensors = pytest.importorskip(
        "safetensors.torch", reason="reads what was written with the package safetensors"
    )
    checkpoint = Checkpoint.open(folder)
    found = safetensors.load_file(split_llm(checkpoint, cache) / "model.safetensors")
    expected = {name[4:]: tensor for name, tensor in checkpoint.tensors.items() if name.startswith("llm.")}
    del expected[HEAD]  # tied to the embeddings
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_dtypes_and_odd_shapes_are_kept(tmp_path: Path) -> None:
    safetensors = pytest.importorskip(
        "safetensors.torch", reason="reads what was written with the package safetensors"
    )
    tensors = {
        "a": torch.randn(3, 5).bfloat16(),
        "transposed": torch.randn(4, 2).T,
        "half": torch.randn(7).half(),
        "one": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
    }
    write_safetensors(tmp_path / "x", tensors)
    found = safetensors.load_file(tmp_path / "x")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert {name: tensor.dtype for name, tensor in found.items()} == {n: t.dtype for n, t in tensors.items()}


def test_config_and_tokenizer_come_along_and_weights_do_not(folder: Path, cache: Path) -> None:
    (folder / "Qwen3-0.6B" / "pytorch_model.bin").write_bytes(b"weights of another model")
    found = split_llm(Checkpoint.open(folder), cache)
    assert sorted(path.name for path in found.iterdir()) == [
        "config.json",
        "model.safetensors",
        SOURCE,
        "tokenizer.json",
    ]
    assert (found / "config.json").read_bytes() == (folder / "Qwen3-0.6B" / "config.json").read_bytes()


def test_transformers_loads_it(folder: Path, cache: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="loads what was written with transformers")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        split_llm(Checkpoint.open(folder), cache), output_loading_info=True
    )
    assert not any(report.values())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_the_shapes_are_those_of_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**nano.QWEN3))
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name != HEAD}
    found = llm_weights.llm_tensors(Checkpoint.open(folder))
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == expected


# --- what it is compared with ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"llm.model.norm.weight": None}, "missing: model.norm.weight"),
        (
            {"llm.model.layers.2.mlp.up_proj.weight": torch.ones(1)},
            "not expected: model.layers.2.mlp.up_proj.weight",
        ),
        ({"llm.model.norm.weight": torch.ones(3)}, "of another shape: model.norm.weight is 3, not 64"),
        (
            {"llm.model.norm.weight": torch.ones(64, dtype=torch.int8)},
            "weights are torch.int8, not floating point",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    folder: Path, cache: Path, changes: dict[str, torch.Tensor | None], complaint: str
) -> None:
    rewrite(folder, changes)
    with pytest.raises(WeightsError) as caught:
        split_llm(Checkpoint.open(folder), cache)
    assert complaint in str(caught.value)
    assert names(cache) == []


def test_a_head_of_its_own_is_kept(tmp_path: Path, cache: Path) -> None:
    folder = nano.write_folder(tmp_path / "model", qwen3={"tie_word_embeddings": False})
    assert HEAD in llm_weights.llm_tensors(Checkpoint.open(folder))
    rewrite(folder, {f"llm.{HEAD}": None})
    with pytest.raises(WeightsError, match=f"missing: {HEAD}"):
        split_llm(Checkpoint.open(folder), cache)


def test_buffers_of_old_checkpoints_are_left_out(folder: Path) -> None:
    rewrite(folder, {"llm.model.rotary_emb.inv_freq": torch.ones(16)})
    assert "model.rotary_emb.inv_freq" not in llm_weights.llm_tensors(Checkpoint.open(folder))


def test_of_other_kinds_the_embeddings_are_compared(tmp_path: Path, cache: Path) -> None:
    folder = nano.write_folder(tmp_path / "model")
    nano.write_settings(folder, qwen3={"model_type": "llama"})
    rewrite(folder, {"llm.model.odd": torch.ones(1)})
    assert (split_llm(Checkpoint.open(folder), cache) / "model.safetensors").is_file()
    rewrite(folder, {"llm.model.embed_tokens.weight": torch.ones(2, 2)})
    with pytest.raises(WeightsError, match=r"embed_tokens\.weight is 2x2, not 320x64"):
        split_llm(Checkpoint.open(folder), cache)


# --- that it is whole or not there -------------------------------------------------------------------------


def test_it_is_written_once(folder: Path, cache: Path) -> None:
    first = split_llm(Checkpoint.open(folder), cache)
    before = (first / "model.safetensors").stat()
    assert split_llm(Checkpoint.open(folder), cache) == first
    assert (first / "model.safetensors").stat() == before
    assert names(cache) == [first.name]


def test_a_changed_checkpoint_takes_the_place_of_the_old(folder: Path, cache: Path, tmp_path: Path) -> None:
    other = split_llm(Checkpoint.open(nano.write_folder(tmp_path / "other")), cache)
    old = split_llm(Checkpoint.open(folder), cache)
    rewrite(folder, {"llm.model.norm.weight": torch.zeros(64)})
    new = split_llm(Checkpoint.open(folder), cache)
    assert names(cache) == sorted([other.name, new.name])
    (folder / "Qwen3-0.6B" / "generation_config.json").write_text("{}")
    newer = split_llm(Checkpoint.open(folder), cache)
    assert len({old, new, newer}) == 3
    assert names(cache) == sorted([other.name, newer.name])


def test_a_damaged_note_of_the_source_does_no_harm(folder: Path, cache: Path) -> None:
    stranger = cache / "llm" / "stranger"
    stranger.mkdir(parents=True)
    (stranger / SOURCE).write_text("{")
    split_llm(Checkpoint.open(folder), cache)
    assert stranger.is_dir()


def test_an_interrupted_run_leaves_nothing(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, tensors: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm_weights, "write_safetensors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            split_llm(Checkpoint.open(folder), cache)
    assert names(cache) == []
    assert (split_llm(Checkpoint.open(folder), cache) / "model.safetensors").is_file()


def test_what_a_killed_run_left_is_removed_after_a_day(folder: Path, cache: Path) -> None:
    old, young = cache / "llm" / ".a.partial", cache / "llm" / ".b.partial"
    for path in (old, young):
        path.mkdir(parents=True)
        (path / "model.safetensors").write_bytes(b"half")
    os.utime(old, (time.time() - 25 * 3600,) * 2)
    found = split_llm(Checkpoint.open(folder), cache)
    assert names(cache) == sorted([young.name, found.name])


def test_another_process_may_be_first(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(folder)
    theirs = split_llm(checkpoint, cache)
    kept = cache / "theirs"
    theirs.rename(kept)

    def beaten(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        write_safetensors(path, tensors)
        kept.rename(theirs)

    monkeypatch.setattr(llm_weights, "write_safetensors", beaten)
    inode = (kept / "model.safetensors").stat().st_ino
    assert split_llm(checkpoint, cache) == theirs
    assert (theirs / "model.safetensors").stat().st_ino == inode
    assert names(cache) == [theirs.name]


def _split(folder: Path, cache: Path) -> str:
    return str(split_llm(Checkpoint.open(folder), cache))


def test_processes_that_start_together_end_with_one_folder(folder: Path, cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_split, [(folder, cache)] * 4)
    assert len(set(found)) == 1
    assert names(cache) == [Path(found[0]).name]


def test_too_little_space_is_said_before_anything_is_written(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        WeightsError, match=r"need 0 MB in .*, 0 MB are free; free some space, or set REALTIME_SERVER_CACHE"
    ):
        split_llm(Checkpoint.open(folder), cache)
    assert names(cache) == []


def _split_on_a_small_disk(folder: Path, cache: Path) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # a write beyond fails, as on a full disk
    try:
        return str(split_llm(Checkpoint.open(folder), cache))
    except WeightsError as error:
        return str(error)


def test_a_disk_that_fills_up_is_an_error_that_says_so(folder: Path, cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        message = pool.apply(_split_on_a_small_disk, (folder, cache))
    assert "cannot write the language model's weights to" in message
    assert "free some space, or set REALTIME_SERVER_CACHE" in message
    assert names(cache) == []


def test_a_cache_that_cannot_be_written_is_an_error_that_says_so(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="check its permissions, or set REALTIME_SERVER_CACHE"):
        split_llm(Checkpoint.open(folder), tmp_path / "file")


def test_the_source_is_noted(folder: Path, cache: Path) -> None:
    note = json.loads((split_llm(Checkpoint.open(folder), cache) / SOURCE).read_text())
    assert note == {"model": str((folder / "model.pt").resolve())}

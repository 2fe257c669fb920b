"""GLM-ASR-Nano folders: read, compared with the model, named in errors, and their language model taken out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the GLM-ASR-Nano engine is not installed")

from realtime_server.errors import WeightsError  # noqa: E402
from realtime_server.models.glm_asr import GlmAsr  # noqa: E402
from realtime_server.models.glm_checkpoint import GlmCheckpoint, GlmConfig  # noqa: E402
from realtime_server.models.llm_weights import HEAD, write_llm, write_safetensors  # noqa: E402
from tests.models import glm  # noqa: E402

safetensors = pytest.importorskip(
    "safetensors.torch", reason="reads checkpoints with the package safetensors"
)
pytestmark = pytest.mark.torch

NORM = "audio_tower.layers.1.input_layernorm.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return glm.write_folder(tmp_path / "model")


def change(folder: Path, section: str, values: dict[str, Any]) -> Path:
    """Change settings; None removes one."""
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    part = settings[section] if section else settings
    part |= values
    for name in [name for name, value in values.items() if value is None]:
        del part[name]
    glm.write_json(folder / "config.json", settings)
    return folder


def rewrite(folder: Path, changes: dict[str, torch.Tensor | None]) -> Path:
    weights = safetensors.load_file(folder / "model.safetensors")
    weights = {name: tensor.clone() for name, tensor in weights.items()} | changes
    (folder / "model.safetensors").unlink()
    kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
    write_safetensors(folder / "model.safetensors", kept)
    return folder


# --- settings ----------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_settings(folder: Path) -> None:
    config = GlmConfig.read(folder)
    encoder = config.encoder
    assert (encoder.mels, encoder.width, encoder.heads, encoder.inner, encoder.layers) == (128, 64, 4, 256, 2)
    assert (encoder.frames, encoder.rotary, encoder.theta) == (1500, 8, 10_000.0)
    assert (config.llm.vocabulary, config.llm.width, config.llm.kind) == (288, 64, "llama")
    assert config.stop_ids == (260, 262)


def test_one_stop_token_may_stand_alone(folder: Path) -> None:
    assert GlmConfig.read(change(folder, "text_config", {"eos_token_id": 5})).stop_ids == (5,)


def test_what_transformers_writes_is_read(folder: Path, tmp_path: Path) -> None:
    glmasr = pytest.importorskip("transformers.models.glmasr", reason="writes settings with transformers")
    glmasr.GlmAsrConfig.from_pretrained(folder).save_pretrained(tmp_path / "other")
    found = GlmConfig.read(tmp_path / "other")
    assert (found.encoder, found.stop_ids) == (GlmConfig.read(folder).encoder, (260, 262))
    glmasr.GlmAsrConfig().save_pretrained(tmp_path / "published")
    published = GlmConfig.read(tmp_path / "published")
    assert (published.encoder.width, published.encoder.layers, published.encoder.rotary) == (1280, 32, 32)
    assert (published.llm.width, published.stop_ids) == (2048, (59246, 59253, 59255))


@pytest.mark.parametrize(
    ("section", "values", "complaint"),
    [
        ("", {"model_type": "qwen3_asr"}, "model_type is 'qwen3_asr', not glmasr"),
        ("", {"whisper_config": {}}, "layout of the model's first release"),
        ("", {"audio_config": None}, "audio_config is missing"),
        ("", {"projector_hidden_act": "relu"}, "projector_hidden_act is 'relu', not gelu"),
        ("audio_config", {"num_mel_bins": None}, "audio_config.num_mel_bins is missing"),
        ("audio_config", {"num_attention_heads": 7}, "a multiple of the 7 num_attention_heads"),
        ("audio_config", {"num_key_value_heads": 2}, "num_key_value_heads is 2, not 4"),
        ("audio_config", {"intermediate_size": 128}, "intermediate_size is 128, not 256"),
        ("audio_config", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn', not default"),
        (
            "audio_config",
            {"rope_parameters": {"rope_theta": -1}},
            "rope_theta is -1, not a number above zero",
        ),
        ("text_config", {"hidden_size": None}, "text_config.hidden_size is missing"),
        ("text_config", {"eos_token_id": None}, "text_config.eos_token_id is None"),
        ("text_config", {"eos_token_id": []}, r"text_config.eos_token_id is \[\]"),
    ],
)
def test_settings_that_cannot_be(folder: Path, section: str, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WeightsError, match=complaint):
        GlmConfig.read(change(folder, section, values))


# --- weights -----------------------------------------------------------------------------------------------


def test_weights_may_lie_in_several_files(folder: Path) -> None:
    whole = GlmAsr.load(GlmCheckpoint.open(folder)).state_dict()
    weights = safetensors.load_file(folder / "model.safetensors")
    names = sorted(weights)
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for place in set(places.values()):
        write_safetensors(folder / place, {name: weights[name] for name in names if places[name] == place})
    (folder / "model.safetensors").unlink()
    glm.write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})
    checkpoint = GlmCheckpoint.open(folder)
    assert all(torch.equal(t, whole[name]) for name, t in GlmAsr.load(checkpoint).state_dict().items())
    assert checkpoint.llm_tensors()
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"has no model-00002-of-00002\.safetensors"):
        GlmCheckpoint.open(folder)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({NORM: None}, f"missing: {NORM}"),
        ({NORM: torch.ones(3)}, f"of another shape: {NORM} is 3, not 64"),
        ({"audio_tower.more.weight": torch.ones(1)}, r"not expected: audio_tower\.more\.weight"),
        ({"language_model.model.embed_tokens.weight": None}, "missing: language_model.model.embed_tokens"),
    ],
)
def test_weights_that_do_not_fit(
    folder: Path, changes: dict[str, torch.Tensor | None], complaint: str
) -> None:
    with pytest.raises(WeightsError, match=complaint):
        GlmAsr.load(GlmCheckpoint.open(rewrite(folder, changes)))


def test_positions_of_the_encoder_that_it_was_made_of_are_left_out(folder: Path) -> None:
    rewrite(folder, {"audio_tower.embed_positions.weight": torch.ones(1500, 64)})
    model = GlmAsr.load(GlmCheckpoint.open(folder))
    assert not [name for name, _ in model.named_parameters() if "embed_positions" in name]


def test_files_that_are_missing_or_damaged(folder: Path, tmp_path: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(WeightsError, match=r"model\.safetensors cannot be opened"):
        GlmCheckpoint.open(folder)
    path.unlink()
    with pytest.raises(WeightsError, match=r"has no model\.safetensors"):
        GlmCheckpoint.open(folder)
    with pytest.raises(WeightsError, match=r"config\.json"):
        GlmCheckpoint.open(tmp_path)


# --- the language model ------------------------------------------------------------------------------------


def test_transformers_loads_the_language_model(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="loads what was written with transformers")
    checkpoint = GlmCheckpoint.open(folder)
    written = write_llm(checkpoint.llm_parts(), tmp_path / "cache")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(written, output_loading_info=True)
    assert not any(report.values())
    assert type(model).__name__ == "LlamaForCausalLM"
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, checkpoint.tensors[f"language_model.{name}"]), name
    assert (written / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert write_llm(checkpoint.llm_parts(), tmp_path / "cache") == written


def test_a_head_that_is_not_there_is_the_embedding_table(folder: Path, tmp_path: Path) -> None:
    checkpoint = GlmCheckpoint.open(rewrite(folder, {f"language_model.{HEAD}": None}))
    assert HEAD not in checkpoint.llm_tensors()
    written = write_llm(checkpoint.llm_parts(), tmp_path / "cache")
    assert json.loads((written / "config.json").read_text("utf-8"))["tie_word_embeddings"] is True


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"language_model.model.norm.weight": None}, "missing: model.norm.weight"),
        (
            {"language_model.model.layers.0.self_attn.q_norm.weight": torch.ones(32)},
            "not expected: model.lay",
        ),
        ({"language_model.model.norm.weight": torch.ones(64, dtype=torch.int64)}, "int64, not floating"),
    ],
)
def test_a_language_model_that_does_not_fit(
    folder: Path, changes: dict[str, torch.Tensor | None], complaint: str
) -> None:
    if "int64" in complaint:
        safetensors.save_file(
            safetensors.load_file(folder / "model.safetensors") | changes, folder / "other.safetensors"
        )
        (folder / "other.safetensors").replace(folder / "model.safetensors")
    else:
        rewrite(folder, changes)
    with pytest.raises(WeightsError, match=complaint):
        GlmCheckpoint.open(folder).llm_tensors()

"""Every size comes from the folder's own settings, and what is missing or not supported is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.errors import WeightsError  # noqa: E402
from realtime_server.models.nano_config import NanoConfig  # noqa: E402
from tests.conftest import SHARED  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch

NEEDED = [
    "model", "frontend", "frontend_conf", "frontend_conf.n_mels", "frontend_conf.lfr_m", "frontend_conf.fs",
    "audio_encoder", "audio_encoder_conf", "audio_encoder_conf.output_size", "audio_encoder_conf.attention_heads",
    "audio_encoder_conf.linear_units", "audio_encoder_conf.num_blocks", "audio_encoder_conf.tp_blocks",
    "audio_encoder_conf.kernel_size", "audio_adaptor", "audio_adaptor_conf", "audio_adaptor_conf.ffn_dim",
    "audio_adaptor_conf.llm_dim", "audio_adaptor_conf.n_layer", "audio_adaptor_conf.downsample_rate", "llm_conf",
    "llm_conf.init_param_path", "ctc_decoder_conf.ffn_dim", "ctc_vocab_size", "dataset_conf.ctc_tokenizer_conf",
    "dataset_conf.ctc_tokenizer_conf.vocab_path",
]  # fmt: skip
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": "SenseVoiceSmall"}, "model is 'SenseVoiceSmall', not FunASRNano"),
    ({"audio_encoder": "Whisper"}, "audio_encoder is 'Whisper', not SenseVoiceEncoderSmall"),
    ({"audio_adaptor": "Linear"}, "audio_adaptor is 'Linear', not Transformer"),
    ({"audio_adaptor_conf.downsample_rate": 2}, "audio_adaptor_conf.downsample_rate is 2, not 1"),
    ({"audio_adaptor_conf.encoder_dim": 32}, "audio_adaptor_conf.encoder_dim is 32, not 64"),
    ({"audio_adaptor_conf.use_low_frame_rate": "yes"}, "use_low_frame_rate is 'yes', not true or false"),
    ({"audio_adaptor_conf.llm_dim": 32}, "has hidden_size 64"),
    ({"audio_encoder_conf.num_blocks": 0}, "num_blocks is 0, not a whole number of at least 1"),
    ({"audio_encoder_conf.num_blocks": True}, "num_blocks is True, not a whole number"),
    ({"audio_encoder_conf.num_blocks": "4"}, "num_blocks is '4', not a whole number"),
    ({"audio_encoder_conf.attention_heads": 3}, "output_size is 64, not a multiple of the 3 attention_heads"),
    ({"audio_encoder_conf.normalize_before": False}, "normalize_before is False, not True"),
    ({"frontend_conf.cmvn_file": "am.mvn"}, "cmvn_file is 'am.mvn'"),
    ({"frontend_conf.fs": 8000}, "frontend_conf.fs is 8000, not 16000"),
    ({"frontend_conf.lfr_n": 4}, "frame_shift times lfr_n must be 60 ms"),
    ({"frontend_conf": [1]}, "frontend_conf is [1], not a section"),
    ({"llm_conf.init_param_path": ""}, "llm_conf.init_param_path is '', not a text"),
]  # fmt: skip


def read(
    folder: Path, changes: dict[str, Any] | None = None, qwen3: dict[str, Any] | None = None
) -> NanoConfig:
    return NanoConfig.read(nano.write_settings(folder, changes, qwen3))


def test_sizes_are_read(tmp_path: Path) -> None:
    config = read(tmp_path, {"audio_encoder_conf.sanm_shfit": 1, "ctc_conf.blank_id": 7})
    assert (config.frontend.width, config.frontend.window, config.frontend.shift) == (560, 400, 160)
    assert (config.encoder.input_width, config.encoder.width, config.encoder.blocks) == (560, 64, 4)
    assert config.encoder.memory_shift == 1
    assert (config.adaptor.width, config.adaptor.heads, config.adaptor.low_frame_rate) == (64, 8, True)
    assert config.ctc is not None
    assert (config.ctc.vocabulary, config.ctc.blank, config.ctc.decoder.low_frame_rate) == (300, 7, False)
    assert config.ctc_vocabulary == "multilingual.tiktoken"
    assert (config.llm.folder, config.llm.kind, config.llm.vocabulary, config.llm.tied) == (
        "Qwen3-0.6B",
        "qwen3",
        320,
        True,
    )
    assert (config.prompt.system, config.prompt.think) == (True, True)


def test_the_blank_is_the_last_token_unless_said_otherwise(tmp_path: Path) -> None:
    config = read(tmp_path, {"ctc_conf": None})
    assert config.ctc is not None
    assert config.ctc.blank == 299


def test_no_ctc_decoder_is_no_branch(tmp_path: Path) -> None:
    config = read(tmp_path, {"ctc_decoder": None, "ctc_decoder_conf": None, "ctc_vocab_size": None})
    assert (config.ctc, config.ctc_vocabulary) == (None, "")


def test_the_prompt_may_be_chosen(tmp_path: Path) -> None:
    config = read(tmp_path, {"dataset_conf.do_think": False, "dataset_conf.sys_prompt": False})
    assert (config.prompt.system, config.prompt.think) == (False, False)


def test_a_task_for_translation_may_be_named(tmp_path: Path) -> None:
    assert read(tmp_path, {}).prompt.translate is None
    assert read(tmp_path, {"dataset_conf.translate_prompt": "翻译"}).prompt.translate == "翻译"
    for wrong in ("", True, ["翻译"]):
        with pytest.raises(WeightsError, match=r"dataset_conf.translate_prompt is .*, not a text"):
            read(tmp_path, {"dataset_conf.translate_prompt": wrong})


def test_paths_of_other_machines_are_names(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "llm_conf.init_param_path": "/somewhere/else/Qwen3-0.6B",
            "dataset_conf.ctc_tokenizer_conf.vocab_path": "/somewhere/else/multilingual.tiktoken",
        },
    )
    assert (config.llm.folder, config.ctc_vocabulary) == ("Qwen3-0.6B", "multilingual.tiktoken")


def test_settings_may_stand_for_others(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "tokens": {"vocab_path": "multilingual.tiktoken"},
            "dataset_conf.ctc_tokenizer_conf": "${tokens}",
            "audio_encoder_conf.linear_units": "${audio_adaptor_conf.ffn_dim}",
        },
    )
    assert (config.encoder.inner, config.ctc_vocabulary) == (80, "multilingual.tiktoken")
    with pytest.raises(WeightsError, match="linear_units is missing"):
        read(tmp_path, {"audio_encoder_conf.linear_units": "${model.none}"})


def test_the_reported_settings_of_the_published_model(tmp_path: Path) -> None:
    path = SHARED / "models" / "fun-asr-nano-config.yaml"
    if not path.is_file():
        pytest.skip("the reported settings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    nano.write_settings(tmp_path, qwen3={"hidden_size": 1024})
    (tmp_path / "config.yaml").write_bytes(path.read_bytes())
    config = NanoConfig.read(tmp_path)
    assert (config.encoder.width, config.encoder.blocks, config.encoder.tp_blocks) == (512, 50, 20)
    assert config.ctc is not None
    assert (config.ctc.blank, config.ctc.decoder.blocks, config.adaptor.width) == (60514, 5, 1024)


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(WeightsError) as caught:
        read(tmp_path, {name: None})
    assert f"config.yaml: {name} is missing" in str(caught.value)


@pytest.mark.parametrize(("changes", "complaint"), WRONG)
def test_what_is_not_supported_is_named(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WeightsError) as caught:
        read(tmp_path, changes)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", ["vocab_size", "hidden_size", "model_type"])
def test_the_language_models_config_is_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(WeightsError, match=rf"config\.json: {name} is missing"):
        read(tmp_path, qwen3={name: None})


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.yaml", None, "cannot read .*config.yaml"),
        ("config.yaml", "a: [", "config.yaml is no YAML file"),
        ("config.yaml", "just text", "config.yaml holds no settings"),
        ("config.yaml", b"\xff\xfe\xff", "config.yaml is no YAML file"),
        ("Qwen3-0.6B/config.json", None, "cannot read .*config.json"),
        ("Qwen3-0.6B/config.json", "{", "config.json is no JSON file"),
        ("Qwen3-0.6B/config.json", "[]", "config.json holds no settings"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, file: str, content: str | bytes | None, complaint: str
) -> None:
    nano.write_settings(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(WeightsError, match=complaint):
        NanoConfig.read(tmp_path)

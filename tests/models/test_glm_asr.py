"""GLM-ASR-Nano's audio half: features, rows, batches, prompts; and transformers' own GlmAsr on the same weights."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the GLM-ASR-Nano engine is not installed")

from realtime_server.core.jobs import DecodingOptions, Samples  # noqa: E402
from realtime_server.errors import ConfigurationError, UnsupportedError  # noqa: E402
from realtime_server.models.glm_asr import (  # noqa: E402
    SHORTEST,
    GlmAsr,
    LogMel,
    audio_rows,
    build_prompt,
    encoder_frames,
)
from realtime_server.models.glm_checkpoint import GlmCheckpoint  # noqa: E402
from realtime_server.models.log_mel import log_mel  # noqa: E402
from tests.models import glm, nano  # noqa: E402

pytest.importorskip("safetensors", reason="reads checkpoints with the package safetensors")
pytestmark = pytest.mark.torch

SECONDS = [0.3, 2.0, 1.1, 0.061, 4.04]
CONTEXT = 480_000
ENOUGH = 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return glm.write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> GlmAsr:
    return GlmAsr.load(GlmCheckpoint.open(folder))


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers.models.glmasr", reason="compares with transformers")


def waveforms() -> list[Samples]:
    return [nano.noise(seconds, i) for i, seconds in enumerate(SECONDS)]


def test_weights_are_the_checkpoints_and_its_own(folder: Path, model: GlmAsr) -> None:
    checkpoint = GlmCheckpoint.open(folder)
    state = model.state_dict()
    assert {name.split(".")[0] for name in state} == {
        "audio_tower",
        "multi_modal_projector",
        "language_model",
    }
    assert all(torch.equal(tensor, checkpoint.tensors[name]) for name, tensor in state.items())
    assert not {t.data_ptr() for t in state.values()} & {t.data_ptr() for t in checkpoint.tensors.values()}
    assert not model.training
    assert (model.context, model.context_s, model.has_ctc) == (CONTEXT, 30.0, False)


# --- features ----------------------------------------------------------------------------------------------


def test_the_features_are_those_of_the_numpy_front_end() -> None:
    audio = nano.noise(1.3)
    (found,) = LogMel(80)(torch.from_numpy(padded(audio, 48_000))[None], torch.tensor([len(audio)]))
    np.testing.assert_allclose(found.numpy(), log_mel(audio, 300), atol=ENOUGH)


def test_what_lies_beyond_a_waveforms_length_is_not_heard() -> None:
    audio = torch.from_numpy(padded(nano.noise(1.0), 32_000))[None]
    dirty = audio.clone()
    dirty[:, 16_000:] = 0.5
    front, lengths = LogMel(128), torch.tensor([16_000])
    assert torch.equal(front(dirty, lengths), front(audio, lengths))


def padded(audio: Samples, samples: int) -> Samples:
    return np.concatenate([audio, np.zeros(samples - len(audio), np.float32)])


# --- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "rows"),
    [(0, 0), (SHORTEST - 1, 0), (SHORTEST, 1), (16_000, 12), (479_680, 374), (480_000, 375)],
)
def test_rows_of_a_length(model: GlmAsr, samples: int, rows: int) -> None:
    assert audio_rows(samples) == rows
    (encoded,) = model.encode([nano.noise(samples / 16_000)])
    assert encoded.rows.shape == (rows, 64)
    assert (encoded.samples, encoded.hidden) == (samples, None)


def test_rows_and_frames_are_what_the_convolutions_leave() -> None:
    for mel in range(0, 3001, 7):
        after = torch.nn.Conv1d(1, 1, 3, stride=2, padding=1)(torch.zeros(1, max(1, mel))[None]).shape[-1]
        assert encoder_frames(mel * 160) == (after if mel else 0)
        assert audio_rows(mel * 160) == (after // 4 if mel else 0)


@pytest.mark.parametrize("count", [2, 5])
def test_a_waveform_does_not_depend_on_its_batch(model: GlmAsr, count: int) -> None:
    batch = waveforms()[:count]
    for waveform, together in zip(batch, model.encode(batch), strict=True):
        (alone,) = model.encode([waveform])
        assert together.rows.abs().max() > 0.1
        assert torch.allclose(together.rows, alone.rows, atol=ENOUGH)


def test_rows_beyond_a_waveform_are_zero(model: GlmAsr) -> None:
    batch = torch.from_numpy(np.stack([padded(each, CONTEXT) for each in waveforms()]))
    heard = model(batch, torch.tensor([len(each) for each in waveforms()]))
    assert heard.rows.shape == (len(SECONDS), 375, 64)
    assert heard.hidden.shape == (len(SECONDS), 1500, 64)
    for rows, count in zip(heard.rows, heard.row_counts.tolist(), strict=True):
        assert not rows[count:].any()


def test_short_batches_are_filled_up_to_the_context(model: GlmAsr) -> None:
    waveform = nano.noise(1.0)
    heard = model(torch.from_numpy(waveform)[None], torch.tensor([len(waveform)]))
    assert torch.allclose(heard.rows[0, :12], model.encode([waveform])[0].rows, atol=ENOUGH)


def test_longer_audio_than_the_context_is_refused(model: GlmAsr) -> None:
    with pytest.raises(ValueError, match="480001 samples"):
        model.encode([np.zeros(CONTEXT + 1, np.float32)])


def test_bfloat16_is_near_and_float16_refused(folder: Path, model: GlmAsr) -> None:
    rough = GlmAsr.load(GlmCheckpoint.open(folder), dtype=torch.bfloat16)
    (exact,), (found,) = model.encode([nano.noise(3.0)]), rough.encode([nano.noise(3.0)])
    assert found.rows.dtype == torch.bfloat16
    assert torch.allclose(found.rows.float(), exact.rows, atol=0.1)
    assert rough.prompt_rows(DecodingOptions(), found).dtype == torch.bfloat16
    with pytest.raises(ConfigurationError, match="float16"):
        GlmAsr.load(GlmCheckpoint.open(folder), dtype=torch.float16)


# --- prompts -----------------------------------------------------------------------------------------------


def test_a_prompt_is_text_audio_text(model: GlmAsr) -> None:
    (encoded,) = model.encode([nano.noise(2.0)])
    rows = model.prompt_rows(DecodingOptions(), encoded, "the")
    table = model.get_submodule("language_model.model.embed_tokens").weight
    before, after = (table[model.tokenizer.encode(text)] for text in build_prompt(DecodingOptions(), "the"))
    assert torch.equal(rows, torch.cat([before, encoded.rows, after]))


def test_the_layout() -> None:
    assert build_prompt(DecodingOptions(), "so <|user|> far") == (
        "<|user|>\n<|begin_of_audio|>",
        "<|end_of_audio|><|user|>\n转录以下音频内容<|assistant|>\nso |user| far",
    )


@pytest.mark.parametrize(
    ("wish", "what"),
    [
        ({"hotwords": ("北京",)}, "hotwords"),
        ({"language": "zh"}, "a language"),
        ({"task": "translate"}, "translation"),
        ({"hotwords": ("a",), "language": "en"}, "hotwords, a language"),
    ],
)
def test_what_it_cannot_be_told_is_refused(wish: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"does not take {what}$"):
        build_prompt(replace(DecodingOptions(), **wish))


# --- transformers ------------------------------------------------------------------------------------------


def test_the_features_are_those_of_transformers(model: GlmAsr) -> None:
    whisper = pytest.importorskip("transformers.models.whisper", reason="compares with transformers")
    extractor = whisper.WhisperFeatureExtractor(**{k: v for k, v in glm.FEATURES.items() if "type" not in k})
    for audio in waveforms():
        found = model.frontend(torch.from_numpy(padded(audio, CONTEXT))[None], torch.tensor([len(audio)]))
        expected = extractor(
            audio, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True, padding="max_length"
        )
        assert torch.allclose(found, expected["input_features"], atol=ENOUGH)
        heard = int(expected["attention_mask"].sum())
        assert audio_rows(len(audio)) == audio_rows(heard * 160)


def test_transformers_reads_the_folder_and_makes_the_same_rows(
    transformers: Any, folder: Path, model: GlmAsr
) -> None:
    reference, report = transformers.GlmAsrForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(report.values())
    for audio, ours in zip(waveforms(), model.encode(waveforms()), strict=True):
        mel = model.frontend(torch.from_numpy(padded(audio, CONTEXT))[None], torch.tensor([len(audio)]))
        mask = torch.arange(3000)[None] < -(-len(audio) // 160)
        with torch.inference_mode():
            theirs = reference.model.get_audio_features(mel, mask, return_dict=True).pooler_output
        assert theirs.abs().max() > 0.1, "zeros would agree too"
        assert torch.allclose(ours.rows, theirs, atol=ENOUGH)


@pytest.mark.slow
def test_the_published_size_makes_the_rows_of_transformers(transformers: Any, tmp_path: Path) -> None:
    if os.environ.get("REALTIME_SERVER_FULL_PARITY") != "1":
        pytest.skip("the published size takes 8 GB of memory and minutes (set REALTIME_SERVER_FULL_PARITY=1)")
    settings = copy.deepcopy(glm.PUBLISHED)
    settings["text_config"]["num_hidden_layers"] = 1  # of the language model only the embeddings are needed
    folder = glm.write_folder(tmp_path, settings)
    model = GlmAsr.load(GlmCheckpoint.open(folder))
    reference = transformers.GlmAsrForConditionalGeneration.from_pretrained(folder)
    batch = [nano.noise(seconds, i) for i, seconds in enumerate((3.3, 30.0))]
    for audio, ours in zip(batch, model.encode(batch), strict=True):
        mel = model.frontend(torch.from_numpy(padded(audio, CONTEXT))[None], torch.tensor([len(audio)]))
        mask = torch.arange(3000)[None] < -(-len(audio) // 160)
        with torch.inference_mode():
            theirs = reference.model.get_audio_features(mel, mask, return_dict=True).pooler_output
        difference = float((ours.rows - theirs).abs().max())
        print(
            f"{len(audio)} samples: rows up to {float(theirs.abs().max()):.3f}, difference {difference:.2e}"
        )
        assert theirs.abs().max() > 0.1, "zeros would agree too"
        assert difference < 1e-4


def test_transformers_counts_the_same_rows_for_every_length(transformers: Any) -> None:
    count = transformers.GlmAsrProcessor._get_audio_token_length
    frames = torch.arange(3001)
    assert torch.equal(count(None, frames), audio_rows(frames * 160))

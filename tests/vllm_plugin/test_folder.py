"""An official folder as the plugin's classes need it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.core.jobs import DecodingOptions  # noqa: E402
from realtime_server.errors import WeightsError  # noqa: E402
from realtime_server.models.prompt import build_prompt  # noqa: E402
from realtime_server.vllm_plugin.folder import FILLER, NanoFolder  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_prompt_has_one_filler_between_its_texts(tmp_path: Path) -> None:
    folder = NanoFolder.read(nano.write_settings(tmp_path))
    options = DecodingOptions(language="zh", hotwords=("Caylyn", f"{FILLER}<|im_end|>"))
    ids, prompt = folder.prompt_ids(options), build_prompt(options)
    assert ids.count(folder.filler) == 1
    place = ids.index(folder.filler)
    assert ids[:place] == folder.tokenizer.encode(prompt.before)
    assert ids[place + 1 :] == folder.tokenizer.encode(prompt.after)


def test_answers_end_with_the_turn_or_the_text(tmp_path: Path) -> None:
    folder = NanoFolder.read(nano.write_settings(tmp_path))
    assert {folder.tokenizer.encode(name)[0] for name in ("<|im_end|>", "<|endoftext|>")} == set(folder.stops)


@pytest.mark.parametrize("low", [True, False])
def test_rows_are_as_many_as_the_model_makes(tmp_path: Path, low: bool) -> None:
    changes = {"audio_adaptor_conf.use_low_frame_rate": low}
    folder = NanoFolder.read(nano.write_settings(tmp_path, changes))
    model = nano.fresh_model(tmp_path)
    for samples in (1, 399, 400, 1359, 1360, 8_079, 8_080, 30_000):
        (encoded,) = model.encode([nano.noise(2.0)[:samples]], words=False)
        assert len(encoded.rows) == folder.audio_rows(samples)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is no folder here"):
        NanoFolder.read(tmp_path / "none")
    with pytest.raises(WeightsError, match=r"config\.yaml"):
        NanoFolder.read(tmp_path)


def test_another_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="this language model is llama"):
        NanoFolder.read(nano.write_settings(tmp_path, qwen3={"model_type": "llama"}))


def test_a_tokenizer_without_the_filler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nano, "CONTROL", ["<|im_start|>", "<|im_end|>"])
    with pytest.raises(WeightsError, match="no token"):
        NanoFolder.read(nano.write_settings(tmp_path))

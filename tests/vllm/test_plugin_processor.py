"""What the full form does with audio on its way into vLLM and in it, without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.vllm_plugin.folder import opened
from tests.models.nano import noise
from tests.vllm.plugin import (
    FunAsrNanoAudio,
    NanoDummyInputs,
    NanoProcessingInfo,
    NanoProcessor,
    audio_half,
    batches,
    spread,
)
from tests.vllm.vllm_server import FOLDER

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]  # vLLM's own

FILLER = opened(str(FOLDER)).filler


@pytest.fixture(scope="module")
def processor() -> NanoProcessor:
    context = SimpleNamespace(model_config=SimpleNamespace(model=str(FOLDER)), tokenizer=object())
    info = NanoProcessingInfo(context)
    return NanoProcessor(info, NanoDummyInputs(info))


def prepare(processor: NanoProcessor, prompt: list[int], *clips: Any) -> dict[str, Any]:
    items = processor.info.parse_mm_data({"audio": list(clips)}, validate=False)
    prepared: dict[str, Any] = processor.apply(SimpleNamespace(prompt=prompt, mm_data_items=items), None)
    return prepared


# --- the processor ---------------------------------------------------------------------------------------


def test_a_filler_becomes_as_many_as_there_are_rows(processor: NanoProcessor) -> None:
    clip = noise(1.3)
    rows = opened(str(FOLDER)).audio_rows(len(clip))
    prepared = prepare(processor, [1, 2, FILLER, 3], (clip, SAMPLE_RATE))
    assert prepared["prompt_token_ids"] == [1, 2, *[FILLER] * rows, 3]
    (place,) = prepared["mm_placeholders"]["audio"]
    assert (place.offset, place.length) == (2, rows)
    (item,) = prepared["mm_kwargs"]["audio"]
    assert torch.equal(item.get_data()["waveform"], torch.from_numpy(clip))


def test_clips_are_known_by_their_samples(processor: NanoProcessor) -> None:
    one, same, other = (
        prepare(processor, [FILLER], (noise(1.0, seed), SAMPLE_RATE))["mm_hashes"]["audio"]
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_other_rates_and_channels_are_converted(processor: NanoProcessor) -> None:
    stereo = np.stack([noise(1.0, 1), noise(1.0, 1)])
    prepared = prepare(processor, [FILLER], (stereo, 8_000))
    assert prepared["mm_kwargs"]["audio"][0].get_data()["waveform"].shape == (2 * SAMPLE_RATE,)


@pytest.mark.parametrize(
    ("prompt", "clips", "words"),
    [
        ([FILLER], [np.full(1600, np.nan, np.float32)], "not numbers"),
        ([FILLER], [np.full(1600, np.inf, np.float32)], "not numbers"),
        ([FILLER], [np.zeros(0, np.float32)], "no sound"),
        ([FILLER], [np.zeros(31 * SAMPLE_RATE, np.float32)], "too long"),
        ([1, 2], [noise(1.0)], "0 places for audio, and there are 1"),
        ([FILLER, 1, FILLER], [noise(1.0)], "2 places for audio, and there are 1"),
    ],
    ids=str,
)
def test_what_is_unfit_is_refused_before_it_is_submitted(
    processor: NanoProcessor, prompt: list[int], clips: list[Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        prepare(processor, prompt, *clips)


def test_rows_of_somebody_elses_making_are_refused(processor: NanoProcessor) -> None:
    with pytest.raises(ValueError, match="not embeddings"):
        prepare(processor, [FILLER], torch.zeros(10, 128))


@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_spread_keeps_everything_else(prompt: list[int], data: st.DataObject) -> None:
    count = prompt.count(0)
    rows = data.draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    ids, ranges = spread(prompt, 0, rows)
    assert [token for token in ids if token] == [token for token in prompt if token]
    assert [length for _, length in ranges] == rows
    assert {n for start, length in ranges for n in range(start, start + length)} == {
        n for n, token in enumerate(ids) if token == 0
    }


def test_memory_is_measured_with_the_longest_clip(processor: NanoProcessor) -> None:
    rows = processor.info.get_mm_max_tokens_per_item(0, {"audio": 1})["audio"]
    dummy = processor.dummy_inputs.get_dummy_mm_data(0, {"audio": 1}, {})
    assert len(prepare(processor, [FILLER], *dummy["audio"])["prompt_token_ids"]) == rows == 63


# --- the encoder in vLLM ---------------------------------------------------------------------------------


class OnlyTheAudio(FunAsrNanoAudio):
    """Without the language model, which needs an engine around it."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.folder = FOLDER
        self.audio = audio_half(str(FOLDER), torch.float32)


@pytest.fixture(scope="module")
def model() -> OnlyTheAudio:
    return OnlyTheAudio()


def test_mixed_lengths_in_one_batch_change_nothing(model: OnlyTheAudio) -> None:
    clips = [
        torch.from_numpy(noise(seconds, n)) for n, seconds in enumerate((3.0, 0.02, 30.0, 0.4, 11.0, 3.0))
    ]
    with torch.inference_mode():
        together = model.embed_multimodal(waveform=clips)
        alone = [model.embed_multimodal(waveform=[clip])[0] for clip in clips]
    folder = opened(str(FOLDER))
    for clip, one, other in zip(clips, together, alone, strict=True):
        assert one.shape == other.shape == (folder.audio_rows(len(clip)), folder.config.llm.width)
        assert torch.allclose(one, other, atol=2e-5, rtol=1e-4)


def test_clips_of_one_length_come_as_one_tensor(model: OnlyTheAudio) -> None:
    clips = torch.from_numpy(np.stack([noise(1.0, 1), noise(1.0, 2)]))
    with torch.inference_mode():
        rows = model.embed_multimodal(waveform=clips)
    assert len(rows) == 2
    assert not torch.equal(rows[0], rows[1])


def test_what_is_not_a_number_never_reaches_the_language_model(model: OnlyTheAudio) -> None:
    clips = [torch.from_numpy(noise(1.0)), torch.full((SAMPLE_RATE,), torch.nan)]
    with torch.inference_mode():
        good, bad = model.embed_multimodal(waveform=clips)
        (alone,) = model.embed_multimodal(waveform=clips[:1])
    assert torch.isfinite(bad).all()
    assert torch.allclose(good, alone, atol=2e-5, rtol=1e-4)


def test_batches_are_bounded_and_hold_each_clip_once() -> None:
    lengths = [480_000] * 70 + [1_600, 16_000]
    found = batches(lengths)
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    assert max(len(batch) * max(lengths[place] for place in batch) for batch in found) <= 960 * SAMPLE_RATE
    assert len(found) == 3
    assert batches([]) == []

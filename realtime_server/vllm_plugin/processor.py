"""The processor of audio.py: what comes with a prompt is checked, and its place in the prompt is made wide enough.

vLLM's base class runs a processor of Hugging Face's through hooks, which differ from release to release. There is none
here: `apply`, the one method that vLLM itself calls, is short enough to be written out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems, PlaceholderRange
from vllm.multimodal.parse import AudioProcessorItems, MultiModalDataParser
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
)

from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.vllm_plugin.folder import FILLER, NanoFolder, opened
from realtime_server.vllm_plugin.wishes import LONGEST_S, checked_waveform

if TYPE_CHECKING:
    from vllm.inputs import MultiModalInput

WAVEFORM = "waveform"  # the one field of an audio item: float32 (samples,)


class NanoProcessingInfo(BaseProcessingInfo):
    """One clip of at most 30 s in a prompt."""

    @property
    def folder(self) -> NanoFolder:
        """The folder that is served."""
        return opened(self.model_id)

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """One clip."""
        return {"audio": 1}

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Rows of the longest clip."""
        return {"audio": self.folder.audio_rows(LONGEST_S * SAMPLE_RATE)}

    def get_data_parser(self) -> MultiModalDataParser:
        """Resamples to 16 kHz and mixes to one channel."""
        return MultiModalDataParser(target_sr=SAMPLE_RATE, target_channels=1)


class NanoDummyInputs(BaseDummyInputsBuilder[NanoProcessingInfo]):
    """What vLLM measures its memory with: the longest clip."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """One filler a clip."""
        return FILLER * mm_counts.get("audio", 0)

    def get_dummy_mm_data(
        self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any
    ) -> dict[str, Any]:
        """Silence."""
        count = mm_counts.get("audio", 0)
        return {"audio": self._get_dummy_audios(length=LONGEST_S * SAMPLE_RATE, num_audios=count)}


class NanoProcessor(BaseMultiModalProcessor[NanoProcessingInfo]):
    """Ids with one filler and a waveform -> ids with a filler per row, and the waveform."""

    def apply(self, inputs: Any, timing_ctx: Any) -> MultiModalInput:
        """Prepare one prompt; raise ValueError for audio that is unfit, and where a place or a clip is missing.

        Nothing is taken from vLLM's cache of processed items: there is no processing.
        """
        prompt = inputs.prompt
        if isinstance(prompt, str):  # up to 0.28
            prompt = self.info.get_tokenizer().encode(prompt, add_special_tokens=False)
        clips = self._clips(inputs.mm_data_items)
        folder = self.info.folder
        ids, ranges = spread(prompt, folder.filler, [folder.audio_rows(len(clip)) for clip in clips])
        return {
            "type": "multimodal",
            "prompt_token_ids": ids,
            "mm_kwargs": MultiModalKwargsItems.from_hf_inputs(
                {WAVEFORM: [torch.from_numpy(clip) for clip in clips]}, self._get_mm_fields_config({}, {})
            ),
            "mm_hashes": {"audio": [fingerprint(self.info.model_id, clip) for clip in clips]},
            "mm_placeholders": {"audio": [PlaceholderRange(offset=start, length=n) for start, n in ranges]},
        }

    def _clips(self, items: Any) -> list[Samples]:
        audio = items.get("audio", ())
        if audio and not isinstance(audio, AudioProcessorItems):
            raise ValueError("this model takes audio, not embeddings of audio")
        return [checked_waveform(audio.get(n)) for n in range(len(audio))]

    def _get_mm_fields_config(
        self, hf_inputs: Any, hf_processor_mm_kwargs: Any
    ) -> dict[str, MultiModalFieldConfig]:
        return {WAVEFORM: MultiModalFieldConfig.batched("audio")}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Any, out_mm_kwargs: Any
    ) -> list[Any]:
        return []  # a hook of the base class, which `apply` does not come to


def spread(
    prompt: Sequence[int], filler: int, rows: Sequence[int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """The prompt with as many fillers as there are rows in place of each one; and where: (start, rows) each.

    Raises ValueError unless there is a filler per clip.
    """
    if (places := sum(token == filler for token in prompt)) != len(rows):
        raise ValueError(f"the prompt has {places} places for audio, and there are {len(rows)} clips")
    ids: list[int] = []
    ranges: list[tuple[int, int]] = []
    for token in prompt:
        count = rows[len(ranges)] if token == filler else 1
        if token == filler:
            ranges.append((len(ids), count))
        ids += [token] * count
    return ids, ranges


def fingerprint(model: str, clip: Samples) -> str:
    """What vLLM's caches know a clip by."""
    return hashlib.sha256(model.encode() + b"\0" + clip.tobytes()).hexdigest()

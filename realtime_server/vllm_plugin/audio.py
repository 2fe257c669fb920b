"""The full form: audio goes into vLLM, and the encoder runs there, batched with whatever else is asked.

    vllm serve FOLDER --config-format fun-asr-nano --tokenizer FOLDER/Qwen3-0.6B

    request -> get_generation_prompt: ids with one filler, waveform -> NanoProcessor.apply: as many fillers as rows
            -> scheduler -> embed_multimodal: waveforms to rows -> embed_input_ids: rows in place of fillers -> Qwen3

The waveform itself is what travels between vLLM's processes: 64 KB a second, a third of its features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from vllm.inputs import PromptType
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.multimodal import MULTIMODAL_REGISTRY

from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.models.checkpoint import Checkpoint
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.vllm_plugin.contract import MLT_NAMES, NanoTranscription, read_request
from realtime_server.vllm_plugin.folder import opened
from realtime_server.vllm_plugin.language_model import NanoLanguageModel
from realtime_server.vllm_plugin.processor import WAVEFORM, NanoDummyInputs, NanoProcessingInfo, NanoProcessor

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.speech_to_text import SpeechToTextParams

BATCH_SAMPLES = 960 * SAMPLE_RATE  # of a batch, padded: what it needs of memory is bounded


@MULTIMODAL_REGISTRY.register_processor(NanoProcessor, info=NanoProcessingInfo, dummy_inputs=NanoDummyInputs)
class FunAsrNanoAudio(NanoLanguageModel, NanoTranscription, SupportsMultiModal):
    """vLLM runs encoder, adaptor and language model."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        folder = opened(str(self.folder))
        self.audio = FunAsrNano(folder.config, nn.Module(), folder.tokenizer, None)
        self.audio.frontend.to(self.audio.device)  # built on the CPU, in float32, wherever the rest is
        self.audio.requires_grad_(False)

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """None: chats have no place for audio, which the model was not trained to converse about."""
        return None

    @classmethod
    def get_generation_prompt(cls, stt_params: SpeechToTextParams) -> PromptType:
        """The prompt's ids, one filler among them for the audio, and the audio."""
        samples, options = read_request(stt_params)
        return {
            "prompt_token_ids": opened(stt_params.model_config.model).prompt_ids(options),
            "multi_modal_data": {"audio": (samples, SAMPLE_RATE)},
        }

    def embed_multimodal(self, **kwargs: Any) -> list[Tensor]:
        """Rows (n, width) of each waveform; what a waveform gives does not depend on its company.

        kwargs: vLLM's way to hand over the processor's fields.
        """
        waveforms: list[Tensor] = [each.reshape(-1) for each in kwargs[WAVEFORM]]
        rows: list[Tensor] = [torch.empty(0)] * len(waveforms)
        for places in batches([len(waveform) for waveform in waveforms]):
            encoded = self._encode([waveforms[place] for place in places])
            for place, table in zip(places, encoded, strict=True):
                rows[place] = table
        return rows

    def _encode(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        batch = nn.utils.rnn.pad_sequence([waveform.float() for waveform in waveforms], batch_first=True)
        lengths = [len(waveform) for waveform in waveforms]
        heard = self.audio(batch, torch.tensor(lengths, device=batch.device))
        # One that is not finite would spoil the answers to others. The processor has checked what came in; this is for
        # what a network may make of it.
        rows = torch.nan_to_num(heard.rows, 0.0, 0.0, 0.0)
        folder = opened(str(self.folder))
        return [rows[i, : folder.audio_rows(length)].clone() for i, length in enumerate(lengths)]

    def embed_input_ids(
        self, input_ids: Tensor, multimodal_embeddings: Any = None, *, is_multimodal: Tensor | None = None
    ) -> Tensor:
        """Rows of the ids, those of the audio in place of its fillers."""
        rows: Tensor = self.model.embed_input_ids(input_ids)
        if multimodal_embeddings is None or not len(multimodal_embeddings) or is_multimodal is None:
            return rows
        audio = torch.cat(list(multimodal_embeddings)).to(rows.dtype)
        return rows.masked_scatter(is_multimodal.to(rows.device)[:, None], audio)

    def get_language_model(self) -> nn.Module:
        """The part that reads the rows."""
        model: nn.Module = self.model
        return model

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load all of it; return the names of the parameters. Raises WeightsError naming what is missing or wrong."""
        loaded = super().load_weights(weights)
        checkpoint = replace(Checkpoint.open(self.folder), has_ctc=False)
        state = self.audio.state_dict()
        self.audio.load_state_dict(checkpoint.tensors_for(state, self.audio.device, self.audio.dtype))
        return loaded | {f"audio.{name}" for name in state}


class FunAsrNanoAudioMlt(FunAsrNanoAudio):
    """The same for a checkpoint trained on 31 languages."""

    supported_languages: ClassVar[Mapping[str, str]] = MLT_NAMES


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Places of waveforms that are encoded together: of similar length, so that little is padding."""
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if found and lengths[place] * (len(found[-1]) + 1) <= BATCH_SAMPLES:
            found[-1].append(place)
        else:
            found.append([place])
    return found

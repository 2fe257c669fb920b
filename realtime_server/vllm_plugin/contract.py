"""vLLM's speech-to-text contract, as far as it does not depend on how the audio gets into the language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from vllm.config import SpeechToTextConfig
from vllm.model_executor.models.interfaces import StreamingTranscriptionPostProcessor, SupportsTranscription

from realtime_server.core.jobs import DecodingOptions, Samples
from realtime_server.core.languages import english_name
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.models.nano_languages import LANGUAGES, MLT_LANGUAGES
from realtime_server.vllm_plugin.answers import StreamedAnswer, cleaned
from realtime_server.vllm_plugin.folder import opened
from realtime_server.vllm_plugin.wishes import LONGEST_S, checked_waveform, decoding_options, language_code

if TYPE_CHECKING:
    from vllm.config import ModelConfig
    from vllm.config.speech_to_text import SpeechToTextParams

NANO_NAMES = {code: english_name(code) for code in sorted(LANGUAGES)}
MLT_NAMES = {code: english_name(code) for code in sorted(MLT_LANGUAGES)}
UNSPACED = frozenset({"zh", "yue", "ja", "th"})  # of the languages above
SEARCHED_S = 5  # before a clip's end, in which it is cut; speech rarely pauses every second
QUIETEST = SAMPLE_RATE // 10  # samples of the quietest place


class NanoPostProcessor(StreamingTranscriptionPostProcessor):
    """One streamed answer."""

    def __init__(self) -> None:
        self._answer = StreamedAnswer()

    def process_delta(self, text_delta: str, finished: bool) -> str:
        """What can be sent now."""
        return self._answer.process_delta(text_delta, finished)


class NanoTranscription(SupportsTranscription):
    """The class methods that vLLM's endpoint calls; `get_generation_prompt` is the subclass's."""

    supported_languages: ClassVar[Mapping[str, str]] = NANO_NAMES
    supports_transcription_only: ClassVar[bool] = True
    # No times and no speakers are among what the model writes, and it detects languages without being asked to.
    supports_segment_timestamp: ClassVar[bool] = False
    supports_diarized_transcription: ClassVar[bool] = False
    supports_explicit_language_detection: ClassVar[bool] = False
    no_space_languages: ClassVar[set[str]] = set(UNSPACED)

    @classmethod
    def validate_language(cls, language: str | None) -> str | None:
        """The code of a language by code or name; None, or "auto", leaves it to the model.

        Warns of a language that the model was not trained on; raises ValueError for what is none.
        """
        code: str | None = super().validate_language(language_code(language))
        return code

    @classmethod
    def get_speech_to_text_config(
        cls, model_config: ModelConfig, task_type: Literal["transcribe", "translate"]
    ) -> SpeechToTextConfig:
        """16 kHz; recordings over 30 s are cut at the quietest 100 ms of the last 5 s.

        For both tasks: vLLM asks when it starts, and would not start without an answer.
        """
        return SpeechToTextConfig(
            sample_rate=SAMPLE_RATE,
            max_audio_clip_s=LONGEST_S,
            overlap_chunk_second=SEARCHED_S,
            min_energy_split_window_size=QUIETEST,
        )

    @classmethod
    def get_num_audio_tokens(
        cls, audio_duration_s: float, stt_config: SpeechToTextConfig, model_config: ModelConfig
    ) -> int | None:
        """The rows that the audio takes in the prompt, exactly."""
        return opened(model_config.model).audio_rows(round(audio_duration_s * stt_config.sample_rate))

    @classmethod
    def post_process_output(cls, text: str) -> str:
        """The text without control tokens."""
        return cleaned(text)

    @classmethod
    def get_streaming_post_processor_cls(cls) -> type[StreamingTranscriptionPostProcessor]:
        """What cleans streamed answers."""
        return NanoPostProcessor


def read_request(stt_params: SpeechToTextParams) -> tuple[Samples, DecodingOptions]:
    """A clip and how to decode it; raise ValueError for what cannot be done."""
    options = decoding_options(
        language=stt_params.language,
        hotwords=stt_params.hotwords,
        prompt=stt_params.request_prompt,
        task=stt_params.task_type,
        to_language=stt_params.to_language,
        translates=opened(stt_params.model_config.model).config.prompt.translates,
    )
    return checked_waveform(stt_params.audio), options

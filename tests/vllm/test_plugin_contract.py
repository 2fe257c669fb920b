"""Every point of vLLM's speech-to-text contract where our classes decide, and those that hold for any class.

Any class means all that we ship, and the one that docs/vllm-plugin.md builds up.
"""

from __future__ import annotations

import io
import logging
import re
import wave
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.generation import token_cap
from realtime_server.errors import WeightsError
from realtime_server.models.frontend import Frontend
from realtime_server.models.nano_languages import LANGUAGES, MLT_LANGUAGES
from realtime_server.vllm_plugin import FORMS, PREFIX, register
from realtime_server.vllm_plugin.folder import FILLER, LONGEST_ANSWER, opened
from realtime_server.vllm_plugin.wishes import LONGEST_S
from tests.models.nano import noise
from tests.vllm.plugin import (
    VLLM_LANGUAGES,
    FunAsrNanoAudio,
    FunAsrNanoAudioMlt,
    FunAsrNanoEmbeds,
    FunAsrNanoEmbedsMlt,
    FunAsrNanoLive,
    FunAsrNanoLiveMlt,
    ModelRegistry,
    SpeechToTextBaseServing,
    SpeechToTextConfig,
    SpeechToTextParams,
    SupportsTranscription,
    asr_inter_chunk_separator,
    audio_half,
    get_config,
    get_config_parser,
    load_audio,
    split_audio,
    supports_multimodal,
    supports_realtime,
    supports_transcription,
)
from tests.vllm.vllm_server import FOLDER, PAGE

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]  # vLLM's own

Class = type[SupportsTranscription]
OURS: list[Class] = [
    FunAsrNanoAudio, FunAsrNanoAudioMlt, FunAsrNanoLive, FunAsrNanoLiveMlt, FunAsrNanoEmbeds, FunAsrNanoEmbedsMlt
]  # fmt: skip


def _of_the_guide() -> Class:
    """The class that the guide begins with, made by running what it shows."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (program,) = (each for each in programs if "class YourModel" in each)
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    made: Class = namespace["YourModel"]
    return made


ALL: list[Class] = [*OURS, _of_the_guide()]
every_class = pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
our_class = pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
TASKS = pytest.mark.parametrize("task", ["transcribe", "translate"])
MODEL = SimpleNamespace(model=str(FOLDER), dtype=torch.float32)  # of a ModelConfig, what classes look at


def config_of(cls: Class, task: Any = "transcribe") -> SpeechToTextConfig:
    return cls.get_speech_to_text_config(MODEL, task)


def params(cls: Class, audio: Any = None, **changes: Any) -> SpeechToTextParams:
    audio = noise(1.0) if audio is None else audio
    return SpeechToTextParams(audio=audio, stt_config=config_of(cls), model_config=MODEL, **changes)


@pytest.fixture
def warnings_of_vllm() -> Iterator[list[str]]:
    """What vLLM's interfaces log; its loggers do not tell pytest's."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.model_executor.models.interfaces")
    logger.addHandler(handler)
    yield told
    logger.removeHandler(handler)


# --- languages -------------------------------------------------------------------------------------------


@every_class
def test_an_illegal_language_code_at_class_definition_raises_and_lists_the_legal_ones(cls: Class) -> None:
    with pytest.raises(ValueError, match="invalid") as caught:
        type("Wrong", (cls,), {"supported_languages": {"en": "English", "english": "English"}})
    assert "['english']" in str(caught.value)
    assert str(sorted(VLLM_LANGUAGES)) in str(caught.value)


@every_class
def test_supported_languages_pass_without_a_warning(cls: Class, warnings_of_vllm: list[str]) -> None:
    assert [cls.validate_language(code) for code in cls.supported_languages] == list(cls.supported_languages)
    assert warnings_of_vllm == []


@every_class
def test_an_unsupported_but_legal_language_warns(cls: Class, warnings_of_vllm: list[str]) -> None:
    assert cls.validate_language("cy") == "cy"
    assert len(warnings_of_vllm) == 1
    assert cls.__name__ in warnings_of_vllm[0]


@every_class
def test_an_unknown_language_raises(cls: Class) -> None:
    with pytest.raises(ValueError, match="Klingon"):
        cls.validate_language("Klingon")


@every_class
def test_no_language_stays_none(cls: Class) -> None:
    assert cls.validate_language(None) is None


@our_class
def test_languages_are_those_of_the_checkpoint(cls: Class) -> None:
    expected = MLT_LANGUAGES if cls.__name__.endswith("Mlt") else LANGUAGES
    assert set(cls.supported_languages) == expected
    assert cls.supported_languages["zh"] == "Chinese"


@our_class
@pytest.mark.parametrize(
    ("name", "code"),
    [("auto", None), ("中文", "zh"), ("Chinese", "zh"), ("ZH-cn", "zh"), ("英语", "en"), ("Japanese", "ja")],
)
def test_languages_come_by_name_and_automatic_is_not_english(cls: Class, name: str, code: str | None) -> None:
    assert cls.validate_language(name) == code


def test_by_default_chinese_and_japanese_alone_are_joined_without_spaces() -> None:
    assert SupportsTranscription.no_space_languages == {"zh", "ja"}
    joints = {code: asr_inter_chunk_separator(code, {"zh", "ja"}) for code in ("zh", "ja", "en", None)}
    assert joints == {"zh": "", "ja": "", "en": " ", None: " "}


@our_class
def test_chunks_of_unspaced_languages_are_joined_without_spaces(cls: Class) -> None:
    separators = {
        code: asr_inter_chunk_separator(code, cls.no_space_languages) for code in cls.supported_languages
    }
    unspaced = {code for code, separator in separators.items() if not separator}
    assert unspaced == {"zh", "yue", "ja", "th"} & set(cls.supported_languages)


# --- flags -----------------------------------------------------------------------------------------------


@every_class
def test_supports_transcription_is_true(cls: Class) -> None:
    assert supports_transcription(cls)
    assert cls.supports_transcription is True


@our_class
def test_transcription_only_is_claimed_by_all_but_the_live_form(cls: Class) -> None:
    live = issubclass(cls, FunAsrNanoLive)
    assert cls.supports_transcription_only is not live
    assert supports_realtime(cls) is live


@every_class
def test_segment_timestamps_are_not_claimed(cls: Class) -> None:
    assert cls.supports_segment_timestamp is False


@every_class
def test_diarized_transcription_is_not_claimed(cls: Class) -> None:
    assert cls.supports_diarized_transcription is False
    with pytest.raises(NotImplementedError):
        cls.parse_diarized_transcript("")


@every_class
def test_explicit_language_detection_is_not_claimed(cls: Class) -> None:
    assert cls.supports_explicit_language_detection is False
    with pytest.raises(NotImplementedError):
        cls.get_language_detection_prompt(noise(1.0), config_of(cls))
    with pytest.raises(NotImplementedError):
        cls.parse_language_detection_output([1], None)
    with pytest.raises(NotImplementedError):
        cls.get_language_token_ids(None)


@our_class
def test_audio_goes_into_vllm_in_the_full_form_alone(cls: Class) -> None:
    assert supports_multimodal(cls) is issubclass(cls, FunAsrNanoAudio)


# --- configuration, cutting, decoding --------------------------------------------------------------------


@every_class
@TASKS
def test_both_tasks_get_a_configuration(cls: Class, task: str) -> None:
    config = config_of(cls, task)
    assert config.sample_rate == 16_000
    assert config.max_audio_clip_s == LONGEST_S
    assert config.allow_audio_chunking


def test_a_configuration_has_the_defaults_of_the_contract() -> None:
    config = SpeechToTextConfig()
    assert (config.sample_rate, config.max_audio_clip_s) == (16_000, 30)
    assert (config.overlap_chunk_second, config.min_energy_split_window_size) == (1, 1600)


@pytest.mark.parametrize(
    ("longest_s", "window", "allowed"),
    [(30, 1600, True), (None, 1600, False), (30, None, False), (None, None, False)],
)
def test_chunking_is_allowed_if_both_fields_are_there(
    longest_s: int | None, window: int | None, allowed: bool
) -> None:
    config = SpeechToTextConfig(max_audio_clip_s=longest_s, min_energy_split_window_size=window)
    assert config.allow_audio_chunking is allowed


@every_class
def test_a_long_recording_is_cut_in_its_quietest_window(cls: Class) -> None:
    config = config_of(cls)
    seconds = config.max_audio_clip_s - config.overlap_chunk_second / 2
    audio = np.random.default_rng(0).normal(0.0, 0.2, 45 * SAMPLE_RATE).astype(np.float32)
    quiet = round(seconds * SAMPLE_RATE)
    audio[quiet : quiet + 2 * config.min_energy_split_window_size] *= 0.01
    chunks = split_audio(
        audio, SAMPLE_RATE, config.max_audio_clip_s, config.overlap_chunk_second,
        config.min_energy_split_window_size,
    )  # fmt: skip
    assert len(chunks) == 2
    assert quiet <= len(chunks[0]) <= quiet + 2 * config.min_energy_split_window_size
    assert np.array_equal(np.concatenate(chunks), audio)
    assert max(map(len, chunks)) <= config.max_audio_clip_s * SAMPLE_RATE


def recording(rate: int, channels: int, seconds: float = 1.0) -> io.BytesIO:
    sine = np.sin(np.arange(round(seconds * rate)) * 2 * np.pi * 440 / rate)
    pcm = np.repeat((sine * 10_000).astype("<i2")[:, None], channels, axis=1)
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm.tobytes())
    stream.seek(0)
    return stream


@every_class
@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (48_000, 1), (16_000, 2)])
def test_recordings_are_resampled_to_the_configured_rate(cls: Class, rate: int, channels: int) -> None:
    samples, out = load_audio(recording(rate, channels), sr=config_of(cls).sample_rate, mono=True)
    assert out == 16_000
    assert samples.shape == (16_000,)
    middle = samples[1000:-1000]
    assert np.abs(middle).max() == pytest.approx(10_000 / 32_768, rel=0.05)


def decode_and_cut(config: SpeechToTextConfig, data: bytes, **limits: int) -> list[Any]:
    """The clips that vLLM's endpoint makes of a file."""
    endpoint = SimpleNamespace(
        asr_config=config,
        max_audio_decode_duration_s=limits.get("seconds", 600),
        max_audio_decode_bytes=limits.get("size", 1 << 30),
    )
    clips, duration = SpeechToTextBaseServing._decode_and_chunk_speech(endpoint, data)
    assert duration == pytest.approx(sum(map(len, clips)) / config.sample_rate)
    return list(clips)


@every_class
@pytest.mark.parametrize(("seconds", "clips"), [(1.0, 1), (30.0, 1), (31.0, 2), (70.0, 3)])
def test_a_clip_is_never_longer_than_configured(cls: Class, seconds: float, clips: int) -> None:
    made = decode_and_cut(config_of(cls), recording(16_000, 1, seconds).getvalue())
    assert len(made) == clips
    assert max(map(len, made)) <= LONGEST_S * SAMPLE_RATE


@pytest.mark.parametrize("without", ["max_audio_clip_s", "min_energy_split_window_size"])
def test_what_may_not_be_cut_comes_in_one_piece(without: str) -> None:
    (clip,) = decode_and_cut(SpeechToTextConfig(**{without: None}), recording(16_000, 1, 70.0).getvalue())
    assert len(clip) == 70 * SAMPLE_RATE


@pytest.mark.parametrize("kind", ["mp4", "webm"])
def test_containers_that_soundfile_does_not_know_are_decoded_all_the_same(kind: str) -> None:
    (clip,) = decode_and_cut(SpeechToTextConfig(), contained(kind))
    assert len(clip) == pytest.approx(SAMPLE_RATE, rel=0.1)
    assert np.argmax(np.abs(np.fft.rfft(clip[:SAMPLE_RATE], SAMPLE_RATE))) == 440


def contained(kind: str) -> bytes:
    """A second of 440 Hz in a container of video."""
    import av

    stream = io.BytesIO()
    with av.open(stream, "w", format=kind) as file:
        track = file.add_stream("aac" if kind == "mp4" else "libopus", rate=48_000, layout="mono")
        sine = np.sin(np.arange(48_000) * 2 * np.pi * 440 / 48_000)
        frame = av.AudioFrame.from_ndarray((sine * 10_000).astype("<i2")[None], format="s16", layout="mono")
        frame.sample_rate = 48_000
        for packet in (*track.encode(frame), *track.encode(None)):
            file.mux(packet)
    return stream.getvalue()


@pytest.mark.parametrize("limit", [{"seconds": 2}, {"size": 64_000}])
def test_decoding_is_limited_in_seconds_and_bytes(limit: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="VLLM_MAX_AUDIO_DECODE"):
        decode_and_cut(SpeechToTextConfig(), recording(16_000, 1, 3.0).getvalue(), **limit)
    assert decode_and_cut(SpeechToTextConfig(), recording(16_000, 1, 0.5).getvalue(), **limit)


def test_what_is_no_recording_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"[Ii]nvalid|corrupt|unsupported"):
        decode_and_cut(SpeechToTextConfig(), b"no recording" * 100)


# --- prompts ---------------------------------------------------------------------------------------------


def test_a_request_holds_nothing_that_our_classes_do_not_look_at() -> None:
    """A field that a new vLLM adds must be taken or refused: this is where it shows."""
    assert {field.name for field in fields(SpeechToTextParams)} == {
        "audio", "stt_config", "model_config", "language", "hotwords", "task_type", "request_prompt", "to_language",
    }  # fmt: skip


@every_class
def test_the_prompt_is_made_of_one_object(cls: Class) -> None:
    assert list(signature(cls.get_generation_prompt).parameters) == ["stt_params"]


def ids_of(cls: Class, prompt: Any) -> list[int]:
    """The prompt's ids, or rows, as they can be compared."""
    if cls in (FunAsrNanoEmbeds, FunAsrNanoEmbedsMlt):
        assert prompt["prompt_is_token_ids"] == [False] * len(prompt["prompt_embeds"])
        assert len(prompt["prompt_token_ids"]) == len(prompt["prompt_embeds"])
        return [hash(row.numpy().tobytes()) for row in prompt["prompt_embeds"]]
    return list(prompt["prompt_token_ids"])


@our_class
@pytest.mark.parametrize(
    "wishes",
    [
        {"language": "en"},
        {"language": "zh"},
        {"hotwords": "Caylyn"},
        {"hotwords": "Caylyn, 林晓宇"},
        {"request_prompt": "林晓宇"},
    ],
)
def test_language_hotwords_and_prompt_are_in_the_prompt(cls: Class, wishes: dict[str, Any]) -> None:
    plain = ids_of(cls, cls.get_generation_prompt(params(cls)))
    asked = ids_of(cls, cls.get_generation_prompt(params(cls, **wishes)))
    assert asked != plain
    assert len(asked) > len(plain)


@our_class
def test_the_prompt_is_that_of_our_own_engine(cls: Class) -> None:
    audio = noise(1.3)
    model = audio_half(str(FOLDER), torch.float32)
    own = model.prompt_rows(
        DecodingOptions(language="zh", hotwords=("Caylyn",)), model.encode([audio], words=False)[0]
    )
    prompt: Any = cls.get_generation_prompt(params(cls, audio, language="zh", hotwords="Caylyn"))
    if "prompt_embeds" in prompt:
        assert torch.equal(prompt["prompt_embeds"], own)
        return
    samples, rate = prompt["multi_modal_data"]["audio"]
    assert rate == SAMPLE_RATE
    assert np.array_equal(samples, audio)
    ids = prompt["prompt_token_ids"]
    place = ids.index(opened(str(FOLDER)).filler)
    rows = opened(str(FOLDER)).audio_rows(len(audio))
    assert torch.equal(model.embed(ids[:place]), own[:place])
    assert torch.equal(model.embed(ids[place + 1 :]), own[place + rows :])


@our_class
def test_hotwords_cannot_hold_control_tokens(cls: Class) -> None:
    written = f"<|im_end|>Caylyn{FILLER}"
    spoken = "|im_end| Caylyn |endoftext|"
    assert ids_of(cls, cls.get_generation_prompt(params(cls, hotwords=written))) == ids_of(
        cls, cls.get_generation_prompt(params(cls, hotwords=spoken))
    )


@our_class
@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"task_type": "translate", "to_language": "de"}, "into English alone"),
        ({"language": "zh", "to_language": "en"}, "takes no to_language"),
        ({"audio": np.full(1600, np.nan, np.float32)}, "not numbers"),
        ({"audio": np.full(1600, np.inf, np.float32)}, "not numbers"),
        ({"audio": np.full(1600, 1e20, np.float32)}, "too large"),
        ({"audio": np.zeros(0, np.float32)}, "no sound"),
        ({"audio": np.zeros(31 * 16_000, np.float32)}, "too long"),
        ({"audio": np.zeros((1, 1600), np.float32)}, "one row"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_a_value_error(cls: Class, wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cls.get_generation_prompt(params(cls, **wishes))


@pytest.fixture(scope="module")
def untaught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder without a task for translation, as the published ones are."""
    folder = tmp_path_factory.mktemp("untaught")
    for path in FOLDER.iterdir():
        (folder / path.name).symlink_to(path)
    settings = (FOLDER / "config.yaml").read_text("utf-8")
    (folder / "config.yaml").unlink()
    (folder / "config.yaml").write_text(re.sub(r"\n  translate_prompt: .*", "", settings), "utf-8")
    return folder


@our_class
def test_the_task_is_in_the_prompt_if_the_checkpoint_was_taught_it(cls: Class, untaught: Path) -> None:
    asked = params(cls, task_type="translate", language="zh", to_language="en")
    translated = ids_of(cls, cls.get_generation_prompt(asked))
    assert translated != ids_of(cls, cls.get_generation_prompt(params(cls, language="zh")))
    asked = replace(asked, model_config=SimpleNamespace(model=str(untaught), dtype=torch.float32))
    with pytest.raises(ValueError, match=r"cannot translate.*translate_prompt"):
        cls.get_generation_prompt(asked)


# --- counts ----------------------------------------------------------------------------------------------


@our_class
def test_audio_tokens_are_counted_exactly(cls: Class) -> None:
    """Equal to the rows that are made, for every length up to the longest clip."""
    folder, config = opened(str(FOLDER)), config_of(cls)
    lengths = torch.arange(1, LONGEST_S * SAMPLE_RATE + 1)
    frames = Frontend(folder.config.frontend).frames(lengths)
    rows = audio_half(str(FOLDER), torch.float32).audio_rows(frames).tolist()
    assert [folder.audio_rows(n) for n in range(1, len(rows) + 1)] == rows
    for samples in [*range(1, 480_000, 997), 480_000]:
        counted = cls.get_num_audio_tokens(samples / SAMPLE_RATE, config, MODEL)
        assert counted == rows[samples - 1]


def test_rows_are_as_many_as_counted() -> None:
    model, folder = audio_half(str(FOLDER), torch.float32), opened(str(FOLDER))
    for samples in (1, 399, 400, 559, 560, 1359, 1360, 8079, 8080, 16_000, 100_001):
        (encoded,) = model.encode([noise(10.0)[:samples]], words=False)
        assert len(encoded.rows) == folder.audio_rows(samples)


def test_a_class_that_does_not_count_says_none() -> None:
    cls = _of_the_guide()
    assert cls.get_num_audio_tokens(1.0, config_of(cls), MODEL) is None


# --- answers ---------------------------------------------------------------------------------------------


@our_class
def test_answers_are_cleaned_whole_and_streamed(cls: Class) -> None:
    raw = "<|zh|>打开 12\ufffd"
    assert cls.post_process_output(raw) == "打开 12"
    streamer = cls.get_streaming_post_processor_cls()
    one, other = streamer(), streamer()
    deltas = [one.process_delta(sign, n == len(raw) - 1) for n, sign in enumerate(raw)]
    assert "".join(deltas) == "打开 12"
    assert other.process_delta("a", False) == "a", "streams share nothing"


def test_a_class_that_cleans_nothing_passes_everything_on() -> None:
    cls, raw = _of_the_guide(), "<|zh|> 12"
    assert cls.post_process_output(raw) == raw
    streamer = cls.get_streaming_post_processor_cls()()
    assert [streamer.process_delta(raw, False), streamer.process_delta("", True)] == [raw, ""]


# --- how vLLM finds them ---------------------------------------------------------------------------------


def test_the_entry_point_is_installed() -> None:
    found = {each.name: each.value for each in entry_points(group="vllm.general_plugins")}
    assert found["realtime_server"] == "realtime_server.vllm_plugin:register"


def test_registering_again_changes_nothing_and_vllms_own_funasr_stays() -> None:
    register()
    before = dict(ModelRegistry.models)
    parsers = {name: type(get_config_parser(name)) for name in FORMS}
    register()
    assert dict(ModelRegistry.models) == before
    assert {name: type(get_config_parser(name)) for name in FORMS} == parsers
    assert "realtime_server" not in repr(before["FunASRForConditionalGeneration"])
    assert {name for name in before if name.startswith(PREFIX)} == {f"{PREFIX}{cls.__name__}" for cls in OURS}


@pytest.mark.parametrize("config_format", list(FORMS))
def test_an_official_folder_is_read_as_it_is(config_format: str) -> None:
    register()
    config = get_config(FOLDER, trust_remote_code=False, config_format=config_format)
    (architecture,) = config.architectures
    assert architecture == f"{PREFIX}{FORMS[config_format][1]}"
    assert ModelRegistry.models[architecture].load_model_cls() in OURS
    assert config.hidden_size == opened(str(FOLDER)).config.llm.width
    assert config.eos_token_id == list(opened(str(FOLDER)).stops)


def test_a_folder_called_mlt_has_31_languages(tmp_path: Path) -> None:
    register()
    real = tmp_path / "copy" / "Fun-ASR-MLT-Nano-2512"
    real.mkdir(parents=True)
    for path in FOLDER.iterdir():
        (real / path.name).symlink_to(path)
    config = get_config(real, trust_remote_code=False, config_format="fun-asr-nano")
    assert config.architectures == [f"{PREFIX}FunAsrNanoAudioMlt"]


def test_what_is_no_folder_is_said() -> None:
    register()
    with pytest.raises(WeightsError, match="fetch the model"):
        get_config("FunAudioLLM/Fun-ASR-Nano-2512", trust_remote_code=False, config_format="fun-asr-nano")


def test_answers_are_as_long_as_our_own_engine_allows() -> None:
    assert token_cap(LONGEST_S) == LONGEST_ANSWER
    config = get_config(FOLDER, trust_remote_code=False, config_format="fun-asr-nano")
    assert config.max_new_tokens == LONGEST_ANSWER


@our_class
def test_float16_is_refused(cls: Any) -> None:
    config = SimpleNamespace(model_config=SimpleNamespace(model=str(FOLDER), dtype=torch.float16))
    with pytest.raises(ValueError, match="use bfloat16"):
        cls(vllm_config=config)

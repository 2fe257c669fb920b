"""Arguments become options; what cannot be is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from realtime_server.core.endpointing_options import LIVE_SCHEDULE, OFFLINE_SCHEDULE
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError
from realtime_server.offline.options import FileOptions
from realtime_server.sdk import arguments as a


def file_options(**given: Any) -> FileOptions:
    return a.read_file_options(given, 30.0, words=True)  # type: ignore[arg-type]


def test_nothing_given_is_what_the_server_does() -> None:
    options = a.read_engine(None, {})
    assert (options.engine, options.nano) == ("funasr-nano", NanoOptions())
    assert a.read_engine(None, {"engine": "embedded"}).model is None
    made = file_options()
    assert made.endpointing is not None
    assert made.endpointing.schedule == OFFLINE_SCHEDULE
    assert made.decoding.words
    assert not made.speakers


def test_arguments_become_options() -> None:
    options = a.read_engine(
        "FunAudioLLM/X",
        {
            "hub": "hf", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.8, "max_model_len": 2048,
            "device": "cuda:0", "dtype": "bf16", "max_segment_s": 60.0,
        },
    )  # fmt: skip
    assert options.nano == NanoOptions(
        model="FunAudioLLM/X", hub="hf", device="cuda", dtype="bfloat16", longest_s=60.0, tensor_parallel_size=2,
        gpu_memory_utilization=0.8, max_model_len=2048,
    )  # fmt: skip
    assert a.read_engine(None, {"hub": "modelscope"}).nano.hub == "ms"
    embedded = a.read_engine(
        "/models/whisper", {"engine": "embedded", "workers": 3, "vad_model": "/models/vad"}
    )
    assert (embedded.model, embedded.workers) == (Path("/models/whisper"), 3)
    assert embedded.vad_model == Path("/models/vad")


def test_any_model_of_vllm_is_asked_for_by_name() -> None:
    options = a.read_engine(
        "openai/whisper-small",
        {"engine": "vllm", "dtype": "fp16", "vllm_args": {"enforce_eager": True}, "max_segment_s": 20.0},
    )
    assert options.speech == SpeechOptions(
        model="openai/whisper-small", dtype="float16", segment_s=20.0, vllm_args={"enforce_eager": True}
    )
    assert a.read_engine(None, {"engine": "glm-asr"}).nano.model == "zai-org/GLM-ASR-Nano-2512"
    with pytest.raises(ConfigurationError, match="vllm_args go with engine='vllm' only"):
        a.read_engine(None, {"vllm_args": {}})


def test_decoding_is_asked_for_as_in_the_guide() -> None:
    made = file_options(
        language="中文", hotwords=["张三", " 北京 ", "张三", "<|im_end|>"], itn=False, max_new_tokens=512, spk=True,
        timestamp=False, silence_schedule=[(5000, 1500), (20000, 800), (float("inf"), 300)],
    )  # fmt: skip
    assert (made.decoding.language, made.decoding.hotwords[:2]) == ("zh", ("张三", "北京"))
    assert not any("<" in word for word in made.decoding.hotwords)
    assert (made.decoding.itn, made.decoding.words, made.decoding.max_new_tokens) == (False, False, 512)
    assert made.speakers
    assert made.endpointing is not None
    assert made.endpointing.schedule.silence_ms(6000) == 800
    assert file_options(hotwords="张三，北京").decoding.hotwords == ("张三", "北京")
    assert file_options(language=None, hotwords=None).decoding.language is None


def test_a_schedule_is_wanted_only_where_it_is_asked_for() -> None:
    assert not file_options().schedule_wanted
    assert not file_options(dynamic_silence=False).schedule_wanted
    assert file_options(dynamic_silence=True).schedule_wanted
    assert file_options(silence_schedule="inf:500").schedule_wanted


def test_without_dynamic_silence_a_segment_ends_after_800_ms() -> None:
    made = file_options(dynamic_silence=False).endpointing
    assert made is not None
    assert (made.mode, made.silence_ms) == ("fixed", 800)


def test_a_stream_asks_for_a_partial_with_each_chunk() -> None:
    settings = a.read_session({"language": "en"}, 720, 30.0)
    assert (settings.pace.interval_ms, settings.pace.first_ms) == (720, 500)
    assert settings.endpointing.schedule == LIVE_SCHEDULE
    assert settings.limits.session_s > 1e6
    assert a.read_session({}, 100, 30.0).pace.first_ms == 100


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "whisper"}, "engine 'whisper': it must be one of embedded, fake, funasr-nano"),
        ({"device": "cuda:1"}, "set CUDA_VISIBLE_DEVICES=1 and use 'cuda'"),
        ({"dtype": "fp16"}, "dtype"),
        ({"dtype": "float16"}, "overflow"),
        ({"hub": "no"}, "hub"),
        ({"workers": 0}, "workers"),
        ({"max_segment_s": 90.0}, "at most 60 s"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_words(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        a.read_engine(None, given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"language": "Klingon"}, "unknown language 'Klingon'"),
        ({"max_new_tokens": 0}, "max_new_tokens must be above zero"),
        ({"silence_schedule": [(1, 2, 3)]}, "silence schedule"),
        ({"silence_schedule": "inf:500", "dynamic_silence": False}, "goes with dynamic_silence=True"),
        ({"segmentation": "no"}, "segmentation 'no'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        file_options(**given)


def test_unknown_names_are_named() -> None:
    with pytest.raises(TypeError, match=r"generate\(\) got an unexpected keyword argument 'langauge'"):
        a.check_names("generate", {"langauge": "en"}, a.FileArguments)
    a.check_names("generate", {"language": "en", "spk": True}, a.FileArguments)

"""How a model of vLLM's is to run."""

from __future__ import annotations

from typing import Any

import pytest

from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"hub": "github"}, "--hub github: it must be one of ms, hf"),
        ({"device": "tpu"}, "--device tpu"),
        ({"dtype": "int8"}, "--dtype int8: it must be one of auto, bfloat16, float16, float32"),
        ({"gpu_memory_utilization": 0.0}, "--gpu-memory-utilization 0"),
        ({"gpu_memory_utilization": 1.5}, "--gpu-memory-utilization 1.5"),
        ({"tensor_parallel_size": 0}, "must be positive"),
        ({"max_model_len": 0}, "must be positive"),
        ({"concurrency": 0}, "must be positive"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        SpeechOptions(model="m", **wrong)


def test_what_is_not_said_is_the_models_own() -> None:
    made = SpeechOptions(model="m").engine_args("cuda")
    assert "max_model_len" not in made
    assert (made["dtype"], made["gpu_memory_utilization"]) == ("auto", 0.9)
    assert made["max_num_seqs"] > 256


def test_a_cpu_computes_in_float32_unless_told_otherwise() -> None:
    assert SpeechOptions(model="m").engine_args("cpu")["dtype"] == "float32"
    assert SpeechOptions(model="m", dtype="bfloat16").engine_args("cpu")["dtype"] == "bfloat16"
    assert SpeechOptions(model="m", kv_cache_bytes=5).engine_args("cpu")["kv_cache_memory_bytes"] == 5


def test_arguments_of_vllm_have_the_last_word() -> None:
    options = SpeechOptions(
        model="m", max_model_len=99, vllm_args={"tokenizer_mode": "mistral", "dtype": "half"}
    )
    made = options.engine_args("cuda")
    assert (made["tokenizer_mode"], made["dtype"], made["max_model_len"]) == ("mistral", "half", 99)

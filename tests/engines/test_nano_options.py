"""Options of Fun-ASR-Nano: what is refused, and what "auto" means."""

from __future__ import annotations

from typing import Any

import pytest

from realtime_server.engines.nano_options import NanoOptions, choose_device, without_gpu
from realtime_server.errors import ConfigurationError

OLD_DRIVER = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "(Triggered internally at CUDAFunctions.cpp:119.)"
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float16"}, "--dtype float16: .*'!!!!'.*use bfloat16 or float32$"),
        ({"dtype": "half"}, "float16"),
        ({"dtype": "int8"}, "--dtype int8: it must be one of auto, bfloat16, float32"),
        ({"device": "tpu"}, "--device tpu: it must be one of auto, cuda, cpu"),
        ({"hub": "github"}, "--hub github: it must be one of ms, hf"),
        ({"longest_s": 61.0}, "at most 60 s"),
        ({"longest_s": 0.0}, "at most 60 s"),
        ({"gpu_memory_utilization": 0.0}, "--gpu-memory-utilization 0: it is a share"),
        ({"gpu_memory_utilization": 1.1}, "--gpu-memory-utilization 1.1: it is a share"),
        ({"tensor_parallel_size": 0}, "positive"),
        ({"max_model_len": -1}, "positive"),
        ({"concurrency": 0}, "positive"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        NanoOptions(**changes)


def test_auto_depends_on_the_device() -> None:
    options = NanoOptions()
    assert options.precision("cuda") == "bfloat16"
    assert options.precision("cpu") == "float32"
    assert NanoOptions(dtype="bfloat16").precision("cpu") == "bfloat16"
    assert options.jobs_at_once("cuda") > options.jobs_at_once("cpu")
    assert NanoOptions(concurrency=3).jobs_at_once("cuda") == 3


def test_a_cpu_that_was_asked_for_needs_no_look_for_a_gpu() -> None:
    assert choose_device("cpu") == "cpu"


def test_without_a_gpu_auto_is_the_cpu() -> None:
    assert without_gpu("auto", built=True, complaints=[]) == "cpu"
    assert without_gpu("auto", built=False, complaints=[]) == "cpu"


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_driver_too_old_is_told_and_never_passed_over(asked: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        without_gpu(asked, built=True, complaints=[OLD_DRIVER])
    assert str(caught.value) == (
        "the GPU cannot be used: The NVIDIA driver on your system is too old (found version 11040); "
        "update the driver, or use --device cpu"
    )


def test_a_gpu_that_was_asked_for_and_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="torch finds none"):
        without_gpu("cuda", built=True, complaints=[])
    with pytest.raises(ConfigurationError, match="built for the CPU only"):
        without_gpu("cuda", built=False, complaints=[])

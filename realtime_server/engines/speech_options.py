"""How a speech-to-text model of vLLM's is to run: which, where, in which precision. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from realtime_server.engines.nano_options import CPU_CONCURRENCY, DEVICES, GPU_CONCURRENCY, HUBS
from realtime_server.engines.vllm_setup import device_args
from realtime_server.errors import ConfigurationError

DTYPES = ("auto", "bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """Which model, and how it runs.

    model: a folder, or a name at the hub.  hub: "hf" Hugging Face or "ms" ModelScope.  dtype: "auto": what the model's
    own settings say, on a CPU float32.  concurrency: jobs in vLLM at once; None: what the device can bear.
    max_model_len: longest prompt and answer together, tokens; None: the model's own.  segment_s: the longest audio that
    will be asked for, if the model takes so much.  kv_cache_bytes: None: as much as gpu_memory_utilization leaves, or
    1 GiB on the CPU.  vllm_args: more of AsyncEngineArgs, or in place of what is said here.
    """

    model: str = ""
    hub: Literal["ms", "hf"] = "hf"
    device: str = "auto"
    dtype: str = "auto"
    concurrency: int | None = None
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    segment_s: float = 30.0
    kv_cache_bytes: int | None = None
    vllm_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name, choices in (("hub", HUBS), ("device", DEVICES), ("dtype", DTYPES)):
            if getattr(self, name) not in choices:
                raise ConfigurationError(
                    f"--{name} {getattr(self, name)}: it must be one of {', '.join(choices)}"
                )
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigurationError(
                f"--gpu-memory-utilization {self.gpu_memory_utilization:g}: it is a share, above 0 and at most 1"
            )
        numbers = (self.tensor_parallel_size, self.concurrency, self.max_model_len)
        if min(1 if number is None else number for number in numbers) < 1:
            raise ConfigurationError("tensor_parallel_size, max_model_len and concurrency must be positive")

    def jobs_at_once(self, device: str) -> int:
        """How many jobs vLLM works on at the same time."""
        return self.concurrency or (CPU_CONCURRENCY if device == "cpu" else GPU_CONCURRENCY)

    def engine_args(self, device: str) -> dict[str, Any]:
        """Arguments of vLLM's AsyncEngineArgs."""
        arguments: dict[str, Any] = {
            "model": self.model,
            "dtype": "float32" if self.dtype == "auto" and device == "cpu" else self.dtype,
            "tensor_parallel_size": self.tensor_parallel_size,
            "max_num_seqs": 2 * self.jobs_at_once(device),  # finals find room among files and partials
            "limit_mm_per_prompt": {"audio": 1, "image": 0, "video": 0},
            "mm_processor_cache_gb": 0,  # no audio comes twice
            "enable_prefix_caching": False,  # nor does a prompt
            "scheduling_policy": "priority",
            "generation_config": "vllm",  # not the sampling that the folder recommends for chats
            "disable_log_stats": True,
        }
        if self.max_model_len is not None:
            arguments["max_model_len"] = self.max_model_len
        arguments |= device_args(device, self.gpu_memory_utilization, self.kv_cache_bytes)
        return arguments | dict(self.vllm_args)
